package bridge

import (
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A ward is what the removals of one bridge have in common: a guard and a
// share. Leftovers that no bridge is known to have claimed have a ward of
// their own, under the strictest guard of all bridges.
type ward struct {
	name      string
	guard     Guard
	keeps     Policy // the policy that forbids deletions; empty where none does
	ways      []*way // whose knowledge counts
	pending   map[*surplus]struct{}
	balance   balance
	missing   missing
	unclaimed bool        // of what nobody is known to have claimed
	base      size        // what there was when nothing had been found missing; what came since is no reason to let more go
	now       func() size // what there is
}

func newWard(w *way, now func() size) *ward {
	b := &ward{name: w.Name, guard: w.Guard, ways: []*way{w}, pending: make(map[*surplus]struct{}), now: now}
	if w.Policy != PolicySync {
		b.keeps = w.Policy
	}
	return b
}

// strictest returns the ward of what nobody is known to have claimed.
func strictest(ways []*way, now func() size) *ward {
	b := newWard(ways[0], now)
	b.name, b.ways, b.unclaimed = "", ways, true
	if len(ways) == 1 {
		b.name = ways[0].Name
	}
	for _, w := range ways[1:] {
		b.guard = b.guard.stricter(w.Guard)
		if w.Policy != PolicySync {
			b.keeps = w.Policy
		}
	}
	return b
}

// stricter returns the guard that holds whatever one of the two would hold.
func (g Guard) stricter(o Guard) Guard {
	rank := map[Mode]int{GuardOff: 0, GuardWarn: 1, GuardEnforce: 2}
	if rank[o.Mode] > rank[g.Mode] {
		g.Mode = o.Mode
	}
	if g.Share == 0 || o.Share > 0 && o.Share < g.Share {
		g.Share = o.Share
	}
	if g.Confirm != 0 {
		g.Confirm = max(g.Confirm, o.Confirm)
	}
	if o.Confirm == 0 {
		g.Confirm = 0
	}
	g.Window = max(g.Window, o.Window)
	g.LastEndpoint = max(g.LastEndpoint, o.LastEndpoint)
	g.Settle = max(g.Settle, o.Settle)
	return g
}

// settles returns when a leftover has waited long enough.
func (b *ward) settles(s *surplus, now time.Time) time.Time {
	start := s.since
	for _, w := range b.ways {
		start = later(start, w.fresh)
	}
	return start.Add(b.patience(s, now))
}

// patience returns how long a leftover waits. What stands for a group itself
// waits for as long as a loss counts: a source that begins cannot tell a
// service that has no endpoint for a moment from one that is no more, and it is
// where the next one is looked for (V28).
func (b *ward) patience(s *surplus, now time.Time) time.Duration {
	wait := b.settle(now)
	if wait > 0 && s.Key == registry.HeadKey {
		return max(wait, b.guard.Window)
	}
	return wait
}

// settle returns how long a leftover waits.
func (b *ward) settle(now time.Time) time.Duration {
	if b.guard.Settle == 0 {
		return 0
	}
	return b.missing.settle(b.guard.Settle, now)
}

// total returns what there is and what there was beside it.
func (b *ward) total(now time.Time) (size, losses) {
	lost, is := b.balance.lost(b.guard.Window, now), b.now()
	return size{is.services + lost.was.services, is.endpoints + lost.was.endpoints}, lost
}

// excess says why the removals that are pending are too many, empty where
// they are not.
func (b *ward) excess(now time.Time) string {
	total, lost := b.total(now)
	return b.guard.excess(lost, b.base.least(total))
}

// least returns the smaller of two sizes, of which an empty one is none.
func (s size) least(o size) size {
	if s == (size{}) {
		return o
	}
	return size{min(s.services, o.services), min(s.endpoints, o.endpoints)}
}

// grow takes what there is for what there was, unless something is missing. What
// settles does so within the window, so that what is missing for longer than
// twice that cannot be judged, and may not be for days.
func (b *ward) grow(now time.Time) {
	for s := range b.pending {
		if s.leftover() && now.Sub(s.since) < 2*b.guard.Window {
			return
		}
	}
	b.base, _ = b.total(now)
}

// saw adds what a group held when it was read first to what there was.
func (b *ward) saw(endpoints int) {
	if endpoints > 0 {
		b.base = b.base.add(size{1, endpoints})
	}
}

// permit lets a removal go.
func (b *ward) permit(s *surplus) {
	s.permitted = true
	delete(b.pending, s)
}

func (l *loop) ward(s *surplus) *ward {
	if s.Known {
		return l.wards[s.Origin.Bridge]
	}
	return l.strict
}
