package mcp_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

func TestFolder(t *testing.T) {
	r := mcp.Dir{Path: t.TempDir()}
	record := func(kind, name, text string) {
		t.Helper()
		if err := r.Record(t.Context(), kind, name, text); err != nil {
			t.Fatal(err)
		}
	}
	records := func(kind string, want map[string]string) {
		t.Helper()
		got, err := r.Records(t.Context(), kind)
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s/%s: %q, want %q", kind, name, got[name], text)
			}
		}
	}
	records("served", nil)
	record("served", "a", "") // forgets what is not there
	record("served", "a", "first")
	record("served", "a", "second")
	record("served", "b", "text")
	record("other", "a", "text")
	if err := os.WriteFile(filepath.Join(r.Path, "served", "a.123.tmp"), []byte("a part"), 0o600); err != nil {
		t.Fatal(err)
	}
	records("served", map[string]string{"a": "second", "b": "text"})
	record("served", "b", "")
	records("served", map[string]string{"a": "second"})
	records("other", map[string]string{"a": "text"})

	t.Run("what a disk does not give is refused, and the old text stays", func(t *testing.T) {
		if err := os.Mkdir(filepath.Join(r.Path, "served", "folder"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := r.Record(t.Context(), "served", "folder", "x"); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		if err := (mcp.Dir{Path: filepath.Join(r.Path, "nowhere")}).Record(t.Context(), "k", "n", "x"); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		records("served", map[string]string{"a": "second"})
	})
}
