package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/lease"
)

func TestElector(t *testing.T) {
	worlds(t, map[string]func(*testing.T){
		"one alone leads at once": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(10 * time.Millisecond)
			w.led(a)
			w.in(time.Hour)
			w.led(a)
		},
		"A46 who joins is a standby, and is ready": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Second)
			b, c := w.joins("b"), w.joins("c")
			w.in(10 * time.Minute)
			w.led(a)
			for _, r := range []*replica{a, b, c} {
				if s := r.State(); !s.Ready || s.Leader != "a" || len(s.Members) != 3 || s.Lost != 0 {
					t.Errorf("%s: %+v", r.name, s)
				}
			}
		},
		"A46 who is killed is replaced within the ttl, by one that is ready": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Second)
			b := w.joins("b")
			w.joins("c", func(r *replica) { r.slow = 1e6 * time.Hour })
			w.joins("d", func(r *replica) { r.away.Store(true) })
			w.in(30 * time.Second)
			before := a.State().Term
			a.stop()
			a.way.set(func(l *way) { l.cut = true })
			w.in(ttl + time.Second)
			w.led(b)
			if now := b.State().Term; now <= before {
				t.Errorf("term %d after %d", now, before)
			}
		},
		"F47 who is cut off stops before another begins": func(t *testing.T) {
			w := newWorld(t)
			w.joins("a")
			w.joins("b")
			w.in(30 * time.Second)
			a, others := w.leader()
			a.way.set(func(l *way) { l.cut = true })
			w.in(ttl * 3 / 4)
			if len(w.leaders()) > 0 || a.State().Lost != 1 {
				t.Errorf("%+v", a.State())
			}
			w.in(time.Minute)
			w.led(others...)
			a.way.set(func(l *way) { l.cut = false })
			w.in(time.Minute)
			w.led(others...)
			if !a.State().Ready {
				t.Errorf("%+v", a.State())
			}
		},
		"F47 the larger of two ttls counts": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a", func(r *replica) { r.ttl = time.Minute })
			w.in(time.Second)
			b := w.joins("b")
			w.in(time.Second)
			a.stop()
			w.in(50 * time.Second)
			if b.leads() {
				t.Error("b leads before the ttl of a is over")
			}
			w.in(15 * time.Second)
			w.all = w.all[1:]
			w.led(b)
		},
		"a record out of everybody's reach gives no one anything, and nobody is thought dead by it": func(t *testing.T) {
			w := newWorld(t)
			w.joins("a")
			w.joins("b")
			w.in(30 * time.Second)
			a, _ := w.leader()
			before := a.State().Term
			for _, r := range w.all {
				r.way.set(func(l *way) { l.cut = true })
			}
			w.in(10 * time.Minute)
			if s := a.State(); len(w.leaders()) > 0 || s.LastError == "" || s.Lost != 1 || s.Leader != "" {
				t.Errorf("%+v", s)
			}
			for _, r := range w.all {
				r.way.set(func(l *way) { l.cut = false })
			}
			w.in(ttl)
			w.led(a)
			if now := a.State().Term; now != before {
				t.Errorf("term %d, before %d", now, before)
			}
		},
		"A47 who leaves hands over first to who is ready, and is gone then": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Second)
			b := w.joins("b", func(r *replica) { r.slow = 3 * time.Second })
			w.in(time.Minute)
			left, began := make(chan error, 1), time.Now()
			go func() { left <- a.Leave(t.Context()) }()
			w.in(2 * time.Second)
			w.led(b)
			select {
			case err := <-left:
				t.Errorf("it has left before the next leader is ready: %v", err)
			default:
			}
			w.in(10 * time.Second)
			if err := <-left; err != nil || time.Since(began) > 15*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			if s := b.State(); len(s.Members) != 1 || !s.Ready {
				t.Errorf("%+v", s)
			}
		},
		"A47 who leaves leads until a standby is ready": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Second)
			b := w.joins("b", func(r *replica) { r.away.Store(true) })
			w.in(time.Second)
			go func() { _ = a.Leave(t.Context()) }()
			w.in(10 * time.Second)
			w.led(a)
			b.away.Store(false)
			w.in(10 * time.Second)
			w.led(b)
		},
		"A47 a standby leaves at once where the leader is ready": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Second)
			b := w.joins("b")
			w.in(time.Second)
			began := time.Now()
			if err := b.Leave(t.Context()); err != nil || time.Since(began) > time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			w.led(a)
		},
		"A47 who is alone leaves at once, and another leads at once": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Minute)
			began := time.Now()
			if err := a.Leave(t.Context()); err != nil || time.Since(began) > time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			w.in(time.Minute)
			if len(w.leaders()) > 0 {
				t.Error("it leads again")
			}
			b := w.joins("b")
			w.in(10 * time.Millisecond)
			w.led(b)
		},
		"A47 a hand-over to who never gets ready ends with its time": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Second)
			w.joins("b", func(r *replica) { r.away.Store(true) })
			w.in(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := a.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		},
		"a rolling update of three has a leader but for moments": func(t *testing.T) {
			w := newWorld(t)
			old := []*replica{w.joins("a1"), w.joins("b1"), w.joins("c1")}
			w.in(time.Minute)
			for _, r := range old {
				next := w.joins(r.name[:1] + "2")
				w.in(20 * time.Second)
				if !next.State().Ready {
					t.Errorf("%+v", next.State())
				}
				if err := r.Leave(t.Context()); err != nil {
					t.Error(err)
				}
				r.stop()
				w.in(time.Second)
				w.led()
			}
		},
		"an answer that is lost is no licence to go on": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(10 * time.Second)
			a.way.set(func(l *way) { l.lost = true })
			w.joins("b")
			w.in(5 * time.Minute)
			a.way.set(func(l *way) { l.lost = false })
			w.in(time.Minute)
			w.led()
		},
		"what arrives long after it was given up takes nothing from anybody": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.joins("b", func(r *replica) { r.slow = 2 * time.Second })
			w.in(time.Second)
			a.way.set(func(l *way) { l.delay = 1500 * time.Millisecond })
			w.in(20 * time.Second)
			go func() { _ = a.Leave(t.Context()) }()
			w.in(20 * time.Second)
			a.way.set(func(l *way) { l.delay = 0 })
			w.in(time.Minute)
			w.led()
		},
		"a record that was deleted is made anew, and who led leads": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Second)
			b := w.joins("b")
			w.in(time.Minute)
			before := a.State().Term
			w.cell.wipe()
			w.in(time.Minute)
			w.led(a)
			if now := a.State().Term; now < before || !b.State().Ready {
				t.Errorf("term %d after %d: %+v", now, before, b.State())
			}
		},
		"a record that somebody spoiled is made anew, and who led leads": func(t *testing.T) {
			for _, text := range []string{"{", "0", `"gone"`, `{"format":1,"members":[]}`, `{"format":1,"members":{"x":{"ttl_ms":-1}}}`} {
				w := newWorld(t)
				a := w.joins("a")
				w.in(time.Second)
				b := w.joins("b")
				w.in(time.Minute)
				w.cell.spoil(text)
				w.in(time.Minute)
				w.led(a)
				a.stop()
				b.stop()
			}
		},
		"a record of a later version is left alone": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Minute)
			w.cell.spoil(`{"format":2}`)
			w.in(time.Minute)
			if s := a.State(); !strings.Contains(s.LastError, "format 2") || w.cell.text() != `{"format":2}` || a.leads() {
				t.Errorf("%+v", s)
			}
		},
		"V07 a leader that never gets ready lets another lead": func(t *testing.T) {
			w := newWorld(t)
			w.joins("a", func(r *replica) { r.slow = 1e6 * time.Hour })
			w.in(time.Second)
			b := w.joins("b")
			w.in(9 * ttl)
			w.led(b)
		},
		"V07 a leader that loses its target lets one lead that reaches it, and is a standby when it is back": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			w.in(time.Second)
			b, c := w.joins("b"), w.joins("c")
			w.in(time.Minute)
			a.away.Store(true)
			w.in(9 * ttl)
			w.led(b, c)
			a.away.Store(false)
			w.in(10 * time.Minute)
			w.led(b, c)
			if !a.State().Ready {
				t.Errorf("%+v", a.State())
			}
		},
		"V07 who is not ready and alone leads on": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a")
			a.away.Store(true)
			w.in(time.Hour)
			w.led(a)
		},
		"V07 where nobody is ready nothing moves": func(t *testing.T) {
			w := newWorld(t)
			w.joins("a")
			w.joins("b")
			w.in(time.Minute)
			a, _ := w.leader()
			for _, r := range w.all {
				r.away.Store(true)
			}
			w.in(30 * time.Minute) // many times what they are given to get ready
			w.led(a)
		},
		"V07 where all read and nobody can write, the leader changes ever less often": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a", func(r *replica) { r.reads = true })
			w.joins("b", func(r *replica) { r.reads = true })
			w.in(time.Minute)
			before := a.State().Term
			w.in(2 * time.Hour)
			if moved := a.State().Term - before; moved < 2 || moved > 10 {
				t.Errorf("it changed %d times in two hours", moved)
			}
		},
		"a lease counts from before it was asked for": func(t *testing.T) {
			w := newWorld(t)
			asked := time.Now()
			a := w.joins("a", func(r *replica) { r.way.slow = 2 * time.Second })
			w.in(3 * time.Second)
			if until := a.State().Until; until.IsZero() || until.After(asked.Add(ttl*2/3)) {
				t.Errorf("the lease is taken to last %v from when it was asked for, at most %v", until.Sub(asked), ttl*2/3)
			}
		},
	})
}

