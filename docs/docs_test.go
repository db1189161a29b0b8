// Package docs_test keeps the documents in sync with the tree.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/naming"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAlerts(t *testing.T) {
	rules, metrics, runbook := read(t, "../deploy/alerts.yaml"), read(t, "reference/metrics.md"), read(t, "runbook.md")
	for _, name := range regexp.MustCompile(`xdsbridge_\w+`).FindAllString(rules, -1) {
		if !strings.Contains(metrics, "`"+strings.TrimSuffix(name, "_count")+"`") { // of a histogram
			t.Errorf("no metric %s", name)
		}
	}
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	for _, of := range []admin.Direction{admin.OfSource, admin.OfTarget, admin.OfProcess} {
		for _, c := range admin.ConditionsOf(of) {
			metric := map[admin.ConditionName]string{admin.Held: "xdsbridge_guard_holds", admin.Conflicting: "xdsbridge_conflicts", admin.Syncing: "xdsbridge_oldest_unsynced"}[c]
			if metric == "" {
				metric = string(c)
			}
			if !strings.Contains(rules, metric) {
				t.Errorf("no alert reports the condition %s", c)
			}
		}
	}
	over := read(t, "../deploy/alerts.test.yaml")
	for _, a := range alerts {
		if name := strings.TrimPrefix(a[1], "XdsBridge"); !strings.Contains(over, name) {
			t.Errorf("%s is not tested over time", a[1])
		}
		if !strings.Contains(runbook, "\n## "+a[1]+"\n") || !strings.Contains(rules, "runbook.md#"+strings.ToLower(a[1])) {
			t.Errorf("the runbook has no section %s", a[1])
		}
	}
}

// TestMeshHosts: the pages call hosts what they are called.
func TestMeshHosts(t *testing.T) {
	hosts := naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}
	web := hosts.Of(naming.MeshName{Name: "web", Protocol: "http"})
	hello := hosts.Of(naming.MeshName{Name: "hello", Protocol: "grpc"})
	greet := hosts.Of(naming.MeshName{Protocol: "tri", Key: naming.ServiceKey{Category: naming.Providers, Interface: "org.acme.GreetService", Version: "1.0"}})
	for _, page := range []string{"data-planes.md", "operations.md"} {
		for _, host := range regexp.MustCompile(`[\w.-]+\.zk\.bridge\.internal`).FindAllString(read(t, page), -1) {
			if host != web && host != hello && host != greet {
				t.Errorf("%s: %s is not how a host is called", page, host)
			}
		}
	}
}

func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	adrs, err := filepath.Glob("adr/*.md")
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := filepath.Glob("plugins/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(slices.Concat(pages, adrs, plugins), "../README.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

func TestReadme_Configuration(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "../README.md"), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the README shows none")
	}
	c, err := config.Parse("README.md", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	// Without a token a current istiod shows nobody the keys.
	if m := c.Registries["mesh"].Istiod; c.Bridges[0].Name != "mesh-to-zk" || m.Address != "istiod.istio-system.svc:15012" || m.TokenFile == "" || m.TLS == nil {
		t.Errorf("%+v", c)
	}
	examples, err := filepath.Glob("../examples/*-*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("%q, %v", examples, err)
	}
	for _, file := range append(examples, "../examples/rules.yaml", "../examples/tls.yaml") {
		if !strings.Contains(read(t, "../README.md"), "(examples/"+filepath.Base(file)+")") {
			t.Errorf("the README does not lead to %s", file)
		}
	}
}
