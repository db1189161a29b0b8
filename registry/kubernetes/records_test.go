package kubernetes_test

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

func expectRecords(t *testing.T, r registry.Recorder, kind string, want map[string]string) {
	t.Helper()
	if got, err := r.Records(t.Context(), kind); err != nil || !maps.Equal(got, want) {
		t.Errorf("Records(%s) = %v, %v, want %v", kind, got, err, want)
	}
}

// TestRecorder keeps records in each store.
func TestRecorder(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]kubernetes.Store{"API": newAPIWorld(t).api, "directory": kubernetes.NewDirectory(t.TempDir())} {
		ours, next := kubernetes.NewTarget(store, kubernetes.Options{Owner: "me", Namespace: namespace}), store.Recorder("me", namespace)
		others := store.Recorder("other", namespace)
		expectRecords(t, ours, "holds", nil)
		for _, x := range []struct {
			by                registry.Recorder
			kind, named, text string
		}{
			{ours, "holds", "a1-b2", "one\n---\n\u2028"},
			{next, "holds", "a1-b3", "two"},
			{others, "holds", "a1-b2", "theirs"},
			{ours, "guard", "a1-b2", "three"},
			{ours, "holds", "a1-b3", "four"},
			{ours, "guard", "none", ""},
		} {
			if err := x.by.Record(t.Context(), x.kind, map[string]string{x.named: x.text}); err != nil {
				t.Fatalf("%s: Record() = %v, want nil", name, err)
			}
		}
		expectRecords(t, next, "holds", map[string]string{"a1-b2": "one\n---\n\u2028", "a1-b3": "four"})
		expectRecords(t, next, "guard", map[string]string{"a1-b2": "three"})
		for range 2 {
			if err := ours.Record(t.Context(), "guard", map[string]string{"a1-b2": ""}); err != nil {
				t.Errorf("%s: Record() = %v, want nil", name, err)
			}
		}
		expectRecords(t, next, "guard", nil)
		expectRecords(t, others, "holds", map[string]string{"a1-b2": "theirs"})
		var refused registry.Refused
		err := ours.Record(t.Context(), "guard", map[string]string{"a": strings.Repeat("x", 5<<20), "b": "four", "c": ""})
		if !errors.As(err, &refused) || !refused.Has("a") || len(refused) != 1 {
			t.Errorf("%s: a record of 5 MiB: %v, want only that refused", name, err)
		}
		expectRecords(t, next, "guard", map[string]string{"b": "four"})
		if groups, err := ours.Groups(t.Context()); err != nil || len(groups) != 0 {
			t.Errorf("%s: Groups = %v, %v, want none", name, groups, err)
		}
	}
}

// TestRecorder_Failures: records that cannot be read are an error, not a shorter list.
func TestRecorder_Failures(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	for code, want := range map[int]string{
		http.StatusForbidden: "allow get for configmaps in namespace xds-bridge", http.StatusInternalServerError: "get in namespace", http.StatusOK: "expected a ConfigMap",
	} {
		body := `{"kind":"Secret","apiVersion":"v1"}`
		if code != http.StatusOK {
			body = statusOf(code, map[int]string{http.StatusForbidden: "Forbidden", http.StatusInternalServerError: "InternalError"}[code], "")
		}
		w.with(code, body, every, 1)
		all, err := w.target.Records(t.Context(), "guard")
		if err == nil || all != nil || !strings.Contains(err.Error(), want) || errors.Is(err, registry.ErrRefused) != (code == http.StatusForbidden) {
			t.Errorf("%d: Records = %v, %v, want an error that says %q", code, all, err, want)
		}
	}
	w.with(http.StatusForbidden, statusOf(http.StatusForbidden, "Forbidden", ""), every, 1)
	if err := w.target.Record(t.Context(), "guard", map[string]string{"a": "x"}); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "allow patch for configmaps") {
		t.Errorf("Record = %v, want a refusal", err)
	}

	dir := t.TempDir()
	path := filepath.Join(dir, ".xds-bridge."+metadata.OwnerMark("me")+".guard")
	r := kubernetes.NewDirectory(dir).Recorder("me", namespace)
	for _, text := range []string{"{", "null"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := r.Records(t.Context(), "guard"); !errors.Is(err, registry.ErrRefused) || all != nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Records of %s = %v, %v, want a refusal that names the file", text, all, err)
		}
		if err := r.Record(t.Context(), "guard", map[string]string{"a": "x"}); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("Record over %s = %v, want a refusal", text, err)
		}
	}
	if err := kubernetes.NewDirectory(filepath.Join(dir, "nowhere")).Recorder("me", namespace).Record(t.Context(), "guard", map[string]string{"a": "x"}); err == nil || errors.Is(err, registry.ErrRefused) {
		t.Errorf("Record nowhere = %v, want an error other than a refusal", err)
	}
	if err := r.Record(t.Context(), strings.Repeat("x", 300), map[string]string{"a": "x"}); err == nil || errors.Is(err, registry.ErrRefused) {
		t.Errorf("Record() that the disk does not store = %v, want an error other than a refusal", err)
	}
	if os.Getuid() == 0 { // who may do everything
		return
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := r.Record(t.Context(), "holds", map[string]string{"a": "x"}); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("Record without the right = %v, want a refusal", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // so that it can be deleted
		t.Fatal(err)
	}
}
