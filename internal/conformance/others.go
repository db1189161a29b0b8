package conformance

import (
	"errors"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// foreign returns the entries of other owners in group 0.
func (f Fixture) foreign(t *testing.T) []registry.Stored {
	t.Helper()
	var out []registry.Stored
	for _, h := range f.read(t, 0) {
		if h.Owner != f.Owner {
			out = append(out, h)
		}
	}
	return out
}

func (f Fixture) expectForeign(t *testing.T, want registry.Entry) {
	t.Helper()
	got := f.foreign(t)
	if len(got) != 1 || got[0].Entry != want {
		t.Fatalf("the foreign entries are %v, want only %v", got, want)
	}
}

func testForeign(t *testing.T, f Fixture) {
	other := f.Foreign(0, 7, 0)
	f.Set(t, other)
	f.write(t, 0, f.entries(0, 0, 3, 0)...)
	f.expect(t, 0, f.entries(0, 0, 3, 0)...)
	f.expectForeign(t, other)
	f.write(t, 0)
	f.expect(t, 0)
	f.expectForeign(t, other)
}

func testForeignKey(t *testing.T, f Fixture) {
	other := f.Foreign(0, 0, 0)
	f.Set(t, other)
	held := f.read(t, 0)
	if len(held) != 1 || held[0].Key != f.Entry(0, 0, 0).Key || held[0].Owner == f.Owner {
		t.Fatalf("holds %v, want the other owner's entry under the key %q", held, f.Entry(0, 0, 0).Key)
	}
	f.expectForeign(t, other)
}

// testForeignSameKey writes another owner's entry under the key of an own one. A registry that can
// hold both shows both; in any other the foreign entry replaces the own one.
func testForeignSameKey(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 2, 0)...)
	f.expect(t, 0, f.entries(0, 0, 2, 0)...)
	other := f.Foreign(0, 0, 0)
	f.Set(t, other)
	f.expectForeign(t, other)
	f.write(t, 0, f.Entry(0, 1, 0))
	f.expect(t, 0, f.Entry(0, 1, 0))
	f.expectForeign(t, other)
	f.Set(t, f.Foreign(0, 7, 0)) // replaces the first one if an actor has one entry for each key
	f.expect(t, 0, f.Entry(0, 1, 0))
}

// testCut ends the connection during a write. The write may have taken effect, and everything that
// the connection held is deleted. After a second write nothing exists twice.
func testCut(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 3, 0)...)
	f.write(t, 1, f.entries(1, 0, 3, 0)...)
	want := []registry.Entry{f.Entry(0, 1, 1), f.Entry(0, 2, 0), f.Entry(0, 3, 0)}
	change := f.change(f.read(t, 0), 0, want...)
	f.Cut(t)
	if err := f.Target.Write(t.Context(), change); err == nil {
		t.Error("a write without an answer succeeded")
	}
	if lost := f.Target.Capabilities().Lost; lost != nil {
		select {
		case <-lost:
			f.session.lost++
		case <-t.Context().Done():
			t.Fatal("the lost connection was not reported")
		}
	}
	f.write(t, 0, want...)
	f.write(t, 1, f.entries(1, 0, 3, 0)...)
	f.session.rewritten = map[int]int{0: f.session.lost, 1: f.session.lost}
	f.expect(t, 0, want...)
	f.expect(t, 1, f.entries(1, 0, 3, 0)...)
}

func testForeignDelete(t *testing.T, f Fixture) {
	other := f.Foreign(0, 0, 0)
	f.Set(t, other)
	held := f.read(t, 0)
	for name, change := range map[string]registry.Change{
		"deleted":  {Group: f.Group(0), Delete: held},
		"replaced": {Group: f.Group(0), Put: []registry.Write{{New: f.Entry(0, 0, 0), Old: &held[0]}}},
	} {
		if err := f.Target.Write(t.Context(), change); err == nil {
			t.Errorf("%s silently", name)
		}
		f.expectForeign(t, other)
	}
}

