package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/xds-bridge/xds-bridge/config"
)

// Every configuration that this repository shows is one that works.
func TestShippedConfigurations(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) < 2 {
		t.Fatalf("%q, %v", examples, err)
	}
	for _, file := range examples {
		if filepath.Base(file) == "mesh.yaml" { // the mesh of the demo
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			do(t, "validate", "--skip-files", file).want(t, exitOK, "valid")
			text, err := os.ReadFile(file)
			if err != nil || !strings.HasPrefix(string(text), "# yaml-language-server: $schema=../docs/reference/config.schema.json\n") {
				t.Errorf("it does not name its schema: %v", err)
			}
		})
	}
	for name, in := range map[string]struct{ file, from, to, indent string }{
		"the manifest": {"../../deploy/kubernetes.yaml", "  config.yaml: |\n", "---\n", "    "},
		"data planes":  {"../../deploy/data-planes.yaml", "  config.yaml: |\n", "---\n", "    "},
		"the README":   {"../../README.md", "```yaml\nowner:", "```", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(in.file)
			if err != nil {
				t.Fatal(err)
			}
			_, rest, ok := strings.Cut(string(text), in.from)
			inner, _, end := strings.Cut(rest, in.to)
			if !ok || !end {
				t.Fatalf("%s holds no configuration", in.file)
			}
			if strings.HasSuffix(in.from, "owner:") {
				inner = "owner:" + inner
			}
			inner = strings.ReplaceAll("\n"+inner, "\n"+in.indent, "\n")
			for _, text := range []string{inner, strings.ReplaceAll(inner, "  # - { name:", "  - { name:")} { // and what is left out in it
				file := filepath.Join(t.TempDir(), "config.yaml")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				doIn(t, map[string]string{"POD_NAME": "xds-bridge-1", "POD_IP": "10.0.0.1"}, "validate", "--skip-files", file).want(t, exitOK, "valid")
			}
		})
	}
}

// TestExamples runs each example next to an istiod that sends the
// service keys to nobody without a token.
func TestExamples(t *testing.T) {
	t.Parallel()
	for example, targets := range map[string][]string{
		"smallest.yaml": {"zk  dubbo-interface:/dubbo/api.Orders"}, "tls.yaml": {"zk  dubbo-interface:/dubbo/api.Orders"},
		"two-registries.yaml": {"zk  dubbo-interface:/dubbo/api.Orders", "nacos  dubbo-interface:@DEFAULT_GROUP/providers:api.Orders:1.0:"},
		"rules.yaml":          {"zk  dubbo-interface:/dubbo/com.example.OrderService"},
		"into-mesh.yaml":      {"mesh (:15031)  service-entry:xds-bridge/api.x-a."},
	} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../examples/" + example)
			if err != nil {
				t.Fatal(err)
			}
			w := newNacosWorld(t, "xds-bridge")
			s := w.overTLS(jwt(`{"aud":["istio-ca"]}`))
			if err := w.zk.Put("/dubbo/api.A/providers/"+url.QueryEscape("tri://10.0.0.1:20001/api.A?interface=api.A&side=provider"), nil); err != nil {
				t.Fatal(err)
			}
			pair := w.pair()
			file := w.file("example.yaml", strings.NewReplacer(
				"istiod.istio-system.svc:15012", s.xds, "istiod.istio-system.svc:15010", w.xds,
				"/var/run/secrets/istio/root-cert.pem", s.ca+", serverName: istiod.istio-system.svc", "/var/run/secrets/tokens/istio-token", s.token,
				"zookeeper:2181", w.zkAt, "zk-0.zk:2181, zk-1.zk:2181, zk-2.zk:2181", w.zkAt, "zk-0.zk:2281, zk-1.zk:2281, zk-2.zk:2281", s.zkAt,
				"/etc/xds-bridge/zookeeper-ca.pem", s.ca+", serverName: istiod.istio-system.svc", "/etc/xds-bridge/zookeeper-password", w.file("password", "secret\n"),
				"https://nacos:8848", w.at, "/etc/xds-bridge/nacos-password", w.file("password", "secret\n"), ", tls: { caFile: /etc/xds-bridge/nacos-ca.pem }", "",
				"certFile: /etc/xds-bridge/listen.crt, keyFile: /etc/xds-bridge/listen.key", pair,
			).Replace(string(text)))
			do(t, "plan", "-f", file).want(t, exitFindings, targets...)
		})
	}
	if all, err := filepath.Glob("../../examples/*.yaml"); err != nil || len(all) != 6 {
		t.Errorf("%q, %v: want five and the mesh of the demo", all, err)
	}
}

