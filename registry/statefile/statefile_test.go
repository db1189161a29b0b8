package statefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry/statefile"
)

func TestReplace(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "state.json")
	for _, want := range []string{"a long first state", "another"} {
		if err := statefile.Replace(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want it readable by its owner alone", info, err)
	}
	t.Run("one that cannot be replaced leaves nothing behind", func(t *testing.T) {
		if err := os.Mkdir(filepath.Join(folder, "taken"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := statefile.Replace(filepath.Join(folder, "taken"), []byte("x")); err == nil {
			t.Error("no error")
		}
		if all, _ := os.ReadDir(folder); len(all) != 2 {
			t.Errorf("%v", all)
		}
	})
	if err := statefile.Replace(filepath.Join(folder, "nowhere", "state.json"), nil); err == nil {
		t.Error("no error for a folder that is not there")
	}
}
