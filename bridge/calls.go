package bridge

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// maxReadingAge is how old a read may be by which an orphan is deleted.
const maxReadingAge = time.Second

// A call is one call to the target. It does not change once it is made.
type call struct {
	op    string
	item  *item // whose group is read or written; for a list, that of the zero group
	began time.Time
	until time.Time // the deadline

	watch bool // opRead: watch the group from then on

	change      registry.Change // opWrite
	firstChange time.Time       // opWrite: when the first of the written changes was seen

	records []pendingRecord // opRecords: to be stored
	kinds   []string        // opRecords: the kinds of records to be read
}

// isCheck reports whether a call is a refresh.
func (c call) isCheck() bool { return c.op == opRead && c.item.parked }

// The operations, as logs and observations name them.
const (
	opList    = "list"
	opRead    = "read"
	opWrite   = "write"
	opRecords = "consult"
)

// An outcome is a call with its result.
type outcome struct {
	call
	groups    []registry.Group
	stored    []registry.Stored
	err       error
	consulted recordsResult
}

// dueCalls returns the calls that are due, as many as may be in flight.
func (e *engine) dueCalls(now time.Time) (calls []call) {
	for e.groupCalls()+len(calls) < e.budget.maxCalls() && !now.Before(e.budget.nextCallAt()) {
		it := e.state.agenda.pop(now)
		if it == nil {
			break
		}
		c, ok := e.nextCall(it, now)
		if !ok {
			e.finishItem(it, now)
			continue
		}
		c.item, c.began = it, now
		if c.isCheck() {
			e.checks++
		}
		it.reportedChanged = it.reportedChanged && c.op != opRead
		if limit := now.Add(e.state.opts.Timeout); c.until.IsZero() || limit.Before(c.until) {
			c.until = limit
		}
		e.budget.pay(now)
		calls = append(calls, c)
	}
	return calls
}

// addRecordsCall adds the call that stores and reads records, if it is due.
func (g *guards) addRecordsCall(s *step, now time.Time) {
	r := g.state.records
	allRead := g.state.dry && r.guardsRead && r.drainedRead
	if !r.canRead || r.inFlight != nil || allRead || !g.recordsMatter() && len(r.pending) == 0 {
		return
	}
	if at := r.nextCallAt(); now.Before(at) {
		s.wakeAt(at)
		return
	}
	g.publishHolds()
	r.awaitRead(now)
	if !r.guardsRead && !g.state.target.Shared { // pending guard records are older than the stored ones
		maps.DeleteFunc(r.pending, func(n recordName, _ pendingRecord) bool { return n.kind == recordGuard })
	}
	c := call{op: opRecords, records: r.startPending(), began: now, until: now.Add(g.state.opts.Timeout)}
	c.kinds = r.kindsToRead(now)
	s.calls = append(s.calls, c)
}

// recordsMatter reports whether records have to be read: some were not read yet, or there
// may be new ones.
func (g *guards) recordsMatter() bool {
	r := g.state.records
	return g.state.opts.Election != nil || !r.guardsRead || !r.drainedRead || r.hasDecisions || len(r.holds) > 0 ||
		slices.ContainsFunc(g.scopes, func(b *scope) bool { return len(b.holds()) > 0 })
}

// groupCalls returns how many calls for groups are in flight.
func (e *engine) groupCalls() int {
	if e.state.records.inFlight != nil {
		return e.calls - 1
	}
	return e.calls
}

// nextCall returns the next call for a group that is due: list, read or write. It returns
// false if there is nothing to do.
func (e *engine) nextCall(it *item, now time.Time) (call, bool) {
	if it.group.IsZero() {
		return call{op: opList}, true
	}
	if !e.isTrusted(it, now) {
		return e.readCall(it), true
	}
	e.compareRegistrations(it, now)
	if !e.state.acts() {
		it.refusals = nil // a leader finds out what the target refuses
		return call{}, false
	}
	d := draft{state: e.state, guards: e.guards, item: it, now: now}
	freed := e.guards.awaitingRecord[it]
	change := d.allowedChange()
	if change.Empty() || e.state.dry { // the read after a write begins and ends a watch, too
		return e.readCall(it), it.watched != e.watches(it) && !it.unchecked()
	}
	if now.Sub(it.readAt) > maxReadingAge && it.removesOrphan(change) {
		return e.readCall(it), true
	}
	c := call{op: opWrite, change: change, firstChange: it.pace.begin(now, e.state.opts.MaxDebounce)}
	if c.firstChange = soonest(c.firstChange, freed); c.firstChange.IsZero() {
		c.firstChange = now
	}
	if !e.state.target.Shared {
		c.until = e.state.lead.Until
	}
	return c, true
}

