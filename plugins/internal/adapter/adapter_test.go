package adapter_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

func TestBalance_Weights(t *testing.T) {
	const n = 20_000
	weight := func(w uint64) uint64 { return w }
	counts := make(map[uint64]int)
	for range n {
		one, ok := adapter.Choose([]uint64{10, 0, 30}, weight)
		if !ok {
			t.Fatal("nobody is chosen")
		}
		counts[one]++
	}
	if share := counts[30] * 100 / n; counts[0] > 0 || share < 72 || share > 78 {
		t.Errorf("%v", counts)
	}
	for name, none := range map[string][]uint64{"nobody": nil, "nobody with a weight": {0, 0}} {
		if one, ok := adapter.Choose(none, weight); ok {
			t.Errorf("%s: %d is chosen", name, one)
		}
	}
}

// TestBalance_WeightChange: weights change back, and to 0.
func TestBalance_WeightChange(t *testing.T) {
	asked := 0
	fading := func(uint64) uint64 {
		if asked++; asked > 2 {
			return 0
		}
		return 1
	}
	if one, ok := adapter.Choose([]uint64{1, 2}, fading); ok {
		t.Errorf("%d is chosen, and has no weight any more", one)
	}
}

func TestBalance_HeaderCase(t *testing.T) {
	header := adapter.Header(map[string]any{"X-Env": []string{"a", "b"}, "x-size": 3}, nil, map[string]any{"x-env": "later", "x-user": "me"})
	for name, want := range map[string]string{"x-env": "a,b", "X-User": "me", "x-size": "", "x-none": ""} {
		if got, ok := header(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}
