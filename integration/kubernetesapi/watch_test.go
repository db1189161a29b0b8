package kubernetesapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// run watches until the context or the test ends.
func (w *world) run(t *testing.T, ctx context.Context) { //nolint:revive // of the test is first
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.target.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// watched runs a target and waits until its watch begins.
func (w *world) watched(t *testing.T) {
	t.Helper()
	w.run(t, t.Context())
	harness.Eventually(t, soon, "the watch begins", func() error {
		if s := w.target.WatchState(); s.At.IsZero() || s.Err != nil {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// watch reads a group and has it watched.
func (w *world) watch(t *testing.T, group registry.Group) {
	t.Helper()
	if _, err := w.target.Watch(t.Context(), group); err != nil {
		t.Fatal(err)
	}
}

// expectChanges waits until exactly these groups are reported.
func (w *world) expectChanges(t *testing.T, want ...registry.Group) {
	t.Helper()
	var got []registry.Group
	harness.Eventually(t, soon, "changes are reported", func() error {
		select {
		case <-w.target.Changed():
			got = append(got, w.target.Changes()...)
		default:
		}
		for _, g := range want {
			if !slices.Contains(got, g) {
				return fmt.Errorf("of %s nothing is reported, but of %v", g, got)
			}
		}
		return nil
	})
	if len(got) != len(want) {
		t.Errorf("reported %v, want %v", got, want)
	}
}

func label(text string) func(*serviceentry.Object) {
	return func(o *serviceentry.Object) { o.Metadata.Labels["other"] = text }
}

// testWatch has another change a service next to what the target itself does: that
// alone is reported, and last, in the order of the watch.
func testWatch(t *testing.T, w *world) {
	w.watched(t)
	ours, theirs := w.encode(t, service("ours", 2)), w.write(t, service("theirs", 2))
	absent := w.encode(t, service("absent", 2))[0].Group
	w.watch(t, theirs[0].Group)
	w.watch(t, absent)
	group := ours[0].Group
	for n := range 3 { // made, changed, deleted, made again
		w.watch(t, group)
		for i := range 3 {
			want := w.encode(t, service("ours", i+n))
			held, err := w.target.Watch(t.Context(), group)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.target.Write(t.Context(), change(held, group, want...)); err != nil {
				t.Fatal(err)
			}
		}
		held, err := w.target.Watch(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.target.Write(t.Context(), change(held, group)); err != nil {
			t.Fatal(err)
		}
	}
	w.edit(t, theirs[0].Group.Name, label("x"))
	w.expectChanges(t, theirs[0].Group)
	w.edit(t, theirs[0].Group.Name, label("y"))
	w.expectChanges(t, theirs[0].Group) // once more, for it changed once more
	w.watch(t, theirs[0].Group)
	w.Do(t, http.MethodDelete, w.path(theirs[0].Group.Name), "")
	w.expectChanges(t, theirs[0].Group)
	other := w.as(t, w.namespace, w.config(harness.Administrator))
	other.write(t, service("absent", 1))
	w.expectChanges(t, absent)

	if _, err := w.target.Read(t.Context(), absent); err != nil { // ends the watch of it
		t.Fatal(err)
	}
	w.watch(t, theirs[0].Group)
	other.write(t, service("absent", 2))
	other.write(t, service("theirs", 2))
	w.expectChanges(t, theirs[0].Group)
}

// testWatchEnds has things change while nothing is reported.
func testWatchEnds(t *testing.T, w *world) {
	direct := w
	kept, changed, gone := w.write(t, service("kept", 1)), w.write(t, service("changed", 1)), w.write(t, service("gone", 1))
	come := w.encode(t, service("come", 1))
	w, p := w.proxied(t)
	w.watched(t)
	groups := []registry.Group{changed[0].Group, come[0].Group, gone[0].Group}
	for _, group := range append(groups, kept[0].Group) {
		w.watch(t, group)
	}
	p.with(always(all, answering(http.StatusInternalServerError, statusOf(http.StatusInternalServerError, "InternalError"))))
	p.CloseClientConnections()
	harness.Eventually(t, soon, "the state says that the watch ended", func() error {
		if s := w.target.WatchState(); s.Err == nil || s.Since.IsZero() {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	direct.edit(t, changed[0].Group.Name, label("x"))
	direct.write(t, service("come", 1))
	direct.Do(t, http.MethodDelete, direct.path(gone[0].Group.Name), "")
	isWatch := func(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }
	p.with(once(isWatch, answering(http.StatusGone, statusOf(http.StatusGone, "Expired"))))
	w.expectChanges(t, groups...)
	for _, group := range groups {
		w.watch(t, group)
	}
	direct.edit(t, kept[0].Group.Name, label("x"))
	w.expectChanges(t, kept[0].Group)
	if err := w.target.WatchState().Err; err != nil {
		t.Errorf("the state is %v", err)
	}
	p.CloseClientConnections()
	direct.edit(t, changed[0].Group.Name, label("y"))
	w.expectChanges(t, changed[0].Group)
}

// testWatchRefused says what a watch lacks.
func testWatchRefused(t *testing.T, w *world) {
	w = w.as(t, w.namespace, w.config("nobody"))
	if err := w.watchOnce(t); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("the state is %v, want a refusal", err)
	}
}