func TestDiffering(t *testing.T) {
	joined := func(t *testing.T) (w *world, a, b *replica) {
		t.Helper()
		w = newWorld(t)
		a, b = w.joins("a"), w.joins("b")
		a.Configure("old")
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
			b.Configure("old")
			w.in(time.Second)
			expect(t, a, "")
			expect(t, b, "")
		},
		"who reloads another file differs from others until they do": func(t *testing.T) {
			w, a, b := joined(t)
			b.Configure("new")
			w.in(time.Second)
			expect(t, a, "b")
			expect(t, b, "a")
			a.Configure("new")
			w.in(time.Second)
			expect(t, a, "")
			expect(t, b, "")
		},
		"before the record was read anybody may": func(t *testing.T) {
			w := newWorld(t)
			a := w.joins("a", func(r *replica) { r.way.cut = true })
			a.Configure("old")
			w.in(time.Minute)
			if name, differs := a.Differing(); name != "" || !differs {
				t.Errorf("%q, %v", name, differs)
			}
			a.way.set(func(l *way) { l.cut = false })
			w.in(time.Minute)
			expect(t, a, "")
		},
		"who is gone may be back": func(t *testing.T) {
			w, a, b := joined(t)
			b.Configure("new")
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
			c.Configure("new")
			w.in(time.Minute)
			expect(t, c, "a")
		},
	})
}