func testReplaceChanged(t *testing.T, f Fixture) {
	f.write(t, 0, f.Entry(0, 0, 0))
	change := f.change(f.read(t, 0), 0, f.Entry(0, 0, 2))
	f.Drop(t, f.Entry(0, 0, 0))
	f.Set(t, f.Entry(0, 0, 1))
	if err := f.Target.Write(t.Context(), change); !errors.Is(err, registry.ErrConflict) {
		t.Fatalf("%v, want a conflict", err)
	}
	f.expect(t, 0, f.Entry(0, 0, 1))
}

func testReplaceGone(t *testing.T, f Fixture) {
	f.write(t, 0, f.Entry(0, 0, 0), f.Entry(0, 1, 0))
	change := f.change(f.read(t, 0), 0, f.Entry(0, 0, 1), f.Entry(0, 1, 0))
	f.Drop(t, f.Entry(0, 0, 0))
	if err := f.Target.Write(t.Context(), change); !errors.Is(err, registry.ErrConflict) {
		t.Fatalf("%v, want a conflict", err)
	}
	f.expect(t, 0, f.Entry(0, 1, 0))
}

func testConflictThenRead(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 2, 0)...)
	change := f.change(f.read(t, 0), 0, f.Entry(0, 0, 1), f.Entry(0, 2, 0))
	f.Drop(t, f.Entry(0, 0, 0))
	if err := f.Target.Write(t.Context(), change); !errors.Is(err, registry.ErrConflict) {
		t.Fatalf("%v, want a conflict", err)
	}
	f.write(t, 0, f.Entry(0, 0, 1), f.Entry(0, 2, 0))
	f.expect(t, 0, f.Entry(0, 0, 1), f.Entry(0, 2, 0))
}

func testGroupDeleted(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 2, 0)...)
	for _, e := range f.entries(0, 0, 2, 0) {
		f.Drop(t, e)
	}
	f.expect(t, 0)
	f.write(t, 0, f.entries(0, 0, 2, 0)...)
	f.expect(t, 0, f.entries(0, 0, 2, 0)...)
}

func testDropped(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 3, 0)...)
	f.Drop(t, f.Entry(0, 1, 0))
	f.expect(t, 0, f.Entry(0, 0, 0), f.Entry(0, 2, 0))
}

// Hostile returns texts that are dangerous in a registry, a log or a terminal.
func Hostile() []string {
	return []string{
		"", ".", "..", "../../x", "/", "//", "a/b", `a\b`, "%2F", "%2e%2e%2f", "%", "%zz", "+", " ", " a ", "a b",
		"\x00", "a\x00b", "a\r\nb", "\x1b[31mred\x1b[0m", "\u202edlrow", "\u200b", "\ufeff", "\ufffe", "\ue000", "\u0085",
		"é", "e\u0301", "日本", "😀", "\xff\xfe", "@@", ",", ";", ":", "::", "#", "?", "&", "=", "a=b&c=d", "*", "'", `"`, "$", "${x}",
		"<script>", "{}", "[]", "null", "раураl", strings.Repeat("x", 64<<10), strings.Repeat("😀", 1000),
	}
}

func testHostile(t *testing.T, f Fixture) {
	neighbour := f.Entry(1, 0, 0)
	f.write(t, 1, neighbour)
	for _, text := range Hostile() {
		e := f.Hostile(text)
		before := f.read(t, 0)
		err := f.Target.Write(t.Context(), f.change(before, 0, e))
		if err != nil {
			if !errors.Is(err, registry.ErrRefused) {
				t.Errorf("%.40q: %v, want a refusal", text, err)
			}
			f.write(t, 0)
			continue
		}
		f.expect(t, 0, e)
		f.expect(t, 1, neighbour)
		f.write(t, 0)
		f.expect(t, 0)
	}
}
