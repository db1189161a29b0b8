package bridge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A note is what is left undone in a group, for whom and why.
type note struct {
	origin   plan.Origin
	known    bool // somebody is known to have claimed it
	reason   Reason
	detail   string
	conflict *plan.Conflict
	entries  int
}

// permit returns the change a group needs, less what policies and guards do
// not permit, and notes what that is.
func (l *loop) permit(it *item, now time.Time) registry.Change {
	change, conflicts := l.planner.Change(it.group)
	before := it.notes
	it.notes, it.wakeAt = nil, time.Time{}
	for i := range conflicts {
		l.conflict(it, before, &conflicts[i])
	}
	it.yields(conflicts, now)
	change = l.permitPuts(it, change)
	if next, succeeds := l.successor(it, change); succeeds {
		return l.permitSuccession(it, next, change, now)
	}
	return l.permitDeletes(it, change, now)
}

// successor returns who would have an exclusive group after another whose last
// endpoints have just gone.
func (l *loop) successor(it *item, change registry.Change) (next plan.Origin, succeeds bool) {
	if !it.group.Exclusive {
		return next, false
	}
	puts := slices.DeleteFunc(slices.Clone(change.Put), func(w registry.Write) bool { return w.Old != nil || !registry.IsEndpoint(w.New.Key) })
	wanted := slices.DeleteFunc(slices.Clone(change.Want), func(e registry.Entry) bool { return !registry.IsEndpoint(e.Key) })
	if len(puts) == 0 || len(puts) < len(wanted) {
		return next, false // it has it already
	}
	next, _ = l.planner.Winner(it.group, puts[0].New.Key)
	for _, o := range it.orphans {
		succeeds = succeeds || o.Known && registry.IsEndpoint(o.Key) && o.Origin != next
	}
	return next, succeeds
}

// permitSuccession returns the whole change or nothing: two services that have
// one host mean different things, so that who called the one is sent to the
// other no sooner than an endpoint would go that is the last.
func (l *loop) permitSuccession(it *item, next plan.Origin, change registry.Change, now time.Time) registry.Change {
	permitted := l.permitDeletes(it, change, now)
	if endpoints(permitted.Delete) == endpoints(change.Delete) {
		return permitted
	}
	it.note(note{origin: next, known: true, reason: ReasonWaiting, detail: "another service has the host until its last endpoint goes"})
	return registry.Change{Group: it.group}
}

// conflict notes a claim that cannot be honoured, and logs it the first time.
func (l *loop) conflict(it *item, before []note, c *plan.Conflict) {
	n := note{origin: c.Origin, known: true, reason: ReasonConflict, conflict: c, entries: 1}
	n.detail = c.Key + " belongs to " + l.winner(*c)
	it.notes = append(it.notes, n)
	if slices.ContainsFunc(before, func(o note) bool { return o.conflict != nil && *o.conflict == *c }) {
		return
	}
	bridge := l.ways[c.Origin.Bridge].Name
	l.observe(Observation{Kind: ObservedConflict, Bridge: bridge, Count: 1})
	l.tell(Event{
		Kind: EventConflict, Bridge: bridge, Subject: it.group.String(), What: "claim to " + c.Key + " refused",
		Why: "it belongs to " + l.winner(*c), Release: "the other entry goes, or adopt takes it over",
	})
	level := l.opts.Log.Debug
	if now := time.Now(); now.Sub(l.refusedAt) >= l.opts.Retry.Max { // the first of many; status and events have all
		level, l.refusedAt = l.opts.Log.Warn, now
	}
	level("claim refused", "bridge", bridge, "service", c.Origin.Service,
		"group", it.group.String(), "key", c.Key, "winner", l.winner(*c))
}

// yields notes since when entries of others are in the way of claims.
func (it *item) yields(conflicts []plan.Conflict, now time.Time) {
	switch {
	case !slices.ContainsFunc(conflicts, func(c plan.Conflict) bool { return !c.Ours }):
		it.yielded = time.Time{}
	case it.yielded.IsZero():
		it.yielded = now
	}
}

