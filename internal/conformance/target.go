// Package conformance is the test suite for every implementation of registry.Target and
// registry.Source: for a real registry, a fake, or a map in memory. Fixtures start the servers.
package conformance

import (
	"maps"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Fixture is an empty registry for the tests of a target. The fixture makes the entries, because
// each format has its own. Entries are identified by numbers: group n, entry i in it, variant v of
// its value. Equal numbers make equal entries.
type Fixture struct {
	Target registry.Target
	Owner  string // as Stored.Owner reports it

	Group func(n int) registry.Group
	Entry func(n, i, v int) registry.Entry // with the mark of the owner

	// Foreign makes an entry with the key of Entry(n, i, v) and the mark of another owner;
	// nil: the registry has no marks.
	Foreign func(n, i, v int) registry.Entry

	// Hostile makes an entry of group 0 with a text in its key and value.
	Hostile func(text string) registry.Entry

	// Set and Drop change the registry unconditionally, as another actor does. Drop is nil if
	// others cannot delete our entries. Set is also nil if others cannot write.
	Set  func(t *testing.T, e registry.Entry)
	Drop func(t *testing.T, e registry.Entry)

	// Cut ends the connection during the next write, before its answer; nil: there is no
	// connection.
	Cut func(t *testing.T)

	session *session
}

// A session counts how often the connection that holds a target's entries was replaced, and how
// many of the replacements each group was rewritten for.
type session struct {
	lost      int
	rewritten map[int]int // by group
}

// Target runs the suite. For each test, open makes a new registry.
func Target(t *testing.T, open func(t *testing.T) Fixture) {
	t.Helper()
	tests := map[string]func(*testing.T, Fixture){
		"a group that does not exist reads as empty":              testAbsent,
		"a written entry is read back, live and owned":            testCreate,
		"a new value replaces the old one under its key":          testReplace,
		"a deleted entry is gone, and its neighbours stay":        testDelete,
		"one change creates, replaces and deletes":                testMixed,
		"every group that holds an entry is listed":               testGroups,
		"a write can be repeated":                                 testRepeat,
		"an existing entry is not created again":                  testCreateTwice,
		"an empty change changes nothing":                         testEmpty,
		"a large group is written and deleted in one change":      testLarge,
		"hostile text is kept unchanged or rejected":              testHostile,
		"a call with an ended context fails and changes nothing":  testEnded,
		"groups are written at the same time":                     testConcurrent,
		"a rejected change leaves the group unchanged":            testRefused,
		"a rejected entry is named, and the others are written":   testRefusedOne,
		"a group of an unknown format is rejected":                testUnknownGroup,
		"entries are read in order, whatever the order of writes": testOrder,
		"an entry with its old value is equal to the old entry":   testBackAndForth,
	}
	others := map[string]func(*testing.T, Fixture){
		"foreign entries are distinguished and stay":           testForeign,
		"the key of a foreign entry is a conflict":             testForeignKey,
		"a foreign entry is not deleted, even if requested":    testForeignDelete,
		"own and foreign entries of one key are distinguished": testForeignSameKey,
	}
	meddling := map[string]func(*testing.T, Fixture){
		"replacing a changed entry is a conflict":                       testReplaceChanged,
		"replacing a deleted entry is a conflict":                       testReplaceGone,
		"a conflict is resolved by reading again":                       testConflictThenRead,
		"a deleted group is written again":                              testGroupDeleted,
		"an entry dropped by another actor is missing in the next read": testDropped,
	}
	f := open(t)
	maps.Copy(tests, capabilityTestsOf(t, f.Target))
	if f.Cut != nil {
		tests["a write is repeated after its connection ends"] = testCut
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
			f.session = &session{rewritten: make(map[int]int)}
			test(t, f)
		})
	}
}

// read returns the entries of a group.
func (f Fixture) read(t *testing.T, n int) []registry.Stored {
	t.Helper()
	held, err := f.Target.Read(t.Context(), f.Group(n))
	if err != nil {
		t.Fatalf("read group %d: %v", n, err)
	}
	return held
}

// write changes a group so that these are exactly its own entries.
func (f Fixture) write(t *testing.T, n int, want ...registry.Entry) {
	t.Helper()
	change := f.change(f.read(t, n), n, want...)
	if change.Empty() {
		return // the engine never writes an empty change
	}
	if err := f.Target.Write(t.Context(), change); err != nil {
		t.Fatalf("write group %d: %v", n, err)
	}
}

// change returns the change after which these are exactly the own entries of a group.
func (f Fixture) change(held []registry.Stored, n int, want ...registry.Entry) registry.Change {
	ours := slices.DeleteFunc(slices.Clone(held), func(h registry.Stored) bool { return h.Owner != f.Owner })
	return Change(f.Group(n), ours, want)
}

// Change returns the change from the stored entries, all of them owned, to exactly these entries.
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

// entries makes the entries from to to-1 of a group, in variant v.
func (f Fixture) entries(n, from, to, v int) []registry.Entry {
	var out []registry.Entry
	for i := from; i < to; i++ {
		out = append(out, f.Entry(n, i, v))
	}
	return out
}

// again rewrites the entries of a group if the connection was replaced since, as the contract of
// registry.Capabilities.Lost requires.
func (f Fixture) again(t *testing.T, n int, want ...registry.Entry) {
	t.Helper()
	select {
	case <-f.Target.Capabilities().Lost:
		f.session.lost++
	default:
	}
	if f.session.rewritten[n] != f.session.lost {
		f.session.rewritten[n] = f.session.lost
		f.write(t, n, want...)
	}
}

// expect requires that these are exactly the own entries of a group.
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
