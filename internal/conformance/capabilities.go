package conformance

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// capabilityTests returns the tests of the fields of registry.Capabilities, by field.
func capabilityTests() map[string]func(*testing.T, Fixture) {
	return map[string]func(*testing.T, Fixture){
		"Sessions":        testSessions,
		"Lost":            testNotLost,
		"Shared":          testShared,
		"Admission":       testAdmission,
		"Records":         testRecords,
		"VerifyAfter":     testVerifyAfter,
		"Watcher":         testWatcher,
		"Overlap":         testOverlap,
		"Leave":           testLeave,
		"SourcesComplete": testSourcesComplete,
	}
}

// fieldsOf returns the names of the fields of Capabilities, and whether each is set.
func fieldsOf(c registry.Capabilities) map[string]bool {
	set, value := make(map[string]bool), reflect.ValueOf(c)
	for field, v := range value.Fields() {
		set[field.Name] = !v.IsZero()
	}
	return set
}

// Wrapper requires that a wrapper has the capabilities of the wrapped target, except for the
// fields of registry.Capabilities that it removes.
func Wrapper(t testing.TB, wrapped, wrapper registry.Target, takenAway ...string) {
	t.Helper()
	for _, name := range wrapperDiffers(wrapped.Capabilities(), wrapper.Capabilities(), takenAway) {
		t.Errorf("%s of the wrapper differs from the capability of the target that it wraps", name)
	}
}

// wrapperDiffers returns the fields that are set in wrapper but should not be, or the other way
// round.
func wrapperDiffers(wrapped, wrapper registry.Capabilities, takenAway []string) (fields []string) {
	has := fieldsOf(wrapper)
	for name, want := range fieldsOf(wrapped) {
		if has[name] != (want && !slices.Contains(takenAway, name)) {
			fields = append(fields, name)
		}
	}
	slices.Sort(fields)
	return fields
}

// capabilityTestsOf returns the tests of the capabilities that a target has.
func capabilityTestsOf(t *testing.T, target registry.Target) map[string]func(*testing.T, Fixture) {
	t.Helper()
	all, tests := capabilityTests(), make(map[string]func(*testing.T, Fixture))
	for name, set := range fieldsOf(target.Capabilities()) {
		if set && all[name] == nil {
			t.Errorf("the capability %s has no test", name)
		} else if set {
			tests["capability "+name] = all[name]
		}
	}
	return tests
}

// testSessions requires that entries written by this session are live.
func testSessions(t *testing.T, f Fixture) {
	f.write(t, 0, f.Entry(0, 0, 0))
	f.expect(t, 0, f.Entry(0, 0, 0))
}

func testNotLost(t *testing.T, f Fixture) {
	can := f.Target.Capabilities()
	if !can.Sessions {
		t.Error("Lost is set without Sessions: entries end with a session that Sessions does not report")
	}
	select {
	case <-can.Lost:
		t.Error("the session is lost before it wrote anything")
	default:
	}
}

// testShared requires that an entry published by another replica is owned but not live, and that
// it is live after this replica publishes it, too.
func testShared(t *testing.T, f Fixture) {
	if f.Set == nil {
		return
	}
	f.Set(t, f.Entry(0, 0, 0))
	if stored := f.read(t, 0); len(stored) != 1 || stored[0].Owner != f.Owner || stored[0].Live {
		t.Fatalf("Read = %+v, want one own entry that is not live", stored)
	}
	f.write(t, 0, f.Entry(0, 0, 0))
	f.expect(t, 0, f.Entry(0, 0, 0))
}

func testAdmission(t *testing.T, f Fixture) {
	admission := f.Target.Capabilities().Admission
	_ = admission() // may be nil or not, but must return
	f.write(t, 0, f.Entry(0, 0, 0))
	if err := admission(); err != nil {
		t.Errorf("Admission after a write = %v, want nil", err)
	}
}

