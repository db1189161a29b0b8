package app

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
)

// sections are the smallest of each kind.
func sections() map[string]string {
	return map[string]string{
		"istiod":     `{ address: "127.0.0.1:1" }`,
		"kubernetes": `{ import: { directory: /tmp } }`,
		"zookeeper":  `{ servers: ["127.0.0.1:1"] }`,
		"nacos":      `{ servers: ["http://127.0.0.1:1"] }`,
	}
}

// TestKinds_Sections: each section of the configuration is of a kind.
func TestKinds_Sections(t *testing.T) {
	t.Parallel()
	all := reflect.TypeFor[config.Registry]()
	for i := range all.NumField() {
		f := all.Field(i)
		if !f.Type.Implements(reflect.TypeFor[config.Section]()) {
			continue
		}
		key, r := f.Tag.Get("yaml"), reflect.New(all).Elem()
		r.Field(i).Set(reflect.New(f.Type.Elem()))
		registry, _ := reflect.TypeAssert[config.Registry](r)
		if got := registry.Settings().Kind; got != key {
			t.Errorf("Settings of %s: kind %s, want %s", key, got, key)
		}
		if kind.Of(registry) == nil || sections()[key] == "" {
			t.Errorf("%s is no kind, or has no example in sections", key)
		}
	}
}

// TestKinds_Formats makes the source and the target of each kind in each format,
// from and into a mesh. Where the format has no form, the configuration says so.
func TestKinds_Formats(t *testing.T) {
	t.Parallel()
	for section, settings := range sections() {
		for _, d := range formats.All() {
			for _, ends := range []string{"from: mesh, to: other", "from: other, to: mesh, listen: ':1'"} {
				if section == "istiod" || section == "kubernetes" {
					continue // a mesh has no formats, and is at the other end of all
				}
				t.Run(section+" "+d.Name+" "+ends[:11], func(t *testing.T) {
					t.Parallel()
					file := filepath.Join(t.TempDir(), "config.yaml")
					text := fmt.Sprintf("owner: shop\nregistries:\n  mesh: { istiod: %s }\n  other: { %s: %s }\nbridges: [{ name: b, %s, formats: [%s] }]\n",
						sections()["istiod"], section, settings, ends, d.Name)
					if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
					b, err := newBuilder(&Program{File: file, Env: noEnv, LogOutput: io.Discard}, buildOptions{dryRun: true, errorsOnly: true})
					if d.Forms[section] == nil {
						if err == nil || !strings.Contains(err.Error(), "has no form in") {
							t.Errorf("built = %v, want an error that it has no form there", err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					defer b.runtime.close()
					if codecs := b.runtime.targets[0].Codecs; len(codecs) != 1 || len(codecs[0]) != 1 {
						t.Errorf("codecs = %v, want one", codecs)
					} else if got := codecs[0][0].Kind(); strings.HasPrefix(ends, "from: mesh") && got != d.Name {
						t.Errorf("Kind of the codec = %s, want %s", got, d.Name)
					}
				})
			}
		}
	}
}

// TestKinds_New adds a kind of registry, a toy in memory: what it touches beside
// its own files are these lines. CONTRIBUTING.md says what else it requires.
func TestKinds_New(t *testing.T) {
	t.Parallel()
	lines := map[string][2]string{ // by file: what is there, and what is behind or in its place
		"config/registries.go":    {"all := []Section{", "all := []Section{r.Toy, "},
		"internal/kind/kind.go":   {"\tcase *config.Istiod:", "\tcase *config.Toy:\n\t\treturn toyKind{s}\n\tcase *config.Istiod:"},
		"metadata/plain/plain.go": {"\t\t\tformat.Nacos:", "\t\t\t\"toy\": format.Form(NewZooKeeper),\n\t\t\tformat.Nacos:"},
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{
		filepath.Join(root, "config/toy.go"):            filepath.Join(root, "internal/app/testdata/toy/section.go"),
		filepath.Join(root, "internal/kind/toy.go"):     filepath.Join(root, "internal/app/testdata/toy/kind.go"),
		filepath.Join(root, "internal/app/toy_test.go"): filepath.Join(root, "internal/app/testdata/toy/toy_test.go"),
	}
	dir := t.TempDir()
	for file, edit := range lines {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), edit[0], edit[1], 1)
		if file == "config/registries.go" {
			changed = strings.Replace(changed, "type Registry struct {\n", "type Registry struct {\n\tToy *Toy `yaml:\"toy\" doc:\"A toy.\"`\n", 1)
		}
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(at, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = at
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", file, "-count=1", "-run", "^TestToy$", "-v", ".")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestToy") {
		t.Errorf("%v: %v\n%s", cmd, err, out)
	}
}
