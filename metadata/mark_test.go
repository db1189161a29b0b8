package metadata_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestMark_Deterministic(t *testing.T) {
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
		"a letter outside the digits": "abcdefxyz", "leaving twice": "abcdef123xx", "leaving inside": "abcdef123xaaaa", "upper case": "ABCDEF123", "control character": "abcdef12\n",
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
	f.Add("abcdef123aaaabbbbx.12345678")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := metadata.ParseMark(s)
		if err != nil {
			return
		}
		if m.String() != s || m.Path.Hops() > metadata.MaxHops {
			t.Errorf("%q is read as %q", s, m)
		}
	})
}

// TestLeave shows that the mark of an entry says that its owner is about to delete it, and
// that the signature stays valid.
func TestLeave(t *testing.T) {
	t.Parallel()
	signer, mark := metadata.NewSigner([]byte("key")), metadata.NewMark("me", "b")
	for _, value := range []string{
		"dubbo://10.0.0.1:80/api.A?interface=api.A&timestamp=0000000000&xdsb=" + mark.String() + "&zone=a",
		`{"ip":"10.0.0.1","metadata":{"xdsb":"` + mark.String() + `"}}`,
	} {
		e := signer.Sign(registry.Entry{Key: "k", Value: value})
		left := metadata.Leave(e)
		m, err := metadata.MarkOf(left)
		if err != nil || !m.Leaving || m.Owner != mark.Owner || m.Bridge != mark.Bridge || left == e || metadata.Leave(left) != left {
			t.Errorf("Leave(%s) = %s, with the mark %+v, %v", e.Value, left.Value, m, err)
		}
		if owner := signer.Owner(left, m, mark.Owner); owner != mark.Owner {
			t.Errorf("owner of %s = %q, want ours", left.Value, owner)
		}
		if metadata.Bare(left) != metadata.Bare(e) {
			t.Errorf("Bare(%s) = %s", left.Value, metadata.Bare(left).Value)
		}
	}
	if none := (registry.Entry{Value: "dubbo://10.0.0.1:80"}); metadata.Leave(none) != none {
		t.Errorf("Leave of an entry without a mark = %v", metadata.Leave(none))
	}
}

// TestMarkOf_Annotation shows that the mark of a ServiceEntry is in an annotation of its head.
func TestMarkOf_Annotation(t *testing.T) {
	t.Parallel()
	mark := metadata.NewMark("me", "b")
	for value, bare := range map[string]string{
		`{"host":"a","annotations":{"xds-bridge/mark":"` + mark.String() + `","xds-bridge/name":"a"}}`:          `{"host":"a","annotations":{"xds-bridge/name":"a"}}`,
		`{"annotations":{"xds-bridge.attribute/a":"b","xds-bridge/mark":"` + mark.String() + `"},"keys":["k"]}`: `{"annotations":{"xds-bridge.attribute/a":"b"},"keys":["k"]}`,
		`{"annotations":{"xds-bridge/mark":"` + mark.String() + `"}}`:                                           `{"annotations":{}}`,
	} {
		e := registry.Entry{Value: value}
		if m, err := metadata.MarkOf(e); err != nil || m != mark {
			t.Errorf("MarkOf(%s) = %v, %v", value, m, err)
		}
		if got := metadata.Bare(e).Value; got != bare {
			t.Errorf("Bare(%s) = %s, want %s", value, got, bare)
		}
		other := metadata.NewMark("bank", "b")
		if m, err := metadata.MarkOf(metadata.Remark(e, func(metadata.Mark) metadata.Mark { return other })); err != nil || m != other {
			t.Errorf("the mark of %s is %v, %v", value, m, err)
		}
	}
}

func stampOf(t *testing.T, url string) uint64 {
	t.Helper()
	_, rest, _ := strings.Cut(url, "timestamp=")
	text, _, _ := strings.Cut(rest, "&")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const unstamped = "tri://10.0.0.1:20000/greet.Greeter?side=provider&timestamp=" + metadata.NoStamp + "&weight=100&xdsb=abcdef123"

// TestStamp shows that stamps differ: dubbo-go treats nodes of one address with one
// timestamp as one provider.
func TestStamp(t *testing.T) {
	stamped := metadata.Stamp(unstamped)
	t.Run("is the same for the same URL, stamped or not", func(t *testing.T) {
		if again := metadata.Stamp(stamped); again != stamped || metadata.Stamp(unstamped) != stamped {
			t.Errorf("%s, then %s", stamped, again)
		}
	})
	t.Run("differs with anything else in the URL", func(t *testing.T) {
		for _, other := range []string{
			strings.Replace(unstamped, "weight=100", "weight=101", 1),
			strings.Replace(unstamped, "10.0.0.1", "10.0.0.2", 1),
			strings.Replace(unstamped, "xdsb=abcdef123", "xdsb=abcdef124", 1),
			unstamped + "&zone=a",
		} {
			if stampOf(t, metadata.Stamp(other)) == stampOf(t, stamped) {
				t.Errorf("%s has the stamp of %s", metadata.Stamp(other), stamped)
			}
		}
	})
	t.Run("is long ago, in seconds and in milliseconds", func(t *testing.T) {
		for i := range 1000 {
			if n := stampOf(t, metadata.Stamp(unstamped+"&n="+strconv.Itoa(i))); n < 1e9 || n > 1_268_435_455 { // 2001 to 2010
				t.Fatalf("%d", n)
			}
		}
	})
	t.Run("is missing in a value without a place for it", func(t *testing.T) {
		for _, url := range []string{
			"", "tri://h:1/i", "tri://h:1/i?a=b",
			"tri://h:1/i?timestamp=1763700000000&a=b", // a provider's own
			"tri://h:1/i?remote.timestamp=1000000000",
			"tri://h:1/i?timestamp=100000000x",
			`{"timestamp":"1000000000"}`,
		} {
			if got := metadata.Stamp(url); got != url {
				t.Errorf("%s is stamped as %s", url, got)
			}
		}
	})
	t.Run("is the same without a mark, regardless of its owner and who removed it", func(t *testing.T) {
		e := markedEntry(stamped)
		other := metadata.Remark(e, func(m metadata.Mark) metadata.Mark { m.Owner = "zyxwvu"; return m })
		stripped := e
		stripped.Value, _, _ = strings.Cut(e.Value, "&"+metadata.MarkKey+"=") // by a tool that knows no stamps
		want := metadata.Bare(e)
		for _, o := range []registry.Entry{other, stripped, want} {
			if got := metadata.Bare(o); got != want {
				t.Errorf("%s without its mark is %s, want %s", o.Value, got.Value, want.Value)
			}
		}
	})
	t.Run("follows a mark that is signed or replaced", func(t *testing.T) {
		e := markedEntry(stamped)
		other := metadata.Remark(e, func(m metadata.Mark) metadata.Mark { m.Owner = "zyxwvu"; return m })
		signed := metadata.NewSigner([]byte("secret")).Sign(e)
		for _, v := range []string{other.Value, signed.Value} {
			if stampOf(t, v) == stampOf(t, stamped) || metadata.Stamp(v) != v {
				t.Errorf("%s is read as %s", stamped, v)
			}
		}
	})
}
