package registry_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func TestMergeRecords(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for name, tt := range map[string]struct {
		kept, texts, want map[string]string
		refused           []string
	}{
		"what fits is stored, and the rest stays": {
			kept: map[string]string{"a": "1", "b": "2"}, texts: map[string]string{"b": "3", "c": "4"},
			want: map[string]string{"a": "1", "b": "3", "c": "4"},
		},
		"an empty text deletes": {
			kept: map[string]string{"a": "1", "b": "2"}, texts: map[string]string{"a": "", "c": ""}, want: map[string]string{"b": "2"},
		},
		"what does not fit is refused alone": {
			kept: map[string]string{"a": "1"}, texts: map[string]string{"a": x(100), "b": x(20)},
			want: map[string]string{"a": "1", "b": x(20)}, refused: []string{"a"},
		},
		"what is deleted makes room": {
			kept: map[string]string{"a": x(80)}, texts: map[string]string{"a": "", "b": x(80)}, want: map[string]string{"b": x(80)},
		},
		"what gets shorter is stored even beyond the limit": {
			kept: map[string]string{"a": x(100), "b": x(100)}, texts: map[string]string{"a": x(90), "c": "1"},
			want: map[string]string{"a": x(90), "b": x(100)}, refused: []string{"c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, refused := registry.MergeRecords(tt.kept, tt.texts, 100)
			if names := slices.Sorted(maps.Keys(refused)); !maps.Equal(got, tt.want) || !slices.Equal(names, tt.refused) {
				t.Errorf("MergeRecords() = %v, refused %v, want %v, refused %v", got, refused, tt.want, tt.refused)
			}
			if len(refused) > 0 && !errors.Is(refused.Err(), registry.ErrRefused) {
				t.Errorf("error = %v, want a refusal", refused)
			}
		})
	}
}
