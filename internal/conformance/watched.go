package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// WatchedFixture is an empty registry to try a target with a registry.Watcher on.
type WatchedFixture struct {
	Target  registry.Target
	Entries []registry.Entry // of one group, with the mark of the owner

	// Disturb changes what the group holds as another actor does.
	Disturb func(t *testing.T)
}

// watchTime is what may pass on a busy machine until a change is reported.
const watchTime = 30 * time.Second

// Watched runs the suite of targets that report what others do; open makes a registry of
// its own for each test. Whichever way a group came to be, it is watched from its first
// write on as the engine calls the target.
func Watched(t *testing.T, open func(t *testing.T) WatchedFixture) {
	t.Helper()
	for name, prepare := range map[string]func(*testing.T, WatchedFixture){
		"a group that was written and is read back": func(t *testing.T, f WatchedFixture) {
			f.write(t)
			f.watch(t)
		},
		"a group that was listed, and read from that list": func(t *testing.T, f WatchedFixture) {
			f.write(t)
			f.list(t)
			f.watch(t)
		},
		"a group that is watched already and is listed once more": func(t *testing.T, f WatchedFixture) {
			f.write(t)
			f.watch(t)
			f.list(t)
		},
		"a group that was watched before it was written": func(t *testing.T, f WatchedFixture) {
			f.watch(t)
			f.write(t)
			if f.Target.Capabilities().VerifyAfter > 0 {
				f.watch(t)
			}
		},
		"a group that was read without a watch": func(t *testing.T, f WatchedFixture) {
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

// awaitDisturbed waits until the group is reported and does not read as it was written.
func (f WatchedFixture) awaitDisturbed(t *testing.T) {
	t.Helper()
	want, watcher := registry.Sorted(f.Entries), f.Target.Capabilities().Watcher
	timer := time.NewTimer(watchTime)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			t.Fatalf("what another did is not reported within %v", watchTime)
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
