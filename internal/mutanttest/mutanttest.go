// Package mutanttest runs the tests of a package on code in which one rule at a time is broken.
package mutanttest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Mutant is a change of the code that breaks a rule: the rule, the file, a text that occurs once
// in it, and the replacement.
type Mutant [4]string

// Run fails for each mutant of the package under test that no test detects. The flags of go test
// select the tests.
func Run(t *testing.T, mutants []Mutant, flags ...string) {
	t.Helper()
	for _, m := range mutants {
		rule, file, before, after := m[0], m[1], m[2], m[3]
		t.Run(rule, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(text), before) != 1 {
				t.Fatalf("%q is in %s %d times, want once", before, file, strings.Count(string(text), before))
			}
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
			original, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
			if err != nil {
				t.Fatal(err)
			}
			write(t, changed, strings.Replace(string(text), before, after, 1))
			write(t, overlay, string(list))
			out, err := exec.CommandContext(t.Context(), "go", append([]string{"test", "-overlay", overlay, "-count=1", "-vet=off"}, flags...)...).CombinedOutput()
			switch {
			case err == nil:
				t.Error("no test fails")
			case strings.Contains(string(out), "[build failed]"):
				t.Errorf("it does not compile:\n%s", out)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