// removesOrphan reports whether a change deletes an orphan that its source did not report
// as removed.
func (it *item) removesOrphan(c registry.Change) bool {
	for _, h := range c.Delete {
		if o := it.orphans[h.Key]; o != nil && o.missing() {
			return true
		}
	}
	return false
}

// readCall returns the call that reads a group.
func (e *engine) readCall(it *item) call { return call{op: opRead, watch: e.watches(it)} }

// watches reports whether changes of a group by others matter. Until every source has
// reported everything, they matter in any group.
func (e *engine) watches(it *item) bool {
	return e.state.target.Watcher != nil &&
		(e.state.planner.Concerns(it.group) || e.contradictions.has(it.group) || !e.state.complete())
}

// isTrusted reports whether the belief about a group suffices without a read. It is
// trusted longer for a change, so that a late refresh delays no change.
func (e *engine) isTrusted(it *item, now time.Time) bool {
	switch {
	case it.readAt.IsZero():
		return false
	case it.pace.pending():
		return now.Sub(it.readAt) < 2*e.state.opts.Refresh
	case it.unchecked() && !now.Before(it.checkAt):
		return false
	}
	return now.Before(it.refreshAt(e.state.opts.Refresh))
}

// An omission is what is not done in a group, for whom and why.
type omission struct {
	origin   plan.Origin // who claims it or claimed it last; zero: unknown
	reason   Reason
	detail   string
	conflict *plan.Conflict
	entries  int
	keys     []string  // unclaimed
	until    time.Time // when the first of keys may be deleted; zero: not by time alone
}

// addOmission adds an omission, or counts it in an equal one.
func (it *item) addOmission(n omission) {
	for i := range it.omissions {
		o := &it.omissions[i]
		if o.conflict == nil && o.origin == n.origin && o.reason == n.reason && o.detail == n.detail {
			o.entries++
			o.keys, o.until = append(o.keys, n.keys...), soonest(o.until, n.until)
			return
		}
	}
	n.entries = 1
	it.omissions = append(it.omissions, n)
}

// A draft is the next write of a group: the change that the planner wants, without what is
// not allowed yet. It lasts for one turn.
type draft struct {
	state *sharedState

	guards *guards
	item   *item
	now    time.Time
}

// allowedChange returns what may be written now. It records in the item what is left out.
func (d *draft) allowedChange() registry.Change {
	return d.keepReplaced(d.withholdRefused(d.markLeaving(d.allow())))
}

// allow returns the change that the planner wants, without what policies and guards forbid.
// It records in omissions what is left out.
func (d *draft) allow() registry.Change {
	change, conflicts := d.state.planner.Change(d.item.group)
	before := d.item.omissions
	d.item.omissions, d.item.wakeAt = nil, time.Time{}
	delete(d.guards.awaitingRecord, d.item)
	for i := range conflicts {
		d.addConflict(before, &conflicts[i])
	}
	change = d.allowPuts(d.awaitRecords(change))
	if next, succeeds := d.succession(change); succeeds {
		return d.allowSuccession(next, change)
	}
	return d.allowDeletes(change)
}

