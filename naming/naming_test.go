package naming_test

import (
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
)

func TestNear(t *testing.T) {
	known := []string{"bridges", "bridge", "targets", "sources"}
	for name, want := range map[string][]string{
		"bridgs":  {"bridges", "bridge"},
		"BRIDGE":  {"bridge"},
		"source":  {"sources"},
		"nothing": nil,
	} {
		if got := naming.Near(name, known, 2); !slices.Equal(got, want) {
			t.Errorf("Near(%q) = %q, want %q", name, got, want)
		}
	}
}
