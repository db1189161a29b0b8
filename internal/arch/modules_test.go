package arch_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goMod is the part of a go.mod that applies to its dependents.
type goMod struct {
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct{ Old struct{ Path string } }
}

func readGoMod(t *testing.T, file string) (m goMod) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestModules_Plugins requires that plugins have no replace, which Go ignores in dependencies, and
// that they require one version of the modules of this repository, which are released together.
func TestModules_Plugins(t *testing.T) {
	t.Parallel()
	plugins, err := filepath.Glob("../../plugins/*/go.mod")
	if err != nil || len(plugins) < 7 {
		t.Fatalf("%q, %v", plugins, err)
	}
	for _, file := range plugins {
		for _, r := range readGoMod(t, file).Replace {
			t.Errorf("%s replaces %s", file, r.Old.Path)
		}
	}
	versions := make(map[string]string) // the file that requires it
	for _, file := range append(plugins, "../../bench/go.mod", "../../integration/go.mod", "../../tools/release/go.mod") {
		for _, r := range readGoMod(t, file).Require {
			if strings.HasPrefix(r.Path+"/", module) {
				versions[r.Version] = file
			}
		}
	}
	if len(versions) != 1 || versions["v0.0.0"] != "" {
		t.Errorf("versions of this repository's modules that are required: %v", versions)
	}
}
