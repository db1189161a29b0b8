// Package conformance is what every implementation of registry.Target and of
// registry.Source has to pass, be it a real registry, a fake of one or a map in
// memory. It starts no server: fixtures do.
package conformance

import (
	"maps"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Fixture is an empty registry to try a target on. Entries are made by the
// fixture, because each format has its own. Numbers name them: group n, entry
// i in it, variant v of its value; equal numbers make equal entries.
type Fixture struct {
	Target registry.Target
	Owner  string // as in registry.Stored.Owner

	Group func(n int) registry.Group
	Entry func(n, i, v int) registry.Entry // with the mark of the owner

	// Foreign makes an entry with the key of Entry(n, i, v) that another
	// owner has marked; nil where the registry knows no such thing.
	Foreign func(n, i, v int) registry.Entry

	// Hostile makes an entry of group 0 of which a text is part of the key
	// and the value.
	Hostile func(text string) registry.Entry

	// Set and Drop change the registry as another actor does, without
	// conditions. Drop is nil where nobody else can remove what is ours, Set
	// too where nobody else can write.
	Set  func(t *testing.T, e registry.Entry)
	Drop func(t *testing.T, e registry.Entry)

	// Cut makes the connection end while the next write is in flight, before
	// its answer; nil where there is none.
	Cut func(t *testing.T)

	session *session
}

// A session is how often the connection of a target that holds its entries by
// it was replaced, and for which groups that was made up for.
type session struct {
	lost   int
	madeUp map[int]int // by group
}

// Target runs the suite; open makes a registry of its own for each test.
func Target(t *testing.T, open func(t *testing.T) Fixture) {
	t.Helper()
	tests := map[string]func(*testing.T, Fixture){
		"a group that does not exist reads as empty":                 testAbsent,
		"what is written is what is read, live and ours":             testCreate,
		"a new value replaces the old one under its key":             testReplace,
		"what is deleted is gone, and its neighbours stay":           testDelete,
		"one change creates, replaces and deletes":                   testMixed,
		"every group that holds an entry is listed":                  testGroups,
		"a write that is repeated does no harm":                      testRepeat,
		"what exists is not created again":                           testCreateTwice,
		"an empty change changes nothing":                            testEmpty,
		"a large group is written and deleted in one change":         testLarge,
		"hostile text is kept as it is or refused":                   testHostile,
		"a call with an ended context fails and changes nothing":     testEnded,
		"groups are written at the same time":                        testConcurrent,
		"after a refusal the group reads as it was":                  testRefused,
		"a refused entry is named, and costs itself alone":           testRefusedAlone,
		"a group of no known format is refused":                      testUnknownGroup,
		"entries come in their order, whatever order they went in":   testOrder,
		"an entry returned to its old value is equal to what it was": testBackAndForth,
	}
	others := map[string]func(*testing.T, Fixture){
		"entries of others are distinguished and stay":                testForeign,
		"the key of another's entry is a conflict":                    testForeignKey,
		"another's entry is not deleted, even if asked":               testForeignDelete,
		"ours beside another's under one key is seen, and goes alone": testForeignBeside,
	}
	meddling := map[string]func(*testing.T, Fixture){
		"a replacement of what has changed is a conflict":         testReplaceChanged,
		"a replacement of what has gone is a conflict":            testReplaceGone,
		"a conflict is resolved by reading again":                 testConflictThenRead,
		"a group that was deleted is written anew":                testGroupDeleted,
		"what another actor drops is missing in the next reading": testDropped,
	}
	f := open(t)
	maps.Copy(tests, capabilityTestsOf(t, f.Target))
	if f.Cut != nil {
		tests["a write whose connection ends is written over the next one"] = testCut
	}
	if f.Set != nil && f.Foreign != nil {
		maps.Copy(tests, others)
		if f.Drop != nil {
			maps.Copy(tests, meddling)
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			f.session = &session{madeUp: make(map[int]int)}
			test(t, f)
		})
	}
}

// read returns what a group holds.
func (f Fixture) read(t *testing.T, n int) []registry.Stored {
	t.Helper()
	held, err := f.Target.Read(t.Context(), f.Group(n))
	if err != nil {
		t.Fatalf("read group %d: %v", n, err)
	}
	return held
}

// write brings a group from what it holds to exactly these entries of ours.
func (f Fixture) write(t *testing.T, n int, want ...registry.Entry) {
	t.Helper()
	change := f.change(f.read(t, n), n, want...)
	if change.Empty() {
		return // nobody would call for that
	}
	if err := f.Target.Write(t.Context(), change); err != nil {
		t.Fatalf("write group %d: %v", n, err)
	}
}

// change returns how a group comes from what it holds to exactly these entries of
// ours.
func (f Fixture) change(held []registry.Stored, n int, want ...registry.Entry) registry.Change {
	ours := slices.DeleteFunc(slices.Clone(held), func(h registry.Stored) bool { return h.Owner != f.Owner })
	return Change(f.Group(n), ours, want)
}

// Change returns how a group comes from what it holds, all of it ours, to exactly
// these entries.
func Change(group registry.Group, held []registry.Stored, want []registry.Entry) registry.Change {
	c := registry.Change{Group: group, Want: registry.Sorted(want)}
	old := make(map[string]registry.Stored)
	for _, h := range held {
		old[h.Key] = h
	}
	for _, e := range c.Want {
		h, ok := old[e.Key]
		delete(old, e.Key)
		switch {
		case !ok:
			c.Put = append(c.Put, registry.Write{New: e})
		case h.Entry != e || !h.Live:
			c.Put = append(c.Put, registry.Write{New: e, Old: &h})
		}
	}
	for _, h := range held {
		if _, left := old[h.Key]; left {
			c.Delete = append(c.Delete, h)
		}
	}
	return c
}

// entries makes entries i in from..to-1 of a group, variant v.
func (f Fixture) entries(n, from, to, v int) []registry.Entry {
	var out []registry.Entry
	for i := from; i < to; i++ {
		out = append(out, f.Entry(n, i, v))
	}
	return out
}

// again writes once more what a group has to hold where the connection was
// replaced since, as registry.Capabilities.Lost asks its caller to.
func (f Fixture) again(t *testing.T, n int, want ...registry.Entry) {
	t.Helper()
	select {
	case <-f.Target.Capabilities().Lost:
		f.session.lost++
	default:
	}
	if f.session.madeUp[n] != f.session.lost {
		f.session.madeUp[n] = f.session.lost
		f.write(t, n, want...)
	}
}

// expect compares what a group holds of ours with what it should.
func (f Fixture) expect(t *testing.T, n int, want ...registry.Entry) {
	t.Helper()
	f.again(t, n, want...)
	var got []registry.Entry
	for _, h := range f.read(t, n) {
		if h.Owner != f.Owner {
			continue
		}
		if !h.Live {
			t.Errorf("group %d: %s is not live", n, h.Key)
		}
		got = append(got, h.Entry)
	}
	want = registry.Sorted(want)
	if !slices.Equal(got, want) {
		t.Fatalf("group %d holds\n%v\nwant\n%v", n, got, want)
	}
}
