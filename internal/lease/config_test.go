package lease_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/lease"
)

func TestDiffering(t *testing.T) {
	joined := func(t *testing.T) (w *world, a, b *replica) {
		t.Helper()
		w = newWorld(t, 2)
		a, b = w.joins("a"), w.joins("b")
		a.Configured("old")
		w.in(time.Second)
		return w, a, b
	}
	expect := func(t *testing.T, r *replica, want string) {
		t.Helper()
		if got, differs := r.Differing(); got != want || differs != (want != "") {
			t.Errorf("%s differs from %q, want %q", r.name, got, want)
		}
	}
	worlds(t, map[string]func(*testing.T){
		"who is configured alike, or does not say, does not differ": func(t *testing.T) {
			w, a, b := joined(t)
			expect(t, a, "")
			expect(t, b, "")
			b.Configured("old")
			w.in(time.Second)
			expect(t, a, "")
			expect(t, b, "")
		},
		"who reloads another file differs from others until they do": func(t *testing.T) {
			w, a, b := joined(t)
			b.Configured("new")
			w.in(time.Second)
			expect(t, a, "b")
			expect(t, b, "a")
			a.Configured("new")
			w.in(time.Second)
			expect(t, a, "")
			expect(t, b, "")
		},
		"before the record was read anybody may": func(t *testing.T) {
			w := newWorld(t, 2)
			a := w.joins("a", func(r *replica) { r.link.cut = true })
			a.Configured("old")
			w.in(time.Minute)
			if name, differs := a.Differing(); name != "" || !differs {
				t.Errorf("%q, %v", name, differs)
			}
			a.link.set(func(l *link) { l.cut = false })
			w.in(time.Minute)
			expect(t, a, "")
		},
		"who is gone may be back": func(t *testing.T) {
			w, a, b := joined(t)
			b.Configured("new")
			w.in(time.Second)
			b.stop()
			w.in(lease.Remembered - time.Minute)
			expect(t, a, "b")
			w.in(2 * time.Minute)
			expect(t, a, "")
		},
		"who starts beside one that has just been killed sees that it differed": func(t *testing.T) {
			w, a, _ := joined(t)
			a.stop()
			c := w.joins("c")
			c.Configured("new")
			w.in(time.Minute)
			expect(t, c, "a")
		},
	})
}
