package statefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry/statefile"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	for _, want := range []string{"a long first state", "another"} {
		if err := statefile.Replace(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("Stat() = %v, %v, want it readable only by its owner", info, err)
	}
	t.Run("a failed replacement leaves no temporary file", func(t *testing.T) {
		if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := statefile.Replace(filepath.Join(dir, "directory"), []byte("x")); err == nil {
			t.Error("Replace() of a directory = nil, want an error")
		}
		if all, _ := os.ReadDir(dir); len(all) != 2 {
			t.Errorf("files %v, want the state and the directory", all)
		}
	})
	if err := statefile.Replace(filepath.Join(dir, "nowhere", "state.json"), nil); err == nil {
		t.Error("Replace() = nil in a directory that does not exist, want an error")
	}
}
