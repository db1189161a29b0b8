package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func testAbsent(t *testing.T, f Fixture) {
	if held := f.read(t, 0); len(held) != 0 {
		t.Fatalf("holds %v", held)
	}
}

func testCreate(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 2, 0)...)
	f.expect(t, 0, f.entries(0, 0, 2, 0)...)
	if held := f.read(t, 0); len(held) != 2 {
		t.Fatalf("%d entries, want exactly 2: %v", len(held), held)
	}
}

func testReplace(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 3, 0)...)
	want := []registry.Entry{f.Entry(0, 0, 0), f.Entry(0, 1, 1), f.Entry(0, 2, 0)}
	f.write(t, 0, want...)
	f.expect(t, 0, want...)
}

func testBackAndForth(t *testing.T, f Fixture) {
	for _, v := range []int{0, 1, 0, 1} {
		f.write(t, 0, f.Entry(0, 0, v))
		f.expect(t, 0, f.Entry(0, 0, v))
	}
}

func testDelete(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 3, 0)...)
	f.write(t, 1, f.entries(1, 0, 3, 0)...)
	f.write(t, 0, f.Entry(0, 2, 0))
	f.expect(t, 0, f.Entry(0, 2, 0))
	f.write(t, 0)
	f.expect(t, 0)
	f.expect(t, 1, f.entries(1, 0, 3, 0)...)
}

func testMixed(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 3, 0)...)
	want := []registry.Entry{f.Entry(0, 1, 1), f.Entry(0, 2, 0), f.Entry(0, 3, 0)}
	f.write(t, 0, want...)
	f.expect(t, 0, want...)
}

func testGroups(t *testing.T, f Fixture) {
	var want []registry.Group
	for n := range 5 {
		f.write(t, n, f.Entry(n, 0, 0))
		want = append(want, f.Group(n))
	}
	if f.Set != nil && f.Foreign != nil {
		f.Set(t, f.Foreign(5, 0, 0))
		want = append(want, f.Group(5))
	}
	got, err := f.Target.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range want {
		if !slices.Contains(got, g) {
			t.Errorf("%s is not listed: %v", g, got)
		}
	}
	if slices.SortFunc(got, registry.Group.Compare); len(slices.Compact(got)) != len(got) {
		t.Errorf("a group is listed twice: %v", got)
	}
}

func testRepeat(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 0, 3, 0)...)
	want := []registry.Entry{f.Entry(0, 1, 1), f.Entry(0, 2, 0), f.Entry(0, 3, 0)}
	change := f.change(f.read(t, 0), 0, want...)
	for i := range 3 {
		if err := f.Target.Write(t.Context(), change); err != nil && (i == 0 || !errors.Is(err, registry.ErrConflict)) {
			t.Fatal(err)
		}
		f.expect(t, 0, want...)
	}
}

func testCreateTwice(t *testing.T, f Fixture) {
	f.write(t, 0, f.Entry(0, 0, 0))
	for _, v := range []int{0, 1} {
		err := f.Target.Write(t.Context(), f.change(nil, 0, f.Entry(0, 0, v)))
		if err != nil && !errors.Is(err, registry.ErrConflict) {
			t.Errorf("variant %d: %v, want a conflict or nothing", v, err)
		}
	}
	held := f.read(t, 0)
	f.write(t, 0, f.Entry(0, 0, 0))
	f.expect(t, 0, f.Entry(0, 0, 0))
	if len(held) == 0 {
		t.Fatal("the entry is gone")
	}
}

func testEmpty(t *testing.T, f Fixture) {
	f.write(t, 0, f.Entry(0, 0, 0))
	before := f.read(t, 0)
	f.write(t, 0, f.Entry(0, 0, 0))
	if after := f.read(t, 0); !slices.Equal(before, after) {
		t.Fatalf("from %v to %v", before, after)
	}
}

func testLarge(t *testing.T, f Fixture) {
	const many = 250
	f.write(t, 0, f.entries(0, 0, many, 0)...)
	f.expect(t, 0, f.entries(0, 0, many, 0)...)
	f.write(t, 0, append(f.entries(0, 0, many/2, 0), f.entries(0, many/2, many, 1)...)...)
	f.expect(t, 0, append(f.entries(0, 0, many/2, 0), f.entries(0, many/2, many, 1)...)...)
	f.write(t, 0)
	f.expect(t, 0)
}

func testEnded(t *testing.T, f Fixture) {
	f.write(t, 0, f.Entry(0, 0, 0))
	change := f.change(f.read(t, 0), 0, f.Entry(0, 1, 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Target.Write(ctx, change); !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
	if _, err := f.Target.Read(ctx, f.Group(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	if _, err := f.Target.Groups(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("groups: %v", err)
	}
	f.expect(t, 0, f.Entry(0, 0, 0))
}

func testConcurrent(t *testing.T, f Fixture) {
	const groups = 24
	var wg sync.WaitGroup
	errs := make([]error, groups)
	for n := range groups {
		wg.Go(func() {
			errs[n] = f.Target.Write(t.Context(), f.change(nil, n, f.entries(n, 0, 3, 0)...))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for n := range groups {
		f.expect(t, n, f.entries(n, 0, 3, 0)...)
	}
}

func testRefused(t *testing.T, f Fixture) {
	f.write(t, 0, f.Entry(0, 0, 0))
	held := f.read(t, 0)
	held[0].Owner = "nobody"
	err := f.Target.Write(t.Context(), registry.Change{Group: f.Group(0), Delete: held})
	if !errors.Is(err, registry.ErrRefused) {
		t.Errorf("%v, want a refusal", err)
	}
	f.expect(t, 0, f.Entry(0, 0, 0))
}

// testRefusedOne writes a change with an entry that is too large. A target without a limit writes
// it. A target that rejects the entry deletes nothing with the same change.
func testRefusedOne(t *testing.T, f Fixture) {
	f.write(t, 0, f.entries(0, 1, 4, 0)...)
	large := f.Hostile(strings.Repeat("x", 2<<20))
	want := []registry.Entry{f.Entry(0, 2, 0), f.Entry(0, 3, 1), f.Entry(0, 4, 0)}
	err := f.Target.Write(t.Context(), f.change(f.read(t, 0), 0, append(want, large)...))
	var refused registry.Refused
	switch {
	case err == nil:
		f.expect(t, 0, append(want, large)...)
		return
	case !errors.As(err, &refused) || len(refused) != 1 || !refused.Has(large.Key):
		t.Errorf("%.300v, want a refusal of the one entry that is too large", err)
	}
	f.expect(t, 0, append(want, f.Entry(0, 1, 0))...) // still there, although the rejected entry would replace it
	f.write(t, 0, want...)
}

func testUnknownGroup(t *testing.T, f Fixture) {
	group := registry.Group{Kind: "no such format", Name: "x"}
	held, err := f.Target.Read(t.Context(), group)
	if len(held) > 0 || err != nil && !errors.Is(err, registry.ErrRefused) {
		t.Errorf("read: %v, %v", held, err)
	}
}

func testOrder(t *testing.T, f Fixture) {
	entries := f.entries(0, 0, 12, 0)
	slices.Reverse(entries)
	for i := range entries {
		f.write(t, 0, entries[:i+1]...)
	}
	held := f.read(t, 0)
	if !slices.IsSortedFunc(held, func(a, b registry.Stored) int { return a.Compare(b.Entry) }) {
		t.Errorf("out of order: %v", held)
	}
	f.expect(t, 0, entries...)
}
