package kubernetes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

const namespace = "xds-bridge"

func TestDirectory_Conformance(t *testing.T) {
	t.Parallel()
	conformance.Target(t, func(t *testing.T) conformance.Fixture {
		t.Helper()
		target := kubernetes.NewTarget(kubernetes.NewDirectory(t.TempDir()), kubernetes.Options{Owner: "me", Namespace: namespace})
		return conformance.ServiceEntries(target, "me", namespace)
	})
}

// TestDirectory_Try stores nothing, and says what keeps it from storing.
func TestDirectory_Try(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := kubernetes.NewDirectory(dir).Try(t.Context(), serviceentry.ObjectKind, namespace); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v are left, %v", files, err)
	}
	if err := kubernetes.NewDirectory(filepath.Join(dir, "nowhere")).Try(t.Context(), serviceentry.ObjectKind, namespace); err == nil {
		t.Error("nothing keeps it from a directory that is not there")
	}
}
