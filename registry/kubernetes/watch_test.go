package kubernetes_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// soon bounds each wait.
const soon = 30 * time.Second

// run watches until the test ends.
func (w *apiWorld) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.target.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
}

// watch watches a group and returns its entries.
func (w *apiWorld) watch(t *testing.T, group registry.Group) []registry.Stored {
	t.Helper()
	held, err := w.target.Watch(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// expectChanges waits until these groups are reported, each once, and no other.
func (w *apiWorld) expectChanges(t *testing.T, want ...registry.Group) {
	t.Helper()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	var got []registry.Group
	for len(got) < len(want) {
		select {
		case <-w.target.Changed():
			got = append(got, w.target.Changes()...)
		case <-timer.C:
			t.Fatalf("Changes() = %v, want %v", got, want)
		}
	}
	slices.SortFunc(got, registry.Group.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("Changes() = %v, want %v", got, want)
	}
}

// await waits until something is so.
func await(t *testing.T, is func() bool) {
	t.Helper()
	ticker, timer := time.NewTicker(time.Millisecond), time.NewTimer(soon)
	defer ticker.Stop()
	defer timer.Stop()
	for !is() {
		select {
		case <-ticker.C:
		case <-timer.C:
			t.Fatal("the condition is not met in time, want it met")
		}
	}
}

// edit changes an object as another does.
func (w *apiWorld) edit(t *testing.T, name, text string) {
	t.Helper()
	o := w.object(t, name)
	o["text"] = text
	if err := w.Put("serviceentries", o); err != nil {
		t.Fatal(err)
	}
}

func TestWatchedTarget_ForeignChange(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	codec := subsetCodec(t, "version")
	a, b := encode(t, codec, service("a", 2)), encode(t, codec, service("b", 2))
	for _, want := range [][]registry.Entry{a, b} {
		if err := bring(t.Context(), w.target.Target, "me", want[0].Group, want); err != nil {
			t.Fatal(err)
		}
	}
	ours, theirs := a[0].Group, b[0].Group
	w.watch(t, ours)
	w.watch(t, theirs)
	w.run(t)
	for n := range 3 { // what we change is not reported: the next report is of others
		c := registry.Change{Group: ours, Want: a}
		held := w.watch(t, ours)
		next := encode(t, codec, service("a", n+3))
		for _, e := range next {
			i := slices.IndexFunc(held, func(h registry.Stored) bool { return h.Key == e.Key })
			if i < 0 {
				c.Put = append(c.Put, registry.Write{New: e})
			}
		}
		if err := w.target.Write(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	w.edit(t, theirs.Name, "x")
	w.expectChanges(t, theirs)
	w.edit(t, theirs.Name, "y")
	w.expectChanges(t, theirs) // once more, though it was not read
	w.watch(t, theirs)
	w.Delete("destinationrules", namespace, theirs.Name)
	w.expectChanges(t, theirs)
	w.watch(t, theirs)
	w.Delete("serviceentries", namespace, theirs.Name)
	w.expectChanges(t, theirs)
	if held := w.watch(t, theirs); len(held) != 0 {
		t.Errorf("Watch() = %v, want nothing", held)
	}
	if err := w.Put("serviceentries", w.object(t, ours.Name)); err != nil {
		t.Fatal(err)
	}
	w.expectChanges(t, ours)
}

func TestWatchedTarget_Conformance(t *testing.T) {
	t.Parallel()
	conformance.Watched(t, func(t *testing.T) conformance.WatchedFixture {
		t.Helper()
		w, entries := newAPIWorld(t), encode(t, subsetCodec(t, "version"), service("a", 2))
		w.run(t)
		await(t, func() bool { return !w.target.WatchState().At.IsZero() })
		return conformance.WatchedFixture{Target: w.target, Entries: entries, Disturb: func(t *testing.T) {
			t.Helper()
			w.Delete("serviceentries", namespace, entries[0].Group.Name)
		}}
	})
}

// TestWatchedTarget_MissedChange: by versions, after the server forgot
// what happened.
func TestWatchedTarget_MissedChange(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	codec := subsetCodec(t, "")
	all := make(map[string]registry.Group)
	for _, name := range []string{"changed", "come", "gone", "kept"} {
		want := encode(t, codec, service(name, 1))
		all[name] = want[0].Group
		if name == "come" {
			continue
		}
		if err := bring(t.Context(), w.target.Target, "me", want[0].Group, want); err != nil {
			t.Fatal(err)
		}
	}
	for _, group := range all {
		w.watch(t, group)
	}
	w.run(t)
	w.edit(t, all["kept"].Name, "x")
	w.expectChanges(t, all["kept"]) // so that it watches
	w.watch(t, all["kept"])

	changed, come := w.object(t, all["changed"].Name), w.object(t, all["changed"].Name)
	come["metadata"].(map[string]any)["name"] = all["come"].Name //nolint:forcetypeassert // of a test

	w.Refuse("serviceentries", "", http.StatusForbidden, "Forbidden")
	await(t, func() bool { return w.target.WatchState().Err != nil })
	if err := errors.Join(w.Put("serviceentries", changed), w.Put("serviceentries", come)); err != nil {
		t.Fatal(err)
	}
	w.Delete("serviceentries", namespace, all["gone"].Name)
	w.Compact()
	w.Refuse("serviceentries", "", 0, "")
	w.expectChanges(t, all["changed"], all["come"], all["gone"])
	if s := w.target.WatchState(); s.Err != nil {
		t.Errorf("WatchState() = %+v, want no error", s)
	}
}

// TestWatchedTarget_ChangedAfterList has objects changed after a list, before they are read
// for the first time.
func TestWatchedTarget_ChangedAfterList(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	codec := subsetCodec(t, "")
	entries := make(map[string][]registry.Entry)
	for _, name := range []string{"deleted", "edited", "last"} {
		entries[name] = encode(t, codec, service(name, 1))
		if err := bring(t.Context(), w.target.Target, "me", entries[name][0].Group, entries[name]); err != nil {
			t.Fatal(err)
		}
	}
	last := entries["last"][0].Group
	w.watch(t, last)
	w.run(t)
	w.edit(t, last.Name, "x")
	w.expectChanges(t, last) // so that it watches
	if _, err := w.target.Groups(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Delete("serviceentries", namespace, entries["deleted"][0].Group.Name)
	w.edit(t, entries["edited"][0].Group.Name, "x")
	w.edit(t, last.Name, "y")
	w.expectChanges(t, last) // so that it observed the others
	if held := w.watch(t, entries["deleted"][0].Group); len(held) != 0 {
		t.Errorf("Watch() of a deleted group = %v, want nothing", held)
	}
	_ = w.asked("")
	w.watch(t, entries["edited"][0].Group)
	if n := w.asked("GET /apis/networking.istio.io/v1/namespaces/" + namespace + "/serviceentries/"); n != 1 {
		t.Errorf("Watch() of an edited group sent %d times, want once", n)
	}
}

// TestWatchedTarget_Restored has the server restored to what it was before: versions run
// backwards.
func TestWatchedTarget_Restored(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	codec := subsetCodec(t, "")
	all := make(map[string][]registry.Entry)
	bringAll := func(names ...string) {
		for _, name := range names {
			if err := bring(t.Context(), w.target.Target, "me", all[name][0].Group, all[name]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"changed", "deleted", "kept", "later"} {
		all[name] = encode(t, codec, service(name, 1))
	}
	bringAll("changed", "deleted", "kept")
	before := w.Snapshot()
	all["changed"] = encode(t, codec, service("changed", 3))
	bringAll("changed", "later")
	w.Delete("serviceentries", namespace, all["deleted"][0].Group.Name)
	for _, entries := range all {
		w.watch(t, entries[0].Group)
	}
	w.run(t)
	w.edit(t, all["kept"][0].Group.Name, "x")
	w.expectChanges(t, all["kept"][0].Group) // so that it watches
	w.watch(t, all["kept"][0].Group)

	w.Restore(before)
	want := []registry.Group{all["changed"][0].Group, all["deleted"][0].Group, all["kept"][0].Group, all["later"][0].Group}
	w.expectChanges(t, want...)
	for _, group := range want {
		w.watch(t, group)
	}
	w.Delete("serviceentries", namespace, all["kept"][0].Group.Name) // by a version that was there before
	w.expectChanges(t, all["kept"][0].Group)
}

// TestWatchedTarget_EndsWatch: of a group that is read without it nothing
// is reported.
func TestWatchedTarget_EndsWatch(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	codec := subsetCodec(t, "")
	a, b := encode(t, codec, service("a", 1)), encode(t, codec, service("b", 1))
	for _, want := range [][]registry.Entry{a, b} {
		if err := bring(t.Context(), w.target.Target, "me", want[0].Group, want); err != nil {
			t.Fatal(err)
		}
		w.watch(t, want[0].Group)
	}
	w.run(t)
	if _, err := w.target.Read(t.Context(), a[0].Group); err != nil {
		t.Fatal(err)
	}
	w.edit(t, a[0].Group.Name, "x")
	w.edit(t, b[0].Group.Name, "x")
	w.expectChanges(t, b[0].Group)
}
