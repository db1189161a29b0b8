package bridge

import (
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// What a guard judges by is what services have lost on balance: how many
// endpoints fewer a group has than it had. An endpoint that is replaced is no
// loss, nor is one that flaps while it is there.

// A size is how much a bridge has, or had.
type size struct{ services, endpoints int }

// A balance is what the groups of one guard have lost within its window, and
// before it as far as the guard has not judged that yet.
type balance struct {
	unjudged func(registry.Group) int    // endpoints that the target still holds, nobody claims and nothing was decided about
	deficits map[registry.Group]*deficit // of groups that lost something
	sum      losses
	stale    bool      // the sum has to be made anew
	next     time.Time // when the first deficit is over
}

func (s size) add(o size) size { return size{s.services + o.services, s.endpoints + o.endpoints} }

// losses sum deficits up.
type losses struct {
	size       // what is gone or about to go, as far as it counts
	was   size // what the same groups had beside what is claimed
	found bool // some of it was not withdrawn, but found missing
}

// A deficit is what one group lost.
type deficit struct {
	had   int       // endpoints, before
	has   int       // endpoints that are claimed
	kept  int       // that are not, and are held
	low   int       // the least of has and kept
	since time.Time // of low
	found bool      // some of it was not withdrawn, but found missing
}

func (t *deficit) lost() int { return max(0, t.had-t.has-t.kept) }

// spare returns how many of those held have been replaced.
func (t *deficit) spare() int { return min(t.kept, max(0, t.has+t.kept-t.had)) }

// counts returns how much of a loss counts: none of what a source withdraws
// from a service that keeps half of what it had.
func (t *deficit) counts() int {
	if lost := t.lost(); t.found || 2*lost > t.had {
		return lost
	}
	return 0
}

// change takes in how many endpoints of a group are claimed, and how that is
// known.
func (b *balance) change(group registry.Group, before, after int, found bool, now time.Time) {
	t := b.deficits[group]
	if t == nil {
		if after >= before {
			return
		}
		if b.deficits == nil {
			b.deficits = make(map[registry.Group]*deficit)
		}
		t = &deficit{had: before, low: before}
		b.deficits[group] = t
	}
	t.has = after
	t.found = t.found || found && after < before
	b.update(group, t, now)
}

// keep takes in that n more endpoints of a group are held, or fewer.
func (b *balance) keep(group registry.Group, n int, now time.Time) {
	if t := b.deficits[group]; t != nil {
		t.kept = max(0, t.kept+n)
		b.update(group, t, now)
	}
}

func (b *balance) update(group registry.Group, t *deficit, now time.Time) {
	b.stale = true
	level := t.has + t.kept
	if level < t.low {
		t.low, t.since = level, now
	}
	if level >= t.had && t.kept == 0 {
		delete(b.deficits, group)
	}
}

// lost returns what was lost within the window, and forgets what is older. What
// is still to be judged is not over, however long a registry was away.
func (b *balance) lost(window time.Duration, now time.Time) losses {
	if !b.stale && (b.next.IsZero() || now.Before(b.next)) {
		return b.sum
	}
	b.sum, b.stale, b.next = losses{}, false, time.Time{}
	for group, t := range b.deficits {
		over := t.since.Add(window)
		if !now.Before(over) {
			if !b.forget(group, t) {
				continue
			}
			t.since, over = now, now.Add(window)
		}
		b.next = soonest(b.next, over)
		b.sum.add(t)
	}
	return b.sum
}

func (s *losses) add(t *deficit) {
	s.was.endpoints += t.had - min(t.had, t.has)
	if t.has == 0 {
		s.was.services++
	}
	s.endpoints += t.counts()
	if t.has+t.kept == 0 {
		s.services++
	}
	s.found = s.found || t.found && t.lost() > 0
}

// forgive makes what there is by now what there was, but for what is still to be
// judged: whoever vouches for one hold says nothing of what was lost beside it.
func (b *balance) forgive() {
	for group, t := range b.deficits {
		b.forget(group, t)
	}
	b.stale = true
}

// forget makes what a group has what it had, and reports whether it lost more
// that is still to be judged.
func (b *balance) forget(group registry.Group, t *deficit) bool {
	level := t.has + t.kept
	t.had, t.low = min(t.had, level+b.unjudged(group)), min(t.low, level)
	if t.had > level {
		return true
	}
	t.low, t.found = level, false
	if t.kept == 0 {
		delete(b.deficits, group)
	}
	return false
}

// excess says why losses are more than a guard lets go, empty where they are
// not. A few endpoints that a source withdraws may always go, while others of
// their service stay.
func (g Guard) excess(lost losses, base size) string {
	switch {
	case g.Share == 0:
	case lost.services > 0 && float64(lost.services) > g.Share*float64(base.services):
		return fmt.Sprintf("%d of %d services would have no endpoint left", lost.services, base.services)
	case !lost.found && lost.endpoints <= g.AtLeast:
	case float64(lost.endpoints) > g.Share*float64(base.endpoints):
		return fmt.Sprintf("%d of %d endpoints would be gone within %s", lost.endpoints, base.endpoints, g.Window)
	}
	return ""
}
