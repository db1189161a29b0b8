package metadata_test

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestMarkIsTheSameOnEveryReplica(t *testing.T) {
	m := metadata.NewMark("shop-migration", "mesh-to-zk")
	m.Path = registry.Path(metadata.Hop("mesh-1") + metadata.Hop("zk-1"))
	const want = "ggk5itomjtd8a8fii" // pinned: a changed hash would orphan every entry in the field
	if got := m.String(); got != want {
		t.Errorf("mark %q, want %q", got, want)
	}
	if again := metadata.NewMark("shop-migration", "mesh-to-zk"); again.Owner != m.Owner || again.Bridge != m.Bridge {
		t.Error("two replicas mark differently")
	}
	if other := metadata.NewMark("bank-migration", "mesh-to-zk"); other.Owner == m.Owner {
		t.Error("two owners share a mark")
	}
}

func TestParseMarkRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"empty": "", "too short": "abcdef12", "half a hop": "abcdef12312", "too many hops": "abcdef123" + "aaaabbbbccccddddeeee",
		"a letter outside the digits": "abcdefxyz", "upper case": "ABCDEF123", "control character": "abcdef12\n",
	} {
		if _, err := metadata.ParseMark(s); !errors.Is(err, metadata.ErrMark) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzMark(f *testing.F) {
	f.Add("abcdef123")
	f.Add("abcdef123aaaabbbb")
	f.Add("abcdef123aaaabbbb.12345678")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := metadata.ParseMark(s)
		if err != nil {
			return
		}
		if m.String() != s || m.Path.Hops() > metadata.MaxHops {
			t.Errorf("%q became %q", s, m)
		}
	})
}