// succession returns the origin that takes over an exclusive group from a service whose last
// endpoints are unclaimed. It returns false if the service of the group does not change.
func (d *draft) succession(change registry.Change) (next plan.Origin, succeeds bool) {
	if !d.item.group.Exclusive {
		return next, false
	}
	puts := slices.DeleteFunc(slices.Clone(change.Put), func(w registry.Write) bool {
		return w.Old != nil || !registry.IsEndpoint(w.New.Key)
	})
	desired := slices.DeleteFunc(slices.Clone(change.Want), func(e registry.Entry) bool {
		return !registry.IsEndpoint(e.Key)
	})
	if len(puts) == 0 || len(puts) < len(desired) {
		return next, false // it owns the group already
	}
	next = d.state.planner.Winner(d.item.group, puts[0].New.Key)
	for _, o := range d.item.orphans {
		succeeds = succeeds || !o.Origin.IsZero() && registry.IsEndpoint(o.Key) && o.Origin != next
	}
	return next, succeeds
}

// allowSuccession returns the whole change or nothing. Two services with one host mean
// different things. So callers of the first are sent to the second only when the last
// endpoint of the first may be deleted.
func (d *draft) allowSuccession(next plan.Origin, change registry.Change) registry.Change {
	allowed := d.allowDeletes(change)
	if countEndpoints(allowed.Delete) == countEndpoints(change.Delete) {
		return allowed
	}
	d.item.addOmission(omission{
		origin: next, reason: ReasonWaiting, detail: "another service has the host until its last endpoint is deleted",
	})
	return registry.Change{Group: d.item.group}
}

// addConflict adds the omission of a claim that cannot be honoured, and reports it the
// first time.
func (d *draft) addConflict(before []omission, c *plan.Conflict) {
	d.item.omissions = append(d.item.omissions, omission{
		origin: c.Origin, reason: ReasonConflict, conflict: c, entries: 1,
	})
	if slices.ContainsFunc(before, func(o omission) bool { return o.conflict != nil && *o.conflict == *c }) {
		return
	}
	bridge := d.state.pipelines[c.Origin.Bridge].Name
	d.state.journal.observe(Observation{Kind: ObservedConflict, Bridge: bridge, Count: 1})
	d.state.journal.emit(Event{
		Kind: EventConflict, Bridge: bridge, Subject: d.item.group.String(), What: "claim to " + c.Key + " refused",
		Why: "it belongs to " + d.state.journal.describeWinner(*c), Release: d.state.drains.conflictRelease(c),
	})
	level := d.state.opts.Log.Debug
	if d.now.Sub(d.state.journal.refusedAt) >= d.state.opts.Retry.Max { // one warning for many; status and events have all
		level, d.state.journal.refusedAt = d.state.opts.Log.Warn, d.now
	}
	level("claim refused", "bridge", bridge, "service", c.Origin.Service,
		"group", d.item.group.String(), "key", c.Key, "winner", d.state.journal.describeWinner(*c))
}

// allowPuts removes the writes that the policy of their bridge forbids.
func (d *draft) allowPuts(change registry.Change) registry.Change {
	mayForbid := func(p *pipeline) bool { return p.Policy == PolicyReadOnly || p.Policy == PolicyCreateOnly }
	if !slices.ContainsFunc(d.state.pipelines, mayForbid) {
		return change
	}
	return change.KeepPuts(func(w registry.Write) bool {
		origin := d.state.planner.Winner(d.item.group, w.New.Key)
		policy := d.state.pipelines[origin.Bridge].Policy
		update := w.Old != nil && w.Old.Value != w.New.Value
		if policy != PolicyReadOnly && (policy != PolicyCreateOnly || !update) {
			return true
		}
		d.item.addOmission(omission{
			origin: origin, reason: ReasonReadOnly, detail: "policy " + string(policy) + " forbids the write",
		})
		return false
	})
}

// allowDeletes removes the deletions that are not allowed yet.
func (d *draft) allowDeletes(change registry.Change) registry.Change {
	if len(change.Delete) == 0 {
		return change
	}
	allowed := change.Keep(func(h registry.Stored) bool {
		o := d.item.orphans[h.Key]
		switch {
		case o == nil && d.isReplaced(change, h):
			return d.mayReplace(h)
		case o == nil:
			return d.mayDisplace(h)
		}
		v := d.guards.judge(o, d.now)
		if v.reason == "" {
			return true
		}
		d.item.addOmission(omission{
			origin: o.Origin, reason: v.reason, detail: v.detail, keys: []string{h.Key}, until: v.until,
		})
		d.item.wakeAt = soonest(d.item.wakeAt, v.recheckAt)
		if !v.freedAt.IsZero() {
			d.guards.awaitingRecord[d.item] = soonest(d.guards.awaitingRecord[d.item], v.freedAt)
		}
		return false
	})
	if hasEndpoint(allowed.Want) {
		allowed = allowed.Keep(func(h registry.Stored) bool { return h.Key != registry.HeadKey })
	}
	if countEndpoints(allowed.Delete) < countEndpoints(change.Delete) { // a remaining endpoint refers to the parts
		allowed = allowed.Keep(func(h registry.Stored) bool { return !registry.IsPart(h.Key) })
	}
	return allowed
}

