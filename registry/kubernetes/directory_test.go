package kubernetes_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
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
