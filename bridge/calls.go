package bridge

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// recent is how old a reading may be that an orphan is deleted by.
const maxReadingAge = time.Second

// A call is one call to the target.
type call struct {
	op          string
	item        *item           // whose group is read or written; of a list that of the zero group
	watch       bool            // the group is watched once it is read
	change      registry.Change // of a write
	firstChange time.Time       // when the first of the changes written was seen
	began       time.Time
	until       time.Time       // when it is given up at the latest
	records     []pendingRecord // to be stored
	kinds       []string        // of records, to be read
}

// isCheck reports whether a call reads a group for no more than a refresh.
func (c call) isCheck() bool { return c.op == opRead && c.item.parked }

// The calls, as logs and observations name them.
const (
	opList    = "list"
	opRead    = "read"
	opWrite   = "write"
	opRecords = "consult" // of records
)

// An outcome is what came of a call.
type outcome struct {
	call
	groups    []registry.Group
	stored    []registry.Stored
	err       error
	consulted recordsResult
}

// dueCalls returns the calls that are due, as many as may run at a time.
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

// addRecordsCall adds the call that stores and reads records, where that is due.
func (g *guards) addRecordsCall(s *step, now time.Time) {
	r := g.state.records
	if !r.canRead || r.inFlight != nil || g.state.dry && r.guardsRead && r.drainedRead || !g.recordsMatter() && len(r.pending) == 0 {
		return
	}
	if at := r.nextCallAt(); now.Before(at) {
		s.wakeAt(at)
		return
	}
	g.publishHolds()
	r.awaitRead(now)
	if !r.guardsRead && !g.state.target.Shared { // what was to be stored before is older than what is there
		maps.DeleteFunc(r.pending, func(n recordName, _ pendingRecord) bool { return n.kind == recordGuard })
	}
	c := call{op: opRecords, records: r.startPending(), began: now, until: now.Add(g.state.opts.Timeout)}
	c.kinds = r.kindsToRead(now)
	s.calls = append(s.calls, c)
}

// recordsMatter reports whether there may be records that say something new.
func (g *guards) recordsMatter() bool {
	return g.state.opts.Election != nil || !g.state.records.guardsRead || !g.state.records.drainedRead || g.state.records.hasDecisions || len(g.state.records.holds) > 0 ||
		slices.ContainsFunc(g.scopes, func(b *scope) bool { return len(b.holds()) > 0 })
}

// groupCalls returns how many calls about groups are in flight.
func (e *engine) groupCalls() int {
	if e.state.records.inFlight != nil {
		return e.calls - 1
	}
	return e.calls
}

