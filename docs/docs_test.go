// Package docs_test keeps the documents in step with the tree.
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
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReliability_NamesTests: each fault has a test that is there.
func TestReliability_NamesTests(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "reliability.md"), "\n## Faults\n")
	table, _, _ = strings.Cut(table, "\n## ")
	row := regexp.MustCompile("^\\| [^|]+ \\| [^|]+ \\| `(Test\\w+)` in ([\\w/-]+) \\|$")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) < 64 {
		t.Errorf("%d lines, want a head of two and one for each fault", len(lines))
	}
	for _, line := range lines[2:] {
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("no fault, effect and test in %s", line)
			continue
		}
		if !strings.Contains(sources(t, m[2]), "func "+m[1]+"(") {
			t.Errorf("%s has no test %s", m[2], m[1])
		}
	}
}

// TestGuarantees: every guarantee is told of, and the tests that judge by them
// are there.
func TestGuarantees(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "reliability.md"), "## The guarantees")
	page, _, _ = strings.Cut(page, "\n## ")
	for _, g := range guarantees.All() {
		if !strings.Contains(page, "\n| `"+string(g)+"` | ") {
			t.Errorf("%s is not told of", g)
		}
	}
	all := regexp.MustCompile("`(Test\\w+)`[^`|]* in\\s+([\\w/]+)").FindAllStringSubmatch(page, -1)
	for _, found := range all {
		if !strings.Contains(sources(t, found[2]), "func "+found[1]+"(") {
			t.Errorf("%s has no test %s", found[2], found[1])
		}
	}
	if len(all) < 8 {
		t.Errorf("%d tests are named: %q", len(all), all)
	}
}

func sources(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range files {
		text.WriteString(read(t, f))
	}
	return text.String()
}

func TestAlerts(t *testing.T) {
	rules, metrics, runbook := read(t, "../deploy/alerts.yaml"), read(t, "reference/metrics.md"), read(t, "runbook.md")
	for _, name := range regexp.MustCompile(`xdsbridge_\w+`).FindAllString(rules, -1) {
		if !strings.Contains(metrics, "`"+name+"`") {
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
				t.Errorf("no alert tells of the condition %s", c)
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

func TestTheSmallestConfigurationOfTheReadme(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "../README.md"), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the README shows none")
	}
	c, err := config.Parse("README.md", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	// Without a token a current istiod tells nobody the keys.
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
