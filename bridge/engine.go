package bridge

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An engine decides what is done to one target. It is given what sources report,
// the results of calls, who leads and the time, and returns the calls to make. It
// starts nothing but projections, reads no clock and does no I/O: the same events
// at the same times give the same calls. It is not safe for concurrent use.
type engine struct {
	state *sharedState

	guards      *guards
	statusCache *statusCache
	calls       int    // in flight
	checks      int    // of these, readings of what is as it should be, as far as is known
	budget      budget // of calls
	clock       clock
	relist      bool // the next list is handled as the first

	contradictions contradictions

	takeoverAt     time.Time  // when everything had to be read anew last
	reported       Leadership // that was last reported to the election as ready
	checkedReadyAt time.Time  // when that was last looked at
}

// newEngine returns the engine of a loop. A dry one writes nothing and shows what
// a leader would.
func newEngine(l *Loop, dry bool) *engine { //nolint:revive // of the engine, not of the call
	s := &sharedState{
		opts: l.opts, dry: dry, target: capabilitiesOf(l.target, dry),
		planner: plan.New(l.opts.Owner), agenda: &agenda{items: make(map[registry.Group]*item)},
		records: newRecordStore(l.target.Capabilities().Records != nil, dry), unread: make(map[registry.Group]struct{}),
	}
	if dry {
		s.opts.Election, s.opts.Observe, s.opts.Log = nil, nil, slog.New(slog.DiscardHandler)
	}
	s.drains = &drains{state: s, groups: make(map[registry.Group]map[string]bool)}
	s.planner.SelfRegistration, s.planner.Drained = s.target.Sessions, s.drains.isDrained
	s.agenda.opts, s.journal = &s.opts, &journal{state: s}
	e := &engine{state: s, budget: budget{opts: &s.opts}, contradictions: contradictions{groups: make(map[registry.Group]map[registry.Group]struct{})}}
	e.guards = &guards{state: s, withOrphans: make(map[*item]struct{}), awaitingRecord: make(map[*item]time.Time)}
	e.statusCache = newStatusCache(e)
	if slices.ContainsFunc(l.bridges, func(b Bridge) bool { return b.Yields != nil }) {
		s.planner.Yields = func(o plan.Origin, entry registry.Entry) bool {
			yields := l.bridges[o.Bridge].Yields
			return yields != nil && yields(entry)
		}
	}
	for i, b := range l.bridges {
		p := &pipeline{
			Bridge: b, index: i, services: make(map[registry.Name]*serviceState), dirty: make(map[registry.Name]struct{}),
			reasons: make(map[Reason]int), unknowns: make(map[string]string),
		}
		s.pipelines = append(s.pipelines, p)
		e.guards.addScope(p.Name, p)
	}
	return e
}

// Begin begins a turn: all events until the next one happen at this time. If the
// process was suspended, all waits begin anew.
func (e *engine) Begin(now time.Time, lead Leadership) {
	e.state.journal.now = now
	if list, isNew := e.state.agenda.item(registry.Group{}); isNew {
		e.state.lead = lead
		list.enqueue(&e.state.agenda.changes, now)
	}
	e.applyLeadership(lead, now)
	if e.clock.paused(now) {
		for _, b := range e.guards.scopes {
			e.guards.restartWaits(b, now)
		}
	}
}

// A step is what an engine asks its driver for.
type step struct {
	calls   []call
	nextAt  time.Time   // when Step has to be called again; zero: only an event helps
	ready   *Leadership // to report to the election; nil: nothing
	recheck []int       // bridges whose sources are to be read over a new connection
}

// wakeAt has Step be called again at a time; the zero time means never.
func (s *step) wakeAt(at time.Time) { s.nextAt = soonest(s.nextAt, at) }

// Step decides what is to be done.
func (e *engine) Step(now time.Time) step {
	var s step
	e.guards.judgeAll(&s, now)
	s.calls = e.dueCalls(now)
	if e.state.mayJudge() && e.guards.judgementDue() { // what was to be added came to an end in this turn
		s.wakeAt(now)
	}
	e.guards.addRecordsCall(&s, now)
	e.calls += len(s.calls)
	e.reportReady(&s, now)
	s.wakeAt(e.statusCache.publish(now))
	if at := e.state.agenda.nextDueAt(); !at.IsZero() && e.groupCalls() < e.budget.maxCalls() {
		s.wakeAt(later(at, e.budget.nextCallAt()))
	}
	if len(e.guards.withOrphans) > 0 {
		s.wakeAt(now.Add(turnAtLeastEvery))
	}
	e.clock.endTurn(s.nextAt, now)
	return s
}

// waitsForList reports whether sources must not be applied yet: what is served
// may depend on what was served before.
func (e *engine) waitsForList() bool {
	return e.state.target.SourcesComplete != nil && e.state.listed == nil
}