// nextCall decides what to do about a group that is due: list, read, write, or
// nothing.
func (e *engine) nextCall(it *item, now time.Time) (call, bool) {
	if it.group.IsZero() {
		return call{op: opList}, true
	}
	if !e.isTrusted(it, now) {
		return e.readCall(it), true
	}
	e.compareRegistrations(it, now)
	if !e.state.acts() {
		it.refusals = nil // the leader finds them out
		return call{}, false
	}
	d := draft{state: e.state, guards: e.guards, item: it, now: now}
	freed := e.guards.awaitingRecord[it]
	change := d.allowedChange()
	if change.Empty() || e.state.dry { // a reading back begins and ends a watch too
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

func (it *item) removesOrphan(c registry.Change) bool {
	for _, h := range c.Delete {
		if o := it.orphans[h.Key]; o != nil && o.missing() {
			return true
		}
	}
	return false
}

func (e *engine) readCall(it *item) call { return call{op: opRead, watch: e.watches(it)} }

// watches reports whether what others do to a group matters. Until every source
// reported everything it may be that of any.
func (e *engine) watches(it *item) bool {
	return e.state.target.Watcher != nil && (e.state.planner.Concerns(it.group) || e.contradictions.has(it.group) || !e.state.complete())
}

// isTrusted reports whether what is believed of a group is enough without a reading. For a
// change it is trusted longer, so that changes need not wait for a refresh
// that is late.
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

// An omission is what is left undone in a group, for whom and why.
type omission struct {
	origin   plan.Origin // zero: nobody is known to have claimed it
	reason   Reason
	detail   string
	conflict *plan.Conflict
	entries  int
	keys     []string  // of entries that nobody claims
	until    time.Time // when the first of them is due
}

// addOmission adds an omission, or counts it in one that says the same.
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

// A draft is the next write of a group: the change that is due, less what may not
// be done yet.
type draft struct {
	state *sharedState

	guards *guards
	item   *item
	now    time.Time
}

// allowedChange returns what is to be written now.
func (d *draft) allowedChange() registry.Change {
	return d.keepReplaced(d.withholdRefused(d.markLeaving(d.allow())))
}

// allow returns the change that is due to a group, less what policies and guards do
// not allow, and records in omissions what that is.
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

// succession returns who would have an exclusive group after another whose last
// endpoints have just gone.
func (d *draft) succession(change registry.Change) (next plan.Origin, succeeds bool) {
	if !d.item.group.Exclusive {
		return next, false
	}
	puts := slices.DeleteFunc(slices.Clone(change.Put), func(w registry.Write) bool { return w.Old != nil || !registry.IsEndpoint(w.New.Key) })
	desired := slices.DeleteFunc(slices.Clone(change.Want), func(e registry.Entry) bool { return !registry.IsEndpoint(e.Key) })
	if len(puts) == 0 || len(puts) < len(desired) {
		return next, false // it has it already
	}
	next = d.state.planner.Winner(d.item.group, puts[0].New.Key)
	for _, o := range d.item.orphans {
		succeeds = succeeds || !o.Origin.IsZero() && registry.IsEndpoint(o.Key) && o.Origin != next
	}
	return next, succeeds
}

// allowSuccession returns the whole change or nothing: two services that have
// one host mean different things, so that who called the one is sent to the
// other no sooner than an endpoint would go that is the last.
func (d *draft) allowSuccession(next plan.Origin, change registry.Change) registry.Change {
	allowed := d.allowDeletes(change)
	if countEndpoints(allowed.Delete) == countEndpoints(change.Delete) {
		return allowed
	}
	d.item.addOmission(omission{origin: next, reason: ReasonWaiting, detail: "another service has the host until its last endpoint is deleted"})
	return registry.Change{Group: d.item.group}
}

// addConflict adds an omission of a claim that cannot be honoured, and logs it the first time.
func (d *draft) addConflict(before []omission, c *plan.Conflict) {
	d.item.omissions = append(d.item.omissions, omission{origin: c.Origin, reason: ReasonConflict, conflict: c, entries: 1})
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
	if d.now.Sub(d.state.journal.refusedAt) >= d.state.opts.Retry.Max { // the first of many; status and events have all
		level, d.state.journal.refusedAt = d.state.opts.Log.Warn, d.now
	}
	level("claim refused", "bridge", bridge, "service", c.Origin.Service,
		"group", d.item.group.String(), "key", c.Key, "winner", d.state.journal.describeWinner(*c))
}

// allowPuts leaves out the writes that the policies of their bridges forbid.
func (d *draft) allowPuts(change registry.Change) registry.Change {
	if !slices.ContainsFunc(d.state.pipelines, func(w *pipeline) bool { return w.Policy == PolicyReadOnly || w.Policy == PolicyCreateOnly }) {
		return change
	}
	return change.KeepPuts(func(w registry.Write) bool {
		origin := d.state.planner.Winner(d.item.group, w.New.Key)
		policy := d.state.pipelines[origin.Bridge].Policy
		update := w.Old != nil && w.Old.Value != w.New.Value
		if policy != PolicyReadOnly && (policy != PolicyCreateOnly || !update) {
			return true
		}
		d.item.addOmission(omission{origin: origin, reason: ReasonReadOnly, detail: "policy " + string(policy) + " forbids the write"})
		return false
	})
}

// allowDeletes leaves out the deletions that have to wait.
func (d *draft) allowDeletes(change registry.Change) registry.Change {
	if len(change.Delete) == 0 {
		return change
	}
	kept := change.Keep(func(h registry.Stored) bool {
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
		d.item.addOmission(omission{origin: o.Origin, reason: v.reason, detail: v.detail, keys: []string{h.Key}, until: v.until})
		d.item.wakeAt = soonest(d.item.wakeAt, v.recheckAt)
		if !v.freedAt.IsZero() {
			d.guards.awaitingRecord[d.item] = soonest(d.guards.awaitingRecord[d.item], v.freedAt)
		}
		return false
	})
	if slices.ContainsFunc(kept.Want, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) }) {
		kept = kept.Keep(func(h registry.Stored) bool { return h.Key != registry.HeadKey })
	}
	if countEndpoints(kept.Delete) < countEndpoints(change.Delete) { // one that stays refers to the others
		kept = kept.Keep(func(h registry.Stored) bool { return !registry.IsPart(h.Key) })
	}
	return kept
}

// countEndpoints returns how many endpoints are held.
func countEndpoints(list []registry.Stored) (n int) {
	for _, h := range list {
		if registry.IsEndpoint(h.Key) {
			n++
		}
	}
	return n
}

// mayDisplace reports whether an entry of ours may go whose key stays: there
// is another of ours under it, or a foreign one that wins.
func (d *draft) mayDisplace(h registry.Stored) bool {
	origin := d.state.planner.Winner(d.item.group, h.Key)
	if !origin.IsZero() && d.state.pipelines[origin.Bridge].Policy == PolicySync {
		return true
	}
	d.item.addOmission(omission{origin: origin, reason: ReasonReadOnly, detail: "the policy forbids the deletion"})
	return false
}

// keepReplaced has what a change replaces stay where consumers need both for a while.
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

// isReplaced reports whether a deletion is the end of a replacement: its entry is
// beside the one that replaced it. It is a part of the update.
func (d *draft) isReplaced(change registry.Change, h registry.Stored) bool {
	if d.state.overlap(change.Group) == 0 || !slices.ContainsFunc(change.Want, func(e registry.Entry) bool { return e.Key == h.Key }) {
		return false
	}
	origin := d.state.planner.Winner(change.Group, h.Key)
	return !origin.IsZero() && (d.state.pipelines[origin.Bridge].Policy == PolicySync || d.state.pipelines[origin.Bridge].Policy == PolicyUpsertOnly)
}

// mayReplace reports whether an entry that was replaced has been beside what
// replaced it for long enough. Of one that another process left it is not known
// since when it is there: it counts from when it is first seen.
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

// recordReplaced records which entries were left beside what replaced them, and has the
// group looked at when the first of them may go.
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

func (it *item) markReplaced(e registry.Entry, now time.Time) {
	if it.replacedAt == nil {
		it.replacedAt = make(map[registry.Entry]time.Time)
	}
	it.replacedAt[e] = now
}
