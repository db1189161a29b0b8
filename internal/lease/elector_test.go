package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/lease"
)

// pair is two replicas, of whom the first leads.
func (w *world) pair(change ...func(*replica)) (a, b *replica) {
	w.t.Helper()
	a = w.joins("a")
	w.in(time.Second)
	b = w.joins("b", change...)
	w.in(time.Minute)
	w.led(a)
	return a, b
}

func TestElector(t *testing.T) {
	cut, mended := func(r *replica) { r.cut = true }, func(r *replica) { r.cut = false }
	away, back := func(r *replica) { r.away = true }, func(r *replica) { r.away = false }
	worlds(t, map[string]func(*world){
		"one alone leads at once, and though it is not ready": func(w *world) {
			a := w.joins("a", away)
			w.in(10 * time.Millisecond)
			w.led(a)
			w.in(time.Hour)
			w.led(a)
		},
		"who joins is a standby, and is ready": func(w *world) {
			a, b := w.pair()
			w.in(10 * time.Minute)
			w.led(a)
			for _, r := range []*replica{a, b} {
				s := r.State()
				r.expect(s.Ready, s.Leader == "a", len(s.Members) == 2, s.Lost == 0)
			}
		},
		"who is killed is replaced soon after the ttl, by one that is ready, in a later term": func(w *world) {
			a, b := w.pair()
			w.joins("c", func(r *replica) { r.slow = never })
			w.joins("d", away)
			w.in(30 * time.Second)
			before := a.State().Term
			a.stop()
			w.in(ttl + 2*time.Second) // one look to see its last sign of life, and one to miss the next
			w.led(b).expect(b.State().Term > before)
		},
		"who is cut off stops before another begins": func(w *world) {
			a, b := w.pair()
			a.set(cut)
			w.in(ttl * 3 / 4)
			a.expect(len(w.leaders()) == 0, a.State().Lost == 1)
			w.in(time.Minute)
			w.led(b)
			a.set(mended)
			w.in(time.Minute)
			w.led(b)
			a.expect(a.State().Ready)
		},
		"the larger of two ttls counts": func(w *world) {
			a := w.joins("a", func(r *replica) { r.ttl = time.Minute })
			w.in(time.Second)
			b := w.joins("b")
			w.in(time.Second)
			a.stop()
			w.all = w.all[1:]
			w.in(50 * time.Second)
			b.expect(len(w.leaders()) == 0)
			w.in(15 * time.Second)
			w.led(b)
		},
		"a record out of everybody's reach gives no one anything, and nobody is thought dead by it": func(w *world) {
			a, b := w.pair()
			before := a.State().Term
			a.set(cut)
			b.set(cut)
			w.in(10 * time.Minute)
			s := a.State()
			a.expect(len(w.leaders()) == 0, strings.Contains(s.LastError, "no route"), s.Lost == 1, s.Leader == "")
			a.set(mended)
			b.set(mended)
			w.in(ttl)
			s = w.led(a).State()
			a.expect(s.Term == before, s.LastError == "")
		},
		"who leaves hands over to who is ready, and is gone once that one is ready as the leader": func(w *world) {
			a, b := w.pair(func(r *replica) { r.slow = 5 * time.Second })
			left := make(chan error, 1)
			go func() { left <- a.Leave(w.t.Context()) }()
			w.in(3 * time.Second)
			w.led(b)
			a.expect(len(left) == 0)
			w.in(7 * time.Second)
			a.expect(len(left) == 1, <-left == nil)
			b.expect(len(b.State().Members) == 1, b.State().Ready)
		},
		"who leaves leads until a standby is ready, or its time is over": func(w *world) {
			a, b := w.pair(away)
			ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
			defer cancel()
			if err := a.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
				w.t.Error(err)
			}
			w.led(a)
			b.set(back)
			w.in(10 * time.Second)
			w.led(b)
		},
		"a standby leaves at once, who is alone too, and another leads at once": func(w *world) {
			a, b := w.pair()
			for _, r := range []*replica{b, a} {
				w.led(a)
				ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
				if err := r.Leave(ctx); err != nil {
					w.t.Error(err)
				}
				cancel()
			}
			w.in(time.Minute)
			a.expect(len(w.leaders()) == 0)
			c := w.joins("c")
			w.in(10 * time.Millisecond)
			w.led(c)
		},
		"a record that was deleted or spoiled is made anew, and who led leads": func(w *world) {
			a, b := w.pair()
			for _, text := range []string{"", "{"} {
				before := a.State().Term
				w.put(text)
				w.in(time.Minute)
				w.led(a)
				b.expect(b.State().Ready, b.State().Term >= before)
			}
		},
		"a record of a later version is left alone": func(w *world) {
			a, _ := w.pair()
			w.put(`{"format":2}`)
			w.in(time.Minute)
			a.expect(strings.Contains(a.State().LastError, "format 2"), w.text == `{"format":2}`, len(w.leaders()) == 0)
		},
		"a leader that loses its target lets one lead that reaches it, and is a standby when it is back": func(w *world) {
			a, b := w.pair()
			blinks := func(r *replica) {
				r.set(away)
				w.in(7 * ttl)
				r.set(back)
				w.in(10 * time.Minute)
				w.led(r)
			}
			blinks(a)
			a.set(away)
			w.in(9 * ttl)
			w.led(b)
			a.set(back)
			w.in(time.Minute)
			blinks(b)
			a.expect(a.State().Ready)
		},
		"where all read and nobody can write, the leader changes ever less often": func(w *world) {
			a := w.joins("a", func(r *replica) { r.reads = true })
			w.joins("b", func(r *replica) { r.reads = true })
			w.in(time.Minute)
			before := a.State().Term
			w.in(2 * time.Hour)
			moved := a.State().Term - before
			a.expect(moved >= 2, moved <= 10)
		},
		"a lease counts from before it was asked for": func(w *world) {
			asked := time.Now()
			a := w.joins("a", func(r *replica) { r.write = 2 * time.Second })
			w.in(3 * time.Second)
			until := a.State().Until
			a.expect(!until.IsZero(), !until.After(asked.Add(ttl*2/3)))
		},
	})
}