// ApplyDelta applies what the source of a bridge reported.
func (e *engine) ApplyDelta(bridge int, d registry.Delta, now time.Time) {
	p := e.state.pipelines[bridge]
	mayGo, fresh := p.setCertainty(d, now)
	if fresh {
		e.guards.restartWaits(e.guards.scopes[bridge], now)
	}
	p.markScopes(d.Scopes)
	for one := range p.projectAll(d.Rows) {
		e.claim(p, one, now)
	}
	e.state.drains.forgetUnclaimed()
	if mayGo {
		e.guards.recountAllOrphans(now)
	}
}

// claim hands what a service claims to the planner.
func (e *engine) claim(p *pipeline, one *serviceProjection, now time.Time) {
	origin := plan.Origin{Bridge: p.index, Service: one.name}
	for _, group := range e.state.planner.Claim(origin, p.evidence(one.row), one.entries) {
		if e.state.listed != nil { // else it is due once the target is listed
			e.touch(group, now)
		}
	}
	if p.setService(one.name, one.service) && one.service.reason == ReasonUnwritable {
		e.state.journal.reportUnwritable(p, one)
	}
}

// touch makes a group due whose claims changed. One that is new to the agenda
// and was not listed is known to be empty and is not read.
func (e *engine) touch(group registry.Group, now time.Time) {
	it, isNew := e.state.agenda.item(group)
	if isNew {
		if _, listed := e.state.listed[group]; !listed {
			it.readAt, it.isArrival = e.state.asOf, true
		}
	} else {
		e.guards.recountOrphans(it, now)
	}
	if e.state.agenda.touch(it, now) {
		e.state.journal.observe(Observation{Kind: ObservedCoalesce, Count: 1})
	}
}

// LoseSession makes every group due in which something of ours has to be written
// once more, without a reading in between. A write in flight may have gone to
// either session, so its group is read.
func (e *engine) LoseSession(now time.Time) {
	e.state.journal.emit(Event{Kind: EventSession, What: "session lost; all our entries are written again"})
	e.state.opts.Log.Info("target session lost, writing all our entries again", "target", e.state.opts.Target)
	for _, it := range e.state.agenda.items {
		it.readAgain = it.readAgain || it.busy
	}
	for _, it := range e.state.agenda.sortedItems() {
		if it.watched && !e.state.planner.HoldsOurs(it.group) { // else it is read after it was written
			e.readAgain(it, now)
		}
	}
	for _, group := range e.state.planner.SessionLost() {
		it, _ := e.state.agenda.item(group)
		if !it.readAt.IsZero() {
			it.readAt = now
		}
		it.pace.writtenAt, it.pace.paidUntil = time.Time{}, time.Time{}
		e.state.agenda.touch(it, now)
	}
}

// resync makes everything be read and compared again.
func (e *engine) resync(now time.Time) {
	list, _ := e.state.agenda.item(registry.Group{})
	for _, it := range append(e.state.agenda.sortedItems(), list) {
		e.guards.recountOrphans(it, now) // what stayed may be let go by now
		e.readAgain(it, now)
	}
	e.relist = true
}

// ReadChanged makes groups be read once more that changed, which ends the watch of one
// that is of no concern. Who writes nothing reads them once it has to.
func (e *engine) ReadChanged(groups []registry.Group, now time.Time) {
	if !e.state.acts() {
		return
	}
	for _, group := range groups {
		it, _ := e.state.agenda.item(group)
		it.reportedChanged = true
		e.readChanged(it, now)
	}
}

// readChanged makes a group be read that changed since it was: at once, but no
// sooner after it was read or written than it is read back. After a write, which may
// be what changed it, that is its reading back, and this is not put off: nothing
// reports what others do before that.
func (e *engine) readChanged(it *item, now time.Time) {
	at := later(it.readAt, it.wroteAt).Add(e.state.target.VerifyAfter)
	switch {
	case !it.reportedChanged || it.busy:
	case !it.unchecked() && !now.Before(at):
		it.wasBelieved = !it.readAt.IsZero()
		e.readAgain(it, now)
	default:
		it.checkAt = at
		if it.parked {
			e.park(it)
		}
	}
}

// readAgain makes a group, or the list of all, be read once more.
func (e *engine) readAgain(it *item, now time.Time) {
	if it.busy {
		it.readAgain = true
		return
	}
	it.readAt = time.Time{}
	it.enqueue(&e.state.agenda.changes, later(now, it.notBefore))
}

// isIdle reports whether nothing is left to do but what waits for an event.
func (e *engine) isIdle() bool {
	return e.allStored() && len(e.state.agenda.changes) == 0 && !e.guards.judgementDue() && e.state.records.allStored() &&
		!slices.ContainsFunc(e.guards.scopes, func(b *scope) bool { return b.waitsForTime })
}

