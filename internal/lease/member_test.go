package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/lease"
)

func TestReplicas(t *testing.T) {
	worlds(t, map[string]func(*testing.T){
		"one alone decides everything at once": func(t *testing.T) {
			w := newWorld(t, 16)
			a := w.joins("a")
			w.in(10 * time.Millisecond)
			w.has(map[*replica][2]int{a: {16, 0}})
			w.in(time.Hour)
			w.has(map[*replica][2]int{a: {16, 0}})
		},
		"A46 several share evenly, and each shard is warm on another": func(t *testing.T) {
			w := newWorld(t, 16)
			a := w.joins("a")
			w.in(time.Second)
			b := w.joins("b")
			w.in(30 * time.Second)
			w.decided()
			w.has(map[*replica][2]int{a: {8, 8}, b: {8, 8}})
			c := w.joins("c")
			w.in(time.Minute)
			w.decided()
			for _, r := range []*replica{a, b, c} {
				if d, warm := r.count(bridge.RoleDecider), r.count(bridge.RoleWarm); d < 5 || d > 6 || warm < 5 || warm > 6 {
					t.Errorf("%s decides %d and keeps %d warm: %+v", r.name, d, warm, r.Status())
				}
			}
			before := a.Status()
			w.in(10 * time.Minute)
			for i, s := range a.Status().Shards {
				if s.Decider != before.Shards[i].Decider || s.Warm != before.Shards[i].Warm {
					t.Errorf("shard %d moved although nobody came or went", i)
				}
			}
		},
		"A46 who is killed is replaced within the ttl, by who kept warm": func(t *testing.T) {
			w := newWorld(t, 8)
			a := w.joins("a")
			b := w.joins("b")
			w.in(30 * time.Second)
			began := time.Now()
			a.stop()
			a.link.set(func(l *link) { l.cut = true })
			for b.count(bridge.RoleDecider) < 8 {
				w.in(100 * time.Millisecond)
				if time.Since(began) > ttl+time.Second {
					t.Fatalf("not taken over %s", at(began))
				}
			}
			w.in(time.Minute)
			w.has(map[*replica][2]int{b: {8, 0}})
		},
		"F47 who is cut off stops before another begins": func(t *testing.T) {
			w := newWorld(t, 8)
			a, b := w.joins("a"), w.joins("b")
			w.in(30 * time.Second)
			a.link.set(func(l *link) { l.cut = true })
			w.in(ttl * 3 / 4)
			w.has(map[*replica][2]int{a: {0, 8}})
			w.in(time.Minute)
			w.has(map[*replica][2]int{b: {8, 0}})
			a.link.set(func(l *link) { l.cut = false })
			w.in(time.Minute)
			w.decided()
			w.has(map[*replica][2]int{a: {4, 4}, b: {4, 4}})
		},
		"a record out of everybody's reach gives no one anything, and nobody is thought dead by it": func(t *testing.T) {
			w := newWorld(t, 8)
			a, b := w.joins("a"), w.joins("b")
			w.in(30 * time.Second)
			before := a.Status().Shards
			for _, r := range w.all {
				r.link.set(func(l *link) { l.cut = true })
			}
			w.in(10 * time.Minute)
			if a.count(bridge.RoleDecider)+b.count(bridge.RoleDecider) > 0 {
				t.Error("somebody decides without a lease")
			}
			if s := a.Status(); s.LastError == "" || s.Lost != 1 {
				t.Errorf("%+v", s)
			}
			for _, r := range w.all {
				r.link.set(func(l *link) { l.cut = false })
			}
			w.in(ttl)
			w.decided()
			for i, s := range a.Status().Shards {
				if s.Term != before[i].Term {
					t.Errorf("shard %d changed hands", i)
				}
			}
		},
		"A47 who leaves hands over first to who is ready, and is gone then": func(t *testing.T) {
			w := newWorld(t, 8)
			a, b := w.joins("a"), w.joins("b", func(r *replica) { r.slow = 3 * time.Second })
			w.in(time.Minute)
			left := make(chan error, 1)
			began := time.Now()
			go func() { left <- a.Leave(t.Context()) }()
			w.in(time.Second)
			if a.count(bridge.RoleWarm) != 4 {
				t.Errorf("it publishes %d shards until the other is ready, want 4", a.count(bridge.RoleWarm))
			}
			w.in(10 * time.Second)
			select {
			case err := <-left:
				if err != nil || time.Since(began) < 3*time.Second {
					t.Errorf("%s: %v", at(began), err)
				}
			default:
				t.Error("it does not end")
			}
			w.has(map[*replica][2]int{a: {0, 0}, b: {8, 0}})
		},
		"A47 who is alone leaves at once": func(t *testing.T) {
			w := newWorld(t, 8)
			a := w.joins("a")
			w.in(time.Minute)
			began := time.Now()
			if err := a.Leave(t.Context()); err != nil || time.Since(began) > time.Second {
				t.Errorf("%s: %v", at(began), err)
			}
			b := w.joins("b")
			w.in(10 * time.Millisecond)
			w.has(map[*replica][2]int{b: {8, 0}})
		},
		"A47 a hand-over to who never gets ready ends with its time": func(t *testing.T) {
			w := newWorld(t, 8)
			a := w.joins("a")
			w.joins("b", func(r *replica) { r.slow = time.Hour })
			w.in(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := a.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		},
		"a rolling update of three keeps every shard decided but for moments": func(t *testing.T) {
			w := newWorld(t, 16)
			old := []*replica{w.joins("a1"), w.joins("b1"), w.joins("c1")}
			w.in(time.Minute)
			for _, r := range old {
				next := w.joins(r.name[:1] + "2")
				w.in(20 * time.Second)
				if next.count(bridge.RoleDecider)+next.count(bridge.RoleWarm) == 0 {
					t.Error("the new one has no part")
				}
				if err := r.Leave(t.Context()); err != nil {
					t.Error(err)
				}
				r.stop()
				w.in(time.Second)
				w.decided()
			}
		},
		"an answer that is lost is no licence to go on": func(t *testing.T) {
			w := newWorld(t, 8)
			a := w.joins("a")
			w.in(10 * time.Second)
			a.link.set(func(l *link) { l.lost = true })
			w.joins("b")
			w.in(5 * time.Minute)
			a.link.set(func(l *link) { l.lost = false })
			w.in(time.Minute)
			w.decided()
		},
		"what arrives long after it was given up takes nothing from anybody": func(t *testing.T) {
			w := newWorld(t, 8)
			a := w.joins("a")
			b := w.joins("b", func(r *replica) { r.slow = 2 * time.Second })
			w.in(time.Second)
			a.link.set(func(l *link) { l.delay = 1500 * time.Millisecond })
			w.in(20 * time.Second)
			a.link.set(func(l *link) { l.delay = 0 })
			w.in(time.Minute)
			w.decided()
			w.has(map[*replica][2]int{a: {4, 4}, b: {4, 4}})
		},
		"a record that was deleted is made anew, with terms above the old ones": func(t *testing.T) {
			w := newWorld(t, 4)
			a := w.joins("a")
			w.in(time.Minute)
			before := a.gate.Stand(0).Term
			w.cell.wipe()
			w.in(time.Minute)
			w.decided()
			if now := a.gate.Stand(0).Term; now <= before {
				t.Errorf("term %d after %d", now, before)
			}
		},
		"another number of shards takes no part": func(t *testing.T) {
			w := newWorld(t, 8)
			a := w.joins("a")
			w.in(time.Second)
			other := &world{t: t, shards: 16, cell: w.cell}
			b := other.joins("b")
			w.in(time.Minute)
			if s := b.Status(); !strings.Contains(s.LastError, "replicas.shards") || s.Joined {
				t.Errorf("%+v", s)
			}
			w.has(map[*replica][2]int{a: {8, 0}})
		},
		"V92 another number of shards counts once all replicas have ended": func(t *testing.T) {
			w := newWorld(t, 4)
			a := w.joins("a")
			w.in(5 * time.Second)
			before := a.gate.Stand(3).Term
			if err := a.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			a.stop()
			other := &world{t: t, shards: 8, cell: w.cell}
			b := other.joins("b")
			other.in(time.Second)
			other.has(map[*replica][2]int{b: {8, 0}})
			if now := b.gate.Stand(3).Term; now <= before {
				t.Errorf("term %d after %d", now, before)
			}
		},
		"V92 another number of shards counts once those that were killed have been silent for the ttl": func(t *testing.T) {
			w := newWorld(t, 8)
			a := w.joins("a")
			w.in(5 * time.Second)
			a.stop()
			other := &world{t: t, shards: 4, cell: w.cell}
			b := other.joins("b")
			other.in(ttl - time.Second)
			other.has(map[*replica][2]int{b: {0, 0}})
			other.in(3 * time.Second)
			other.has(map[*replica][2]int{b: {4, 0}})
		},
		"V07 who never gets ready loses its shards to who is": func(t *testing.T) {
			w := newWorld(t, 16)
			a := w.joins("a", func(r *replica) { r.slow = 1e6 * time.Hour })
			b := w.joins("b")
			w.in(9 * ttl)
			w.has(map[*replica][2]int{a: {0, 16}, b: {16, 0}})
		},
		"V07 who loses its target loses its shards to who reaches it, and has its part again when it is back": func(t *testing.T) {
			w := newWorld(t, 16)
			a, b, c := w.joins("a"), w.joins("b"), w.joins("c")
			w.in(time.Minute)
			a.away.Store(true)
			w.in(9 * ttl)
			w.decided()
			if a.count(bridge.RoleDecider) != 0 || b.count(bridge.RoleDecider) != 8 || c.count(bridge.RoleDecider) != 8 {
				t.Errorf("%+v", a.Status())
			}
			a.away.Store(false)
			w.in(10 * time.Minute)
			w.decided()
			for _, r := range w.all {
				if n := r.count(bridge.RoleDecider); n < 5 || n > 6 {
					t.Errorf("%s decides %d of 16", r.name, n)
				}
			}
		},
		"V07 who is not ready and alone keeps what it has": func(t *testing.T) {
			w := newWorld(t, 4)
			a := w.joins("a")
			a.away.Store(true)
			w.in(time.Hour)
			w.has(map[*replica][2]int{a: {4, 0}})
		},
		"V07 where nobody is ready nothing moves": func(t *testing.T) {
			w := newWorld(t, 16)
			a, _ := w.joins("a"), w.joins("b")
			w.in(time.Minute)
			before := a.Status().Shards
			for _, r := range w.all {
				r.away.Store(true)
			}
			w.in(30 * time.Minute) // many times what they are given to get ready
			for i, s := range a.Status().Shards {
				if s.Term != before[i].Term {
					t.Errorf("shard %d went from %s to %s", i, before[i].Decider, s.Decider)
				}
			}
		},
		"V07 where all read and nobody can write, shards move ever less often": func(t *testing.T) {
			w := newWorld(t, 4)
			a, _ := w.joins("a", func(r *replica) { r.reads = true }), w.joins("b", func(r *replica) { r.reads = true })
			w.in(time.Minute)
			before := a.Status().Shards
			w.in(2 * time.Hour)
			for i, s := range a.Status().Shards {
				if moved := s.Term - before[i].Term; moved > 10 {
					t.Errorf("shard %d moved %d times in two hours", i, moved)
				}
			}
		},
		"a lease counts from before it was asked for": func(t *testing.T) {
			w := newWorld(t, 1)
			asked := time.Now()
			a := w.joins("a", func(r *replica) { r.link.slow = 2 * time.Second })
			w.in(3 * time.Second)
			if until := a.Status().Until; until.IsZero() || until.After(asked.Add(ttl*2/3)) {
				t.Errorf("the lease is taken to last %v from when it was asked for, at most %v", until.Sub(asked), ttl*2/3)
			}
		},
		"a record of another format is left alone": func(t *testing.T) {
			w := newWorld(t, 8)
			w.cell.data, w.cell.version = []byte(`{"format":2}`), 1
			a := w.joins("a")
			w.in(time.Minute)
			if s := a.Status(); !strings.Contains(s.LastError, "format 2") || string(w.cell.data) != `{"format":2}` {
				t.Errorf("%+v", s)
			}
		},
	})
}

func TestOptions(t *testing.T) {
	store := &link{}
	for name, o := range map[string]lease.Options{
		"no store":         {Identity: "a", Shards: 1, TTL: ttl},
		"no identity":      {Store: store, Shards: 1, TTL: ttl},
		"no shards":        {Store: store, Identity: "a", TTL: ttl},
		"too many shards":  {Store: store, Identity: "a", Shards: 257, TTL: ttl},
		"a ttl of nothing": {Store: store, Identity: "a", Shards: 1},
	} {
		if _, err := lease.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
