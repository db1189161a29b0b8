package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Root returns the directory of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "install.sh")); err == nil {
			return dir
		}
	}
	t.Fatal("no directory above the test holds scripts/install.sh")
	return ""
}

// Application returns the application of a framework with that framework's own registry.
func Application(t testing.TB, framework string) string {
	t.Helper()
	return filepath.Join(installed(t, "applications"), framework)
}

// installed returns where scripts/install.sh put what name denotes; the
// first call for a name on a machine builds or downloads it.
func installed(t testing.TB, name string) string {
	t.Helper()
	code, out, errOut := Run(t, filepath.Join(Root(t), "scripts", "install.sh"), name)
	if code != 0 {
		t.Fatalf("scripts/install.sh %s: %s", name, errOut)
	}
	return strings.TrimSpace(out)
}
