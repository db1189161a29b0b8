package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// WatchedFixture is an empty registry for the tests of a target that has a registry.Watcher.
type WatchedFixture struct {
	Target  registry.Target
	Entries []registry.Entry // of one group, with the mark of the owner

	// Disturb changes the group, as another actor does.
	Disturb func(t *testing.T)
}

// watchTime is the time within which a change must be reported, even on a busy machine.
const watchTime = 30 * time.Second

// Watched runs the suite for targets that report changes of others. For each test, open makes a new
// registry. The suite calls the target as the engine does: a group must be watched from its first
// write, however it became known.
func Watched(t *testing.T, open func(t *testing.T) WatchedFixture) {
	t.Helper()
	for name, prepare := range map[string]func(*testing.T, WatchedFixture){
		"a group that is read after a write": func(t *testing.T, f WatchedFixture) {
			f.write(t)
			f.watch(t)
		},
		"a group that is read from a list": func(t *testing.T, f WatchedFixture) {
			f.write(t)
			f.list(t)
			f.watch(t)
		},
		"a watched group that is listed again": func(t *testing.T, f WatchedFixture) {
			f.write(t)
			f.watch(t)
			f.list(t)
		},
		"a group that is watched before its first write": func(t *testing.T, f WatchedFixture) {
			f.watch(t)
			f.write(t)
			if f.Target.Capabilities().VerifyAfter > 0 {
				f.watch(t)
			}
		},
		"a group that is read without a watch": func(t *testing.T, f WatchedFixture) {
			f.write(t)
			f.watch(t)
			if _, err := f.Target.Read(t.Context(), f.Entries[0].Group); err != nil {
				t.Fatal(err)
			}
			f.watch(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			prepare(t, f)
			f.Disturb(t)
			f.awaitDisturbed(t)
		})
	}
}

func (f WatchedFixture) write(t *testing.T) {
	t.Helper()
	c := registry.Change{Group: f.Entries[0].Group, Want: registry.Sorted(f.Entries)}
	for _, e := range c.Want {
		c.Put = append(c.Put, registry.Write{New: e})
	}
	if err := f.Target.Write(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func (f WatchedFixture) list(t *testing.T) {
	t.Helper()
	if _, err := f.Target.Groups(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (f WatchedFixture) watch(t *testing.T) []registry.Stored {
	t.Helper()
	held, err := f.Target.Capabilities().Watcher.Watch(t.Context(), f.Entries[0].Group)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// awaitDisturbed waits until a change of the group is reported and read.
func (f WatchedFixture) awaitDisturbed(t *testing.T) {
	t.Helper()
	want, watcher := registry.Sorted(f.Entries), f.Target.Capabilities().Watcher
	timer := time.NewTimer(watchTime)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			t.Fatalf("a change by another actor is not reported within %v", watchTime)
		case <-watcher.Changed():
		}
		if !slices.Contains(watcher.Changes(), f.Entries[0].Group) {
			continue
		}
		if held := f.watch(t); !slices.EqualFunc(held, want, func(h registry.Stored, e registry.Entry) bool { return h.Entry == e }) {
			return
		}
	}
}