// hasEndpoint reports whether one of the entries is an endpoint.
func hasEndpoint(list []registry.Entry) bool {
	return slices.ContainsFunc(list, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) })
}

// countEndpoints returns how many of the stored entries are endpoints.
func countEndpoints(list []registry.Stored) (n int) {
	for _, h := range list {
		if registry.IsEndpoint(h.Key) {
			n++
		}
	}
	return n
}

// mayDisplace reports whether one of our entries may be deleted although its key is claimed:
// the key has another of our entries, or a foreign one that wins.
func (d *draft) mayDisplace(h registry.Stored) bool {
	origin := d.state.planner.Winner(d.item.group, h.Key)
	if !origin.IsZero() && d.state.pipelines[origin.Bridge].Policy == PolicySync {
		return true
	}
	d.item.addOmission(omission{origin: origin, reason: ReasonReadOnly, detail: "the policy forbids the deletion"})
	return false
}

// keepReplaced keeps each replaced entry next to its replacement while the target requires
// an overlap.
func (d *draft) keepReplaced(change registry.Change) registry.Change {
	if d.state.overlap(change.Group) == 0 {
		return change
	}
	change.Put, change.Want = slices.Clone(change.Put), slices.Clone(change.Want)
	for i, w := range change.Put {
		if w.Old != nil && w.Old.Live && w.Old.Value != w.New.Value {
			change.Put[i].KeepOld = true
			change.Want = append(change.Want, w.Old.Entry)
		}
	}
	change.Want = registry.Sorted(change.Want)
	return change
}

// isReplaced reports whether a deletion ends an overlap: the entry was kept next to its
// replacement. Such a deletion belongs to the update.
func (d *draft) isReplaced(change registry.Change, h registry.Stored) bool {
	sameKey := func(e registry.Entry) bool { return e.Key == h.Key }
	if d.state.overlap(change.Group) == 0 || !slices.ContainsFunc(change.Want, sameKey) {
		return false
	}
	origin := d.state.planner.Winner(change.Group, h.Key)
	if origin.IsZero() {
		return false
	}
	policy := d.state.pipelines[origin.Bridge].Policy
	return policy == PolicySync || policy == PolicyUpsertOnly
}

// mayReplace reports whether the overlap of a replaced entry is over. If another process
// replaced the entry, the overlap begins when this one first sees it.
func (d *draft) mayReplace(h registry.Stored) bool {
	if _, known := d.item.replacedAt[h.Entry]; !known {
		d.item.markReplaced(h.Entry, d.now)
	}
	at := d.item.replacedAt[h.Entry].Add(d.state.overlap(d.item.group))
	if d.now.Before(at) {
		d.item.wakeAt = soonest(d.item.wakeAt, at)
		return false
	}
	return true
}

// recordReplaced records which entries a write kept next to their replacements, and wakes
// the group when the first overlap is over.
func (it *item) recordReplaced(change registry.Change, overlap time.Duration, now time.Time) {
	for _, w := range change.Put {
		if w.KeepOld {
			it.markReplaced(w.Old.Entry, now)
			it.wakeAt = soonest(it.wakeAt, now.Add(overlap))
		}
	}
	for _, h := range change.Delete {
		delete(it.replacedAt, h.Entry)
	}
}

// markReplaced records that an entry was replaced.
func (it *item) markReplaced(e registry.Entry, now time.Time) {
	if it.replacedAt == nil {
		it.replacedAt = make(map[registry.Entry]time.Time)
	}
	it.replacedAt[e] = now
}
