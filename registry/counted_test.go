package registry_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func TestCounted(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 entries", 1: "1 entry", 2: "2 entries"} {
		if got := registry.Counted(n, "entry", "entries"); got != want {
			t.Errorf("Counted(%d) = %q, want %q", n, got, want)
		}
	}
}