func TestManifests_ServedMesh(t *testing.T) {
	t.Parallel()
	for file, clients := range map[string]string{
		"kubernetes.yaml":  "map[podSelector:{map[app:istiod]}]",
		"data-planes.yaml": "map[namespaceSelector:{map[]}]",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			testManifest(t, "../../deploy/"+file, clients)
		})
	}
}

// testManifest checks that a manifest has clients led to the port that it serves at, and
// none but these let in.
func testManifest(t *testing.T, path, clients string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type port struct {
		Name, TargetPort string
		Port             any
		ContainerPort    int `yaml:"containerPort"`
	}
	type labels struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	var service, policy, pod struct {
		Kind string
		Spec struct {
			Selector  any
			Unready   bool `yaml:"publishNotReadyAddresses"`
			Ports     []port
			Subject   labels   `yaml:"podSelector"`
			Types     []string `yaml:"policyTypes"`
			Admission []struct {
				From  []map[string]labels
				Ports []port
			} `yaml:"ingress"`
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct{ Containers []struct{ Ports []port } }
			}
		}
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		for into, kind := range map[any]string{&service: "\nkind: Service\n", &policy: "\nkind: NetworkPolicy\n", &pod: "\nkind: Deployment\n"} {
			if !strings.Contains("\n"+document, kind) {
				continue
			}
			if err := yaml.Unmarshal([]byte(document), into); err != nil {
				t.Fatal(err)
			}
		}
	}
	const app = "app.kubernetes.io/name"
	us := pod.Spec.Template.Metadata.Labels[app]
	if selector, _ := service.Spec.Selector.(map[string]any); us == "" || selector[app] != us || policy.Spec.Subject.MatchLabels[app] != us {
		t.Errorf("of the pods of %q the Service selects %v, the policy %v", us, service.Spec.Selector, policy.Spec.Subject)
	}
	if s := service.Spec; s.Unready != strings.Contains(clients, "istiod") || len(s.Ports) != 1 || fmt.Sprint(s.Ports[0].Port) != "15031" {
		t.Errorf("an istiod that starts before the bridge is ready does not reach it: %+v", s)
	}
	if !slices.ContainsFunc(pod.Spec.Template.Spec.Containers[0].Ports, func(p port) bool { return p.Name == "xds" && p.ContainerPort == 15031 }) ||
		!strings.Contains(string(text), `listen: ":15031"`) {
		t.Error("the port of the Service is none of the pod's or of its configuration")
	}
	if !slices.Equal(policy.Spec.Types, []string{"Ingress"}) || len(policy.Spec.Admission) != 2 {
		t.Fatalf("%+v", policy.Spec)
	}
	for _, rule := range policy.Spec.Admission {
		theyAlone := len(rule.From) == 1 && fmt.Sprint(rule.From[0]) == clients
		if len(rule.Ports) != 1 || theyAlone != (rule.Ports[0].Name == "" && fmt.Sprint(rule.Ports[0].Port) == "xds") || !theyAlone && (rule.Ports[0].Port != "telemetry" || len(rule.From) != 0) {
			t.Errorf("others than clients are let in: %+v", rule)
		}
	}
}

// What is kept of two registries at their limits fits into the memory that the manifest gives.
func TestManifests_Limits(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "limits: { memory: ")
	memory, _, _ := strings.Cut(rest, " }")
	var pod config.Size
	if err := pod.UnmarshalText([]byte(memory + "B")); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load("../../examples/into-mesh.yaml", lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	kept := config.Size(0)
	for _, r := range cfg.Registries {
		switch {
		case r.ZooKeeper != nil:
			kept += r.ZooKeeper.Limits.MaxBytes
		case r.Nacos != nil:
			kept += r.Nacos.Limits.MaxBytes
		case r.Istiod != nil:
			kept += r.Istiod.Limits.MaxBytes
		}
	}
	if kept == 0 || 2*kept > pod {
		t.Errorf("%d registries may use %d bytes, and the pod has %d", len(cfg.Registries), kept, pod)
	}
}
