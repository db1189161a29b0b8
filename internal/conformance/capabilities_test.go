package conformance

import (
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// forgetful is a wrapper that lists capabilities by hand and forgets one. Without the
// method Capabilities it would be no registry.Target, and not compile.
type forgetful struct {
	wrapped registry.Target
	registry.Target
}

func (f forgetful) Capabilities() registry.Capabilities {
	c := f.wrapped.Capabilities()
	return registry.Capabilities{Sessions: c.Sessions, Lost: c.Lost}
}

// TestWrapper shows that a capability which a wrapper forgets is found.
func TestWrapper(t *testing.T) {
	t.Parallel()
	target := memory.New(memory.Options{})
	for name, test := range map[string]struct {
		wrapper   registry.Target
		takenAway []string
		want      []string
	}{
		"the same":                {target, nil, nil},
		"Overlap is forgotten":    {forgetful{wrapped: target}, nil, []string{"Overlap"}},
		"Overlap is taken away":   {forgetful{wrapped: target}, []string{"Overlap"}, nil},
		"Lost is not taken away":  {target, []string{"Lost"}, []string{"Lost"}},
		"one that it never had":   {target, []string{"Records"}, nil},
		"nothing that it has not": {readOnly{target}, []string{"Lost", "Overlap"}, nil},
	} {
		if got := wrapperDiffers(target.Capabilities(), test.wrapper.Capabilities(), test.takenAway); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

type readOnly struct{ registry.Target }

func (r readOnly) Capabilities() registry.Capabilities {
	return r.Target.Capabilities().ReadOnly()
}

// TestCapabilityTests shows that each capability has a test, and each test a capability.
func TestCapabilityTests(t *testing.T) {
	t.Parallel()
	tests := capabilityTests()
	for name := range fieldsOf(registry.Capabilities{}) {
		if tests[name] == nil {
			t.Errorf("%s has no test", name)
		}
		delete(tests, name)
	}
	for name := range tests {
		t.Errorf("%s is tested, and no capability", name)
	}
}
