package mcp_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// FuzzStateFile shows that whatever stands in a state file is either exactly
// what was saved or an error (F58, T3).
func FuzzStateFile(f *testing.F) {
	dir := f.TempDir()
	saved := &mcp.StateFile{Path: filepath.Join(dir, "saved.json")}
	entry := registry.Entry{Group: registry.Group{Kind: "serviceentry", Namespace: "ns", Name: "a.bridge.internal"}, Key: "10.0.0.1:80", Value: "v"}
	if err := saved.Save([]registry.Entry{entry}); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(saved.Path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add(slices.Concat(text, text))
	f.Add([]byte(`{"version":1,"sha256":"","entries":null}`))
	f.Add([]byte(`{"version":999,"sha256":"e3b0c442","entries":[]}`))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &mcp.StateFile{Path: filepath.Join(t.TempDir(), "s.json")}
		if err := os.WriteFile(s.Path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		entries, err := s.Load()
		if err != nil {
			if len(entries) > 0 {
				t.Errorf("%v, and entries all the same", err)
			}
			return
		}
		if err := s.Save(entries); err != nil {
			t.Fatal(err)
		}
		again, err := s.Load()
		if err != nil || !slices.Equal(entries, again) {
			t.Errorf("%v, then %v (%v)", entries, again, err)
		}
	})
}

// TestAStateOfAnotherVersionIsNotRead shows that a form that is not known is
// no set of entries.
func TestAStateOfAnotherVersionIsNotRead_F58(t *testing.T) {
	s := &mcp.StateFile{Path: filepath.Join(t.TempDir(), "s.json")}
	if _, err := s.Load(); err != nil {
		t.Errorf("no file: %v", err)
	}
	if err := s.Save(nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	text = slices.Concat([]byte(`{"version":2,`), text[len(`{"version":1,`):])
	if err := os.WriteFile(s.Path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(); err == nil {
		t.Error("a file of version 2 was read")
	}
	gone := &mcp.StateFile{Path: filepath.Join(t.TempDir(), "nowhere", "s.json")}
	if err := gone.Save(nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