func TestDiffering(t *testing.T) {
	differs := func(r *replica, want string) {
		r.w.t.Helper()
		if got, differs := r.Differing(); got != want || differs != (want != "") {
			r.w.t.Errorf("%s differs from %q, want %q", r.name, got, want)
		}
	}
	configured := func(w *world, a, b string) (*replica, *replica) {
		x, y := w.joins("a"), w.joins("b")
		x.Configure(a)
		y.Configure(b)
		w.in(5 * time.Second)
		return x, y
	}
	worlds(t, map[string]func(*world){
		"who is configured alike, or does not say, does not differ": func(w *world) {
			a, b := configured(w, "old", "")
			differs(a, "")
			differs(b, "")
			b.Configure("old")
			w.in(5 * time.Second)
			differs(a, "")
			differs(b, "")
		},
		"who reloads another file differs from others until they do": func(w *world) {
			a, b := configured(w, "old", "new")
			differs(a, "b")
			differs(b, "a")
			a.Configure("new")
			w.in(5 * time.Second)
			differs(a, "")
			differs(b, "")
		},
		"before the record was read anybody may": func(w *world) {
			a := w.joins("a", func(r *replica) { r.cut = true })
			w.in(time.Minute)
			if name, differs := a.Differing(); name != "" || !differs {
				w.t.Errorf("%q, %v", name, differs)
			}
		},
		"who is gone may be back, also for one that comes later": func(w *world) {
			a, b := configured(w, "old", "new")
			b.stop()
			c := w.joins("c")
			c.Configure("old")
			w.in(lease.Remembered - time.Minute)
			differs(a, "b")
			differs(c, "b")
			w.in(2 * time.Minute)
			differs(a, "")
		},
	})
}
