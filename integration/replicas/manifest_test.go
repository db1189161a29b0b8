package replicas

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// The namespace and the account of deploy/kubernetes.yaml.
const (
	shippedNamespace = "istio-system"
	shippedAccount   = "xds-bridge"
)

// object is one of the manifest's.
type object struct {
	path string // of the API
	kind string
	data map[string]any
}

// manifest returns the objects of deploy/kubernetes.yaml, in their order.
func manifest(t *testing.T) []object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(t), "deploy", "kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []object
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o.data); err != nil {
			t.Fatal(err)
		}
		o.kind, _ = o.data["kind"].(string)
		version, _ := o.data["apiVersion"].(string)
		group := "/apis/" + version
		if version == "v1" {
			group = "/api/v1"
		}
		meta, _ := o.data["metadata"].(map[string]any)
		kind := strings.ToLower(o.kind) + "s"
		if y, is := strings.CutSuffix(kind, "ys"); is {
			kind = y + "ies"
		}
		o.path = fmt.Sprintf("%s/namespaces/%s/%s/%s", group, meta["namespace"], kind, meta["name"])
		all = append(all, o)
	}
	return all
}

func (o object) json(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(o.data)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// without returns a Role without a verb.
func (o object) without(t *testing.T, verb string) object {
	t.Helper()
	var role struct {
		Rules []map[string][]string `json:"rules"`
	}
	if err := json.Unmarshal([]byte(o.json(t)), &role); err != nil {
		t.Fatal(err)
	}
	var rules []map[string][]string
	for _, rule := range role.Rules {
		rule["verbs"] = slices.DeleteFunc(rule["verbs"], func(v string) bool { return v == verb })
		if len(rule["verbs"]) > 0 {
			rules = append(rules, rule)
		}
	}
	less := map[string]any{"rules": rules}
	for key, value := range o.data {
		if key != "rules" {
			less[key] = value
		}
	}
	return object{o.path, o.kind, less}
}

// may asks the API server what the account of the manifest may do with a
// resource, such as leases/xds-bridge.
func may(t *testing.T, kube *harness.Kubernetes, verb, what string) bool {
	t.Helper()
	resource, name, _ := strings.Cut(what, "/")
	group := ""
	if resource == "leases" {
		group = "coordination.k8s.io"
	}
	review := fmt.Sprintf(`{"spec":{"user":"system:serviceaccount:%s:%s","resourceAttributes":{"namespace":%q,"verb":%q,"group":%q,"resource":%q,"name":%q}}}`,
		shippedNamespace, shippedAccount, shippedNamespace, verb, group, resource, name)
	return strings.Contains(kube.Do(t, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review), `"allowed":true`)
}

// TestManifest shows that a real API server accepts deploy/kubernetes.yaml, and
// that the Role in it is what replicas need: all of it, and no more.
func TestManifest(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	kube := harness.StartKubernetes(t)
	kube.Namespace(t, shippedNamespace)
	all := manifest(t)
	var kinds []string
	var role object
	for _, o := range all {
		kinds = append(kinds, o.kind)
		if o.kind == "Role" {
			role = o
		}
		if status, answer := kube.Apply(t, o.path, o.json(t), "dryRun=All"); status >= http.StatusMultipleChoices {
			t.Errorf("%s: status %d: %s", o.path, status, answer)
		}
	}
	if want := "ServiceAccount Role RoleBinding PodDisruptionBudget Service NetworkPolicy ConfigMap Deployment"; strings.Join(kinds, " ") != want {
		t.Errorf("it holds %v, want %s", kinds, want)
	}
	deployment := all[len(all)-1]
	wrong := strings.Replace(deployment.json(t), `"maxSurge"`, `"maxSurplus"`, 1)
	if status, _ := kube.Apply(t, deployment.path, wrong, "dryRun=All"); status < http.StatusBadRequest {
		t.Error("the API server does not check fields")
	}
	for _, o := range all {
		if status, answer := kube.Apply(t, o.path, o.json(t)); status >= http.StatusMultipleChoices {
			t.Fatalf("%s: status %d: %s", o.path, status, answer)
		}
	}

	const lease = "leases/xds-bridge-zk"
	for _, verb := range []string{"list", "watch", "update", "delete", "deletecollection"} {
		if may(t, kube, verb, lease) {
			t.Errorf("the account may %s leases", verb)
		}
	}
	if may(t, kube, "get", "leases/another") || may(t, kube, "patch", "leases/another") || may(t, kube, "get", "secrets/any") {
		t.Error("the account may do more than it uses")
	}

	tokens := newTokens(t)
	tokens.rotate(t, kube.Token(t, shippedNamespace, shippedAccount))
	to := harness.StartZooKeeper(t)
	w := newWorld(t, fmt.Sprintf("zookeeper: { servers: [%q] }", to.Address), shippedLease(t, all, kube, tokens.file))
	w.ttl, w.to = kubeTTL, "zk" // as the manifest calls it
	for _, verb := range []string{"get", "create", "patch"} {
		t.Run("without the verb "+verb, func(t *testing.T) {
			apply(t, kube, role.without(t, verb))
			harness.Eventually(t, soon, "the command is withdrawn", func() error {
				return harness.Same(may(t, kube, verb, lease), false)
			})
			b := w.replica(t)
			b.Start(t)
			harness.Eventually(t, soon, "status says which verb is missing", func() error {
				s, err := leadershipOf(t, b)
				if err == nil && !strings.Contains(s.LastError, "cannot "+verb+` resource "leases"`) {
					err = fmt.Errorf("%q", s.LastError)
				}
				return err
			})
			apply(t, kube, role)
			b.AwaitReady(t)
			b.Stop(t)
			kube.Do(t, http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/"+shippedNamespace+"/"+lease, "")
		})
	}
	w.start(t, 2)
	w.watchZooKeeper(t, to)
	w.judge(t)
	w.leased(t)
}

func apply(t *testing.T, kube *harness.Kubernetes, o object) {
	t.Helper()
	if status, answer := kube.Apply(t, o.path, o.json(t)); status >= http.StatusMultipleChoices {
		t.Fatalf("%s: status %d: %s", o.path, status, answer)
	}
}

// shippedLease returns the lease of the manifest's configuration, with what a
// pod has around it.
func shippedLease(t *testing.T, all []object, kube *harness.Kubernetes, tokenFile string) string {
	t.Helper()
	for _, o := range all {
		data, _ := o.data["data"].(map[string]any)
		text, held := data["config.yaml"].(string)
		if !held {
			continue
		}
		var c struct {
			Replicas struct {
				Lease struct {
					Kubernetes struct {
						Name string `yaml:"name"`
					} `yaml:"kubernetes"`
				} `yaml:"lease"`
			} `yaml:"replicas"`
		}
		if err := yaml.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("kubernetes: { server: %q, namespace: %s, name: %q, caFile: %q, tokenFile: %q }",
			kube.URL, shippedNamespace, c.Replicas.Lease.Kubernetes.Name, kube.CA, tokenFile)
	}
	t.Fatal("the manifest holds no configuration")
	return ""
}
