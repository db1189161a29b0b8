package bridge

import (
	"fmt"
	"time"
)

// A ward is what the removals of one bridge have in common: a guard and a
// share. Leftovers that no bridge is known to have claimed have a ward of
// their own, under the strictest guard of all bridges.
type ward struct {
	name    string
	guard   Guard
	keeps   Policy // the policy that forbids deletions; empty where none does
	ways    []*way // whose knowledge counts
	pending map[*surplus]struct{}
	held    int
	missing missing    // what was removed and did not come back
	others  withdrawn  // what the source withdrew in groups that other replicas decide, likewise
	entries func() int // claimed, or owned
}

func newWard(w *way, entries func() int) *ward {
	b := &ward{name: w.Name, guard: w.Guard, ways: []*way{w}, pending: make(map[*surplus]struct{}), entries: entries}
	if w.Policy != PolicySync {
		b.keeps = w.Policy
	}
	return b
}

// strictest returns the ward of what nobody is known to have claimed.
func strictest(ways []*way, entries func() int) *ward {
	b := newWard(ways[0], entries)
	b.name, b.ways = "", ways
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
	switch {
	case g.Share == 0:
		g.Share, g.AtLeast = o.Share, o.AtLeast
	case o.Share > 0:
		g.Share, g.AtLeast = min(g.Share, o.Share), min(g.AtLeast, o.AtLeast)
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
func (b *ward) settles(s *surplus) time.Time {
	start := s.since
	for _, w := range b.ways {
		start = later(start, w.fresh)
	}
	return start.Add(b.guard.Settle)
}

// excess says why the removals that are pending are too many, empty where
// they are not.
func (b *ward) excess(now time.Time) string {
	if b.guard.Share == 0 {
		return ""
	}
	gone := b.missing.within(b.guard.Window, now) + b.others.within(b.guard.Window, now)
	removals := gone + len(b.pending)
	base := b.entries() + gone
	if removals <= b.guard.AtLeast || float64(removals) <= b.guard.Share*float64(base) {
		return ""
	}
	return fmt.Sprintf("%d of %d entries would go within %s", removals, base, b.guard.Window)
}

func (l *loop) ward(s *surplus) *ward {
	if s.Known {
		return l.wards[s.Origin.Bridge]
	}
	return l.strict
}
