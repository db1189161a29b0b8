package registry_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	t.Run("without keys it is no error", func(t *testing.T) {
		t.Parallel()
		if err := (registry.Refused{}).Err(); err != nil {
			t.Error(err)
		}
	})
	t.Run("it is found in an error with its keys and reasons", func(t *testing.T) {
		t.Parallel()
		reason := errors.New("too large")
		err := fmt.Errorf("write: %w", registry.Refused{"k": reason}.Err())
		var found registry.Refused
		if !errors.Is(err, registry.ErrRefused) || !errors.Is(err, reason) || !errors.As(err, &found) || !found.Has("k") || found.Has("l") {
			t.Errorf("%v, %v", err, found)
		}
	})
	t.Run("equal reasons are reported once, and of many the first few", func(t *testing.T) {
		t.Parallel()
		all := make(registry.Refused)
		for i := range 100 {
			all[fmt.Sprintf("a%02d", i)] = fmt.Errorf("%w: no rights", registry.ErrRefused)
			all[fmt.Sprintf("b\x1b%02d", i)] = fmt.Errorf("bad %d", i)
		}
		want := `refused: "a00" and 99 more: no rights; "b\x1b00": bad 0; "b\x1b01": bad 1; 98 other reasons`
		if got := all.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		long := registry.Refused{strings.Repeat("x", 1<<20): errors.New("no")}
		if n := len(long.Error()); n > 300 {
			t.Errorf("%d bytes", n)
		}
	})
}

func TestChange_WithoutKeysKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	entry := func(key, value string) registry.Entry { return registry.Entry{Key: key, Value: value} }
	held := func(key, value string) registry.Held { return registry.Held{Entry: entry(key, value), Live: true} }
	old, stays := held("b", "1"), held("f", "1")
	change := registry.Change{
		Put: []registry.Write{
			{New: entry("a", "2")}, {New: entry("b", "2"), Old: &old}, {New: entry("c", "2")}, {New: entry("f", "2"), Old: &stays, Beside: true},
		},
		Delete: []registry.Held{held("d", "1"), held("e", "1")},
		Want:   []registry.Entry{entry("a", "2"), entry("b", "2"), entry("c", "2"), entry("f", "1"), entry("f", "2")},
	}
	before := slices.Clone(change.Put)
	got := change.Without(func(key string) bool { return slices.Contains([]string{"a", "b", "d", "f"}, key) })
	if len(got.Put) != 1 || got.Put[0].New.Key != "c" || len(got.Delete) != 1 || got.Delete[0].Key != "e" {
		t.Errorf("it does %+v", got)
	}
	want := []registry.Entry{entry("b", "1"), entry("c", "2"), entry("d", "1"), entry("f", "1")}
	if !slices.Equal(got.Want, want) {
		t.Errorf("wants %v, want %v", got.Want, want)
	}
	if !slices.Equal(change.Put, before) || len(change.Want) != 5 {
		t.Error("the change itself was altered")
	}
}
