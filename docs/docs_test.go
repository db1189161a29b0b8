// Package docs_test keeps the documents in sync with the tree.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
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
	for _, page := range []string{"data-planes.md", "operations/into-mesh.md"} {
		for _, host := range regexp.MustCompile(`[\w.-]+\.zk\.bridge\.internal`).FindAllString(read(t, page), -1) {
			if host != web && host != hello && host != greet {
				t.Errorf("%s: %s is not how a host is called", page, host)
			}
		}
	}
}

// handwritten returns the pages of the documents, and the README.
func handwritten(t *testing.T) []string {
	t.Helper()
	pages := []string{"../README.md"}
	for _, pattern := range []string{"*.md", "adr/*.md", "operations/*.md", "plugins/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		pages = append(pages, found...)
	}
	return pages
}

// anchors returns what a link may name within a page: its headings as GitHub
// converts them, and the names that the page declares.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(words, " ", "-")] = true
	}
	for _, m := range regexp.MustCompile(`<a name="([^"]+)">`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

// TestLinks: each link leads to a file that exists, and to an anchor in it.
func TestLinks(t *testing.T) {
	for _, page := range append(handwritten(t), "../deploy/alerts.yaml") {
		text := read(t, page)
		for _, m := range regexp.MustCompile(`(?:\]\(|main/docs/)([^)#\s]*)(#[^)\s]*)?`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file := filepath.Join(filepath.Dir(page), m[1])
			switch {
			case strings.HasSuffix(page, ".yaml"): // by the address of the repository
				file = m[1]
			case m[1] == "":
				file = page
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if strings.HasSuffix(file, ".md") && m[2] != "" && !anchors(read(t, file))[m[2][1:]] {
				t.Errorf("%s: %s has no heading %s", page, m[1], m[2])
			}
		}
	}
}

// TestCommands: each command and flag of the program that a page prints exists.
func TestCommands(t *testing.T) {
	flags := make(map[string]string) // by command
	for _, section := range strings.Split(read(t, "reference/flags.md"), "\n## ")[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(section, "xds-bridge "), " ")
		name, _, _ = strings.Cut(name, "\n")
		flags[name] = section
	}
	command := regexp.MustCompile("(?m)(?:^ *|`|bin/)xds-bridge ([a-z]+)([^\n`|#()]*)")
	for _, page := range handwritten(t) {
		text := read(t, page)
		code := regexp.MustCompile("(?m)^ {4,}.*$|`[^`\n]+`").FindAllString(text, -1)
		for _, m := range command.FindAllStringSubmatch(strings.Join(code, "\n"), -1) {
			section, known := flags[m[1]]
			if !known {
				t.Errorf("%s: there is no command %s", page, m[1])
			}
			for _, flag := range regexp.MustCompile(` --?[a-z][a-z-]*`).FindAllString(m[2], -1) {
				if !strings.Contains(section+flags["Flags"], "`"+flag[1:]+"`") && !strings.Contains(section+flags["Flags"], "`"+flag[1:]+",") && !strings.Contains(section+flags["Flags"], ","+flag+"`") {
					t.Errorf("%s: %s has no flag%s", page, m[1], flag)
				}
			}
		}
	}
}

// TestDesign_Paths: each file and directory that the design, its records and CONTRIBUTING name
// exists.
func TestDesign_Paths(t *testing.T) {
	records, err := filepath.Glob("adr/*.md")
	if err != nil {
		t.Fatal(err)
	}
	path := regexp.MustCompile("`((?:[a-z-]+/)+[a-z_]+\\.go|(?:[a-z-]+/){2,})`")
	for _, page := range append(records, "design.md", "../CONTRIBUTING.md") {
		for _, m := range path.FindAllStringSubmatch(read(t, page), -1) {
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(m[1]))); err != nil {
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