// winner names who has what a conflict is about.
func (l *loop) winner(c plan.Conflict) string {
	switch {
	case c.Ours:
		return fmt.Sprintf("bridge %s, service %s", l.ways[c.Rival.Bridge].Name, c.Rival.Service)
	case c.Owner == "":
		return "an entry without owner"
	}
	return "owner mark:" + c.Owner // as adopt, release and purge take it
}

// permitPuts leaves out the writes that the policies of their bridges forbid.
func (l *loop) permitPuts(it *item, change registry.Change) registry.Change {
	if !slices.ContainsFunc(l.ways, func(w *way) bool { return w.Policy == PolicyReadOnly || w.Policy == PolicyCreateOnly }) {
		return change
	}
	return change.KeepPuts(func(w registry.Write) bool {
		origin, _ := l.planner.Winner(it.group, w.New.Key)
		policy := l.ways[origin.Bridge].Policy
		update := w.Old != nil && w.Old.Value != w.New.Value
		if policy != PolicyReadOnly && (policy != PolicyCreateOnly || !update) {
			return true
		}
		it.note(note{origin: origin, known: true, reason: ReasonReadOnly, detail: "policy " + string(policy) + " forbids the write"})
		return false
	})
}

// permitDeletes leaves out the deletions that have to wait.
func (l *loop) permitDeletes(it *item, change registry.Change, now time.Time) registry.Change {
	if len(change.Delete) == 0 {
		return change
	}
	kept := change.Keep(func(h registry.Held) bool {
		o := it.orphans[h.Key]
		switch {
		case o == nil && l.replaces(change, h):
			return l.mayReplace(it, h, now)
		case o == nil:
			return l.mayDisplace(it, h)
		}
		v := l.judge(o, now)
		if v.reason == "" {
			return true
		}
		it.note(note{origin: o.Origin, known: o.Known, reason: v.reason, detail: v.detail})
		it.wakeAt = soonest(it.wakeAt, v.at)
		return false
	})
	if hasEndpoint(kept.Want) {
		kept = kept.Keep(func(h registry.Held) bool { return h.Key != registry.HeadKey })
	}
	if endpoints(kept.Delete) < endpoints(change.Delete) { // one that stays needs what it refers to
		kept = kept.Keep(func(h registry.Held) bool { return !registry.IsPart(h.Key) })
	}
	return kept
}

// hasEndpoint reports whether an endpoint is among entries.
func hasEndpoint(entries []registry.Entry) bool {
	return slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) })
}

// endpoints returns how many endpoints are held.
func endpoints(list []registry.Held) (n int) {
	for _, h := range list {
		if registry.IsEndpoint(h.Key) {
			n++
		}
	}
	return n
}

// mayDisplace reports whether an entry of ours may go whose key stays: there
// is another of ours under it, or a foreign one that wins.
func (l *loop) mayDisplace(it *item, h registry.Held) bool {
	origin, ok := l.planner.Winner(it.group, h.Key)
	if ok && l.ways[origin.Bridge].Policy == PolicySync {
		return true
	}
	it.note(note{origin: origin, known: ok, reason: ReasonReadOnly, detail: "the policy forbids the deletion"})
	return false
}

// note adds a note, or counts it in one that says the same.
func (it *item) note(n note) {
	for i := range it.notes {
		o := &it.notes[i]
		if o.conflict == nil && o.origin == n.origin && o.known == n.known && o.reason == n.reason && o.detail == n.detail {
			o.entries++
			return
		}
	}
	n.entries = 1
	it.notes = append(it.notes, n)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K comparable, V any](m map[K]V, less func(a, b K) bool) []K {
	return slices.SortedFunc(maps.Keys(m), func(a, b K) int {
		switch {
		case less(a, b):
			return -1
		case less(b, a):
			return +1
		}
		return 0
	})
}
