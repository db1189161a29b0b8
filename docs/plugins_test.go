package docs_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// required matches a module of a go.mod and its version.
var required = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) (v\S+)$`)

// versions returns what a go.mod requires directly.
func versions(text string) map[string]string {
	all := make(map[string]string)
	for _, m := range required.FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// TestPluginPages: each plugin has a page and a program, the go.mod that a page
// shows requires what the plugin does, and so does what is said of support.
func TestPluginPages(t *testing.T) {
	modules, err := filepath.Glob("../plugins/*/go.mod")
	if err != nil || len(modules) < 7 {
		t.Fatalf("%q, %v", modules, err)
	}
	index, support := read(t, "plugins.md"), read(t, "compatibility.md")
	for _, module := range modules {
		name := filepath.Base(filepath.Dir(module))
		t.Run(name, func(t *testing.T) {
			plugin, page := versions(read(t, module)), read(t, "plugins/"+name+".md")
			_, rest, _ := strings.Cut(page, "```gomod\n")
			shown, _, _ := strings.Cut(rest, "```")
			for path, version := range versions(shown) {
				want := plugin[path]
				if path == ours+"/plugins/"+name {
					want = plugin[ours]
				}
				if version != want {
					t.Errorf("the page requires %s %s, the plugin %s", path, version, want)
				}
			}
			if versions(shown)[ours+"/plugins/"+name] == "" || !strings.Contains(page, "go get "+ours+"/plugins/"+name+"@"+plugin[ours]) {
				t.Error("the page does not require the plugin")
			}
			if !strings.Contains(index, "(plugins/"+name+".md)") {
				t.Error("the index does not lead to the page")
			}
			for _, section := range []string{"Depend on it", "Five lines", "What it does in each registry", "Not supported"} {
				if !strings.Contains(page, "\n## "+section+"\n") {
					t.Errorf("the page has no section %q", section)
				}
			}
			framework := regexp.MustCompile(`(?m)^\| [^|]+ \| (v\S+) \| `+"`"+`([^|]+)`+"`"+` \|$`).FindAllStringSubmatch(support, -1)
			for _, row := range framework {
				if version, does := plugin[row[2]]; does && version != row[1] {
					t.Errorf("%s %s is said to be supported, and %s is built with", row[2], row[1], version)
				}
			}
			if lines := strings.Count(read(t, fmt.Sprintf("../plugins/%s/quickstart/main.go", name)), "\n"); lines > 100 {
				t.Errorf("its program has %d lines", lines)
			}
		})
	}
}

// TestSupportedGo: the older version of Go that is supported is the least that
// go.mod names.
func TestSupportedGo(t *testing.T) {
	go1 := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.`).FindStringSubmatch(read(t, "../go.mod"))
	if go1 == nil || !strings.Contains(read(t, "compatibility.md"), "\n| Go | "+go1[1]+", ") {
		t.Errorf("go.mod: %q", go1)
	}
}