// testRecords stores, replaces and deletes texts of two kinds.
func testRecords(t *testing.T, f Fixture) {
	records := f.Target.Capabilities().Records
	expect := func(kind string, want map[string]string) {
		t.Helper()
		if got, err := records.Records(t.Context(), kind); err != nil || !maps.Equal(got, want) {
			t.Errorf("Records(%q) = %v, %v, want %v", kind, got, err, want)
		}
	}
	record := func(kind string, texts map[string]string) {
		t.Helper()
		if err := records.Record(t.Context(), kind, texts); err != nil {
			t.Fatalf("Record(%q, %v): %v", kind, texts, err)
		}
	}
	expect("guard", nil)
	record("guard", map[string]string{"a": "1", "b": "2"})
	record("holds", map[string]string{"a": "3"})
	expect("guard", map[string]string{"a": "1", "b": "2"})
	expect("holds", map[string]string{"a": "3"})
	record("guard", map[string]string{"a": "", "b": "4", "c": ""})
	expect("guard", map[string]string{"b": "4"})
	expect("holds", map[string]string{"a": "3"})
}

// testVerifyAfter requires that a group is read back within a minute.
func testVerifyAfter(t *testing.T, f Fixture) {
	if after := f.Target.Capabilities().VerifyAfter; after < 0 || after > time.Minute {
		t.Errorf("VerifyAfter = %v, want up to a minute", after)
	}
}

// testWatcher requires that Watch reads the same as Read. Watched tests that changes are reported.
func testWatcher(t *testing.T, f Fixture) {
	watcher := f.Target.Capabilities().Watcher
	f.write(t, 0, f.entries(0, 0, 2, 0)...)
	stored, err := watcher.Watch(t.Context(), f.Group(0))
	if want := f.read(t, 0); err != nil || !slices.Equal(stored, want) {
		t.Errorf("Watch = %v, %v, want as Read %v", stored, err, want)
	}
	if watcher.Changed() == nil {
		t.Error("Changed returns no channel")
	}
	_ = watcher.Changes()
}

// testOverlap requires that an entry stays next to its replacement until it is deleted.
func testOverlap(t *testing.T, f Fixture) {
	if f.Target.Capabilities().Overlap(f.Group(0)) == 0 {
		return
	}
	f.write(t, 0, f.Entry(0, 0, 0))
	before, next := f.read(t, 0)[0], f.Entry(0, 0, 1)
	must := func(change registry.Change) {
		t.Helper()
		change.Group, change.Want = f.Group(0), []registry.Entry{next}
		if err := f.Target.Write(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	must(registry.Change{Put: []registry.Write{{New: next, Old: &before, KeepOld: true}}})
	stored := f.read(t, 0)
	if len(stored) != 2 {
		t.Fatalf("Read = %v, want the entry and its replacement", stored)
	}
	i := slices.IndexFunc(stored, func(s registry.Stored) bool { return s.Entry == before.Entry })
	if i < 0 {
		t.Fatalf("Read = %v, without the entry that was replaced", stored)
	}
	must(registry.Change{Delete: stored[i : i+1]})
	f.expect(t, 0, next)
}

// testLeave requires that an entry that its owner is about to delete is read as leaving.
func testLeave(t *testing.T, f Fixture) {
	if f.Set == nil || f.Foreign == nil {
		return
	}
	other := f.Foreign(0, 0, 0)
	left := f.Target.Capabilities().Leave(other)
	if left == other {
		return // the format cannot express it
	}
	f.Set(t, left)
	if stored := f.read(t, 0); len(stored) != 1 || !stored[0].Leaving || stored[0].Owner == f.Owner {
		t.Errorf("Read = %+v, want one entry of another owner that is leaving", stored)
	}
}

func testSourcesComplete(t *testing.T, f Fixture) {
	complete := f.Target.Capabilities().SourcesComplete
	complete()
	f.write(t, 0, f.Entry(0, 0, 0))
	complete()
	f.expect(t, 0, f.Entry(0, 0, 0))
}
