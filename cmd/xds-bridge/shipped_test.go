package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every configuration that this repository shows is one that works.
func TestShippedConfigurations_A74(t *testing.T) {
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
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(inner), 0o600); err != nil {
				t.Fatal(err)
			}
			doIn(t, map[string]string{"POD_NAME": "xds-bridge-1", "POD_IP": "10.0.0.1"}, "validate", "--skip-files", file).want(t, exitOK, "valid")
		})
	}
}
