package bridge

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// publishEvery is how often Summary gets new numbers at most.
const publishEvery = 100 * time.Millisecond

// reasons is how many ranks there are, see Reason.rank.
const reasons = 15

// A tally counts services by their reason as things change, so that nobody has
// to look at all of them to say how the loop stands. Services that are synced
// are in none of its maps.
type tally struct {
	found     map[plan.Origin]map[*item]int // the rank that groups give a service, which need not claim there any more
	reason    map[plan.Origin]Reason
	counts    [][reasons]int // services by bridge and rank, without those that are synced
	conflicts int
	moved     map[plan.Origin]struct{} // services whose reason has to be looked at again
}

// A share is what a group says of a service.
type share struct {
	origin plan.Origin
	rank   int
}

func newTally(bridges int) *tally {
	return &tally{
		found: make(map[plan.Origin]map[*item]int), reason: make(map[plan.Origin]Reason),
		counts: make([][reasons]int, bridges), moved: make(map[plan.Origin]struct{}),
	}
}

// replace takes in what a group says of services in place of what it said.
func (t *tally) replace(it *item, now []share) {
	for _, s := range it.shares {
		t.moved[s.origin] = struct{}{}
		delete(t.found[s.origin], it)
		if len(t.found[s.origin]) == 0 {
			delete(t.found, s.origin)
		}
	}
	for _, s := range now {
		t.moved[s.origin] = struct{}{}
		if t.found[s.origin] == nil {
			t.found[s.origin] = make(map[*item]int, 1)
		}
		t.found[s.origin][it] = s.rank
	}
	it.shares = now
}

// set notes the reason of a service, empty where there is no such service.
func (t *tally) set(origin plan.Origin, r Reason) {
	if before := t.reason[origin]; before != "" {
		t.counts[origin.Bridge][before.rank()]--
	}
	if r == "" || r == ReasonSynced {
		delete(t.reason, origin)
		return
	}
	t.reason[origin] = r
	t.counts[origin.Bridge][r.rank()]++
}

// recount brings the tally up to date with all that changed since the last
// time.
func (v *view) recount() {
	for _, it := range v.agenda.stirred {
		it.stirred = false
		v.rate(it)
	}
	v.agenda.stirred = nil
	for _, w := range v.ways {
		for name := range w.moved {
			v.tally.moved[plan.Origin{Bridge: w.index, Service: name}] = struct{}{}
		}
		w.moved = make(map[registry.Name]struct{})
	}
	for origin := range v.tally.moved {
		v.tally.set(origin, v.reason(origin))
	}
	v.tally.moved = make(map[plan.Origin]struct{})
}

// rate takes in what a group says by now of those who claim in it.
func (v *view) rate(it *item) {
	now, conflicts := v.shares(it)
	v.tally.conflicts += conflicts - it.conflicts
	it.conflicts = conflicts
	if !slices.Equal(now, it.shares) {
		v.tally.replace(it, now)
	}
}

// shares returns what a group says of services, as far as that is more than
// that they are synced, and how many conflicts there are in it.
func (v *view) shares(it *item) (shares []share, conflicts int) {
	if v.agenda.items[it.group] != it || it.group.IsZero() {
		return nil, 0
	}
	state, _ := v.finding(it)
	if state != ReasonSynced {
		for origin := range v.planner.Claimants(it.group) {
			shares = append(shares, share{origin, state.rank()})
		}
	}
	for _, n := range it.notes {
		if n.conflict != nil {
			conflicts++
		}
		if n.known {
			shares = append(shares, share{n.origin, max(n.reason.rank(), state.rank())})
		}
	}
	if len(it.notes) > 0 { // who claims may have notes, too
		slices.SortFunc(shares, func(a, b share) int { return cmp.Or(a.origin.Compare(b.origin), b.rank-a.rank) })
		shares = slices.CompactFunc(shares, func(a, b share) bool { return a.origin == b.origin })
	}
	return shares, conflicts
}

// reason returns the reason of a service, empty where there is no such.
func (v *view) reason(origin plan.Origin) Reason {
	w := v.ways[origin.Bridge]
	s := w.services[origin.Service]
	if s == nil {
		return ""
	}
	worst := cmp.Or(s.reason, ReasonSynced)
	if w.unknown(origin.Service) != nil {
		worst = worse(worst, ReasonUnknown)
	}
	rank := worst.rank()
	for _, found := range v.tally.found[origin] {
		rank = max(rank, found)
	}
	return ranked()[rank]
}

func worse(a, b Reason) Reason {
	if b.rank() > a.rank() {
		return b
	}
	return a
}

// ranked returns the reasons from the best to the worst.
func ranked() [reasons]Reason {
	return [...]Reason{
		"", ReasonSynced, ReasonStandby, ReasonEmpty, ReasonExcluded, ReasonReadOnly, ReasonPending, ReasonWaiting,
		ReasonKept, ReasonUnknown, ReasonHeld, ReasonConflict, ReasonInvalid, ReasonRetrying, ReasonRefused,
	}
}

// rank returns how bad a reason is.
func (r Reason) rank() int {
	all := ranked()
	return slices.Index(all[:], r)
}

// byReason returns how many services of a bridge there are of each reason.
func (v *view) byReason(w *way) map[Reason]int {
	synced, out := len(w.services), make(map[Reason]int)
	for rank, n := range v.tally.counts[w.index] {
		if n > 0 {
			out[ranked()[rank]] = n
			synced -= n
		}
	}
	switch {
	case synced == 0:
	case v.listed == nil: // nothing is known to be written
		out[ReasonPending] += synced
	default:
		out[ReasonSynced] = synced
	}
	return out
}

// moveScopes makes the services be looked at again that scopes cover.
func (w *way) moveScopes(scopes map[string]struct{}) {
	wide := false
	for scope := range scopes {
		w.move(registry.Name(scope))
		wide = wide || scope[max(0, len(scope)-1):] == "*"
	}
	if !wide {
		return
	}
	for name := range w.services {
		if _, covered := registry.Covering(scopes, name); covered {
			w.move(name)
		}
	}
}

// move makes a service be looked at again.
func (w *way) move(name registry.Name) { w.moved[name] = struct{}{} }

// A board is what the loop shows to whoever cannot wait for it.
type board struct {
	mu   sync.Mutex
	head Status
}

func (b *board) show(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.head = s
}

// publish shows how the loop stands, unless it did a moment ago. It returns
// when it has to be called again; the zero time where only an event helps.
func (v *view) publish(now time.Time) time.Time {
	if at := v.published.Add(publishEvery); now.Before(at) {
		return at
	}
	v.published = now
	s := v.head(now)
	v.board.show(s)
	if !v.inSync && s.InSync() && s.Counts.Holds == 0 {
		v.inSync = true
		v.opts.Log.Info("in sync", "target", v.opts.Target, "entries", s.Owned)
	}
	return time.Time{}
}