// allStored reports whether everything was read and everything that is to be put
// was put. Deletions may still wait: in a large registry there always is one.
func (e *engine) allStored() bool {
	return e.state.complete() && e.state.listed != nil && e.calls == e.checks && len(e.state.unread)+len(e.state.agenda.arrivals) == 0 &&
		!slices.ContainsFunc(e.state.agenda.changes, func(it *item) bool { return !it.onlyWaits() })
}

func (e *engine) tune(guards map[string]Guard, opts Options, now time.Time) {
	opts = opts.withDefaults()
	e.state.opts.Workers, e.state.opts.Rate, e.state.opts.Timeout, e.state.opts.Retry = opts.Workers, opts.Rate, opts.Timeout, opts.Retry
	e.state.opts.Debounce, e.state.opts.MaxDebounce, e.state.opts.Refresh = opts.Debounce, opts.MaxDebounce, opts.Refresh
	for i, p := range e.state.pipelines {
		if g, ok := guards[p.Name]; ok {
			p.Guard = g
			p.Guard.Mode = cmp.Or(g.Mode, GuardEnforce)
			e.guards.scopes[i].guard.Options, e.guards.scopes[i].needsJudgement = p.Guard, true
		}
	}
	e.guards.recountAllOrphans(now)
}

// A sharedState is what the engine and its parts know of the sources, of the target,
// and of who leads. Each part has it as a field called state. Only the goroutine of the
// engine touches it.
type sharedState struct {
	opts      Options
	target    registry.Capabilities
	planner   *plan.Planner
	agenda    *agenda
	pipelines []*pipeline
	records   *recordStore
	drains    *drains
	journal   *journal
	lead      Leadership
	dry       bool // nothing is written

	listed map[registry.Group]struct{} // the groups the target reported last; nil before that
	asOf   time.Time                   // when it was asked for them
	unread map[registry.Group]struct{} // groups listed that still have to be read once
}

// capabilitiesOf returns what an engine uses of a target.
func capabilitiesOf(target registry.Target, dry bool) registry.Capabilities { //nolint:revive // of a loop that writes nothing, not a mode
	if dry {
		return target.Capabilities().ReadOnly()
	}
	return target.Capabilities()
}

// admitted returns what the first write waits for; nil: nothing.
func (s *sharedState) admitted() error {
	if s.target.Admission == nil {
		return nil
	}
	return s.target.Admission()
}

// overlap returns how long a replaced entry of a group stays next to the entry that
// replaces it.
func (s *sharedState) overlap(group registry.Group) time.Duration {
	if s.target.Overlap == nil {
		return 0
	}
	return s.target.Overlap(group)
}

// leads reports whether this replica leads.
func (s *sharedState) leads() bool { return s.opts.Election == nil || s.lead.Role == RoleLeader }

// acts reports whether there is something to write.
func (s *sharedState) acts() bool { return s.leads() || s.target.Shared }

// complete reports whether every source reported everything and still does.
func (s *sharedState) complete() bool {
	return !slices.ContainsFunc(s.pipelines, func(p *pipeline) bool { return !p.complete() })
}

// mayJudge reports whether what the target stores is known well enough to judge
// what may be deleted: all of it was read, what is to be added was added once,
// and what an earlier process recorded is known.
func (s *sharedState) mayJudge() bool {
	return s.listed != nil && len(s.unread)+len(s.agenda.arrivals) == 0 && s.records.guardsRead
}

// Waits are for what the source may still say. While the process was suspended,
// as by SIGSTOP or with its machine, nothing was heard, so that waits begin
// anew after it.

const (
	// pulse is how often the loop turns at least while deletions wait, so that
	// a pause shows in how late a turn is.
	turnAtLeastEvery = time.Second

	// late is how much later than its timer a turn is after a pause.
	maxTurnDelay = time.Second
)

// A clock reports whether the process was suspended.
type clock struct {
	nextTurnAt time.Time // when the next turn is to be at the latest; zero: no such time
	lastTurnAt time.Time // when the last one was
}

// endTurn records that a turn ends, and when the next one is due.
func (c *clock) endTurn(due, now time.Time) { c.nextTurnAt, c.lastTurnAt = due, now }

// paused reports whether a turn is late, or the clock on the wall continued
// without the one that timers follow, as on a machine that was suspended.
func (c *clock) paused(now time.Time) bool {
	slept := now.Round(0).Sub(c.lastTurnAt.Round(0)) - now.Sub(c.lastTurnAt)
	return !c.lastTurnAt.IsZero() && (slept > maxTurnDelay || !c.nextTurnAt.IsZero() && now.Sub(c.nextTurnAt) > maxTurnDelay)
}
