package bridge

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An engine decides what is done to one target. It receives what sources report, the
// results of calls, the leadership and the time, and returns the calls to make. It reads no
// clock, does no I/O and starts only projections: the same events at the same times give
// the same calls. It is not safe for concurrent use.
type engine struct {
	state *sharedState

	guards         *guards
	statusCache    *statusCache
	budget         budget
	clock          clock
	contradictions contradictions

	calls  int  // in flight
	checks int  // calls in flight that are refreshes
	relist bool // the next list is handled as the first one

	takeoverAt     time.Time  // when this replica last became the leader
	reported       Leadership // the leadership that was last reported as ready
	checkedReadyAt time.Time  // when readiness was last checked
}

// newEngine returns the engine of a loop. A dry engine writes nothing and shows what a
// leader would write.
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
	e := &engine{
		state: s, budget: budget{opts: &s.opts},
		contradictions: contradictions{groups: make(map[registry.Group]map[registry.Group]struct{})},
	}
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

// Begin begins a turn: all events until the next Begin happen at this time. If the process
// was suspended, all waits begin again.
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

// A step has the requests of an engine to its driver at the end of a turn.
type step struct {
	calls   []call
	nextAt  time.Time   // when Step has to be called again; zero: after the next event
	ready   *Leadership // to report to the election; nil: nothing
	recheck []int       // the bridges whose Recheck is to be called
}

// wakeAt has Step be called again at the given time, or earlier. The zero time is ignored.
func (s *step) wakeAt(at time.Time) { s.nextAt = soonest(s.nextAt, at) }

// Step ends a turn: it returns the calls to make, and when to call Step again.
func (e *engine) Step(now time.Time) step {
	var s step
	e.guards.judgeAll(&s, now)
	s.calls = e.dueCalls(now)
	if e.state.mayJudge() && e.guards.judgementDue() { // the last arrival was handled in this turn
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

// waitsForList reports whether changes of sources must not be applied before the first
// list. What a target serves may depend on what it served before.
func (e *engine) waitsForList() bool {
	return e.state.target.SourcesComplete != nil && e.state.listed == nil
}

// ApplyDelta applies the changes that the source of a bridge reported.
func (e *engine) ApplyDelta(bridge int, d registry.Delta, now time.Time) {
	p := e.state.pipelines[bridge]
	mayAllowDeletions, waitsRestart := p.setCertainty(d, now)
	if waitsRestart {
		e.guards.restartWaits(e.guards.scopes[bridge], now)
	}
	p.markScopes(d.Scopes)
	for one := range p.projectAll(d.Rows) {
		e.claim(p, one, now)
	}
	e.state.drains.forgetUnclaimed()
	if mayAllowDeletions {
		e.guards.recountAllOrphans(now)
	}
}

// claim hands the entries of a service to the planner, and makes the changed groups due.
func (e *engine) claim(p *pipeline, one *serviceProjection, now time.Time) {
	origin := plan.Origin{Bridge: p.index, Service: one.name}
	for _, group := range e.state.planner.Claim(origin, p.evidence(one.row), one.entries) {
		if e.state.listed != nil { // else the first list makes the group due
			e.touch(group, now)
		}
	}
	if p.setService(one.name, one.service) && one.service.reason == ReasonUnwritable {
		e.state.journal.reportUnwritable(p, one)
	}
}

// touch makes a group due whose claims changed. A new group that the target did not list
// is known to be empty, and is not read.
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

// LoseSession makes every group due that has entries of this owner: they are written again,
// without a read before. A write in flight may have used either session, so its group is
// read.
func (e *engine) LoseSession(now time.Time) {
	e.state.journal.emit(Event{Kind: EventSession, What: "session lost; all our entries are written again"})
	e.state.opts.Log.Info("target session lost, writing all our entries again", "target", e.state.opts.Target)
	for _, it := range e.state.agenda.items {
		it.readAgain = it.readAgain || it.busy
	}
	for _, it := range e.state.agenda.sortedItems() {
		if it.watched && !e.state.planner.StoresOurs(it.group) { // else the group is read after the write
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

// resync has the target listed and every group read and compared again.
func (e *engine) resync(now time.Time) {
	list, _ := e.state.agenda.item(registry.Group{})
	for _, it := range append(e.state.agenda.sortedItems(), list) {
		e.guards.recountOrphans(it, now) // what was kept may be allowed now
		e.readAgain(it, now)
	}
	e.relist = true
}

// ReadChanged has groups read again that others changed. The read ends the watch of a group
// that no longer matters. A standby reads nothing until it has to.
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

// readChanged has a group read that the target reported as changed since its last read. It
// is read at once, but not within VerifyAfter of its last read or write. After a write that
// read is the one that verifies it, and is not delayed: until then nothing reports what
// others change.
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

// readAgain has a group read again; the zero group stands for the list of groups.
func (e *engine) readAgain(it *item, now time.Time) {
	if it.busy {
		it.readAgain = true
		return
	}
	it.readAt = time.Time{}
	it.enqueue(&e.state.agenda.changes, later(now, it.notBefore))
}

// isIdle reports whether all remaining work waits for an event.
func (e *engine) isIdle() bool {
	waitsForTime := func(b *scope) bool { return b.waitsForTime }
	return e.allStored() && len(e.state.agenda.changes) == 0 &&
		!e.guards.judgementDue() && e.state.records.allStored() && !slices.ContainsFunc(e.guards.scopes, waitsForTime)
}

// allStored reports whether everything was read, and everything that is to be put was put.
// Deletions may still wait: in a large registry there is always one.
func (e *engine) allStored() bool {
	state, hasChange := e.state, func(it *item) bool { return !it.onlyWaits() }
	return state.complete() && state.listed != nil && e.calls == e.checks &&
		len(state.unread)+len(state.agenda.arrivals) == 0 && !slices.ContainsFunc(state.agenda.changes, hasChange)
}

// tune applies options and the guards of bridges, by name. See Loop.Tune.
func (e *engine) tune(guards map[string]Guard, opts Options, now time.Time) {
	opts = opts.withDefaults()
	o := &e.state.opts
	o.Workers, o.Rate, o.Timeout, o.Retry = opts.Workers, opts.Rate, opts.Timeout, opts.Retry
	o.Debounce, o.MaxDebounce, o.Refresh = opts.Debounce, opts.MaxDebounce, opts.Refresh
	for i, p := range e.state.pipelines {
		if g, ok := guards[p.Name]; ok {
			p.Guard = g
			p.Guard.Mode = cmp.Or(g.Mode, GuardEnforce)
			e.guards.scopes[i].guard.Options, e.guards.scopes[i].needsJudgement = p.Guard, true
		}
	}
	e.guards.recountAllOrphans(now)
}

// A sharedState is the state that the engine and its parts share: the sources, the target
// and the leadership. Each part has it as a field called state. Only the goroutine of the
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
	dry       bool // writes nothing; immutable

	listed map[registry.Group]struct{} // the groups of the last list of the target; nil: not listed yet
	asOf   time.Time                   // when that list was requested
	unread map[registry.Group]struct{} // listed groups that were never read
}

// capabilitiesOf returns the capabilities that an engine uses; those of a dry one write nothing.
func capabilitiesOf(target registry.Target, dry bool) registry.Capabilities { //nolint:revive // of the loop, not a mode
	if dry {
		return target.Capabilities().ReadOnly()
	}
	return target.Capabilities()
}

// admitted returns what the first write waits for; nil if it waits for nothing.
func (s *sharedState) admitted() error {
	if s.target.Admission == nil {
		return nil
	}
	return s.target.Admission()
}

// overlap returns how long a replaced entry of a group is kept next to its replacement.
func (s *sharedState) overlap(group registry.Group) time.Duration {
	if s.target.Overlap == nil {
		return 0
	}
	return s.target.Overlap(group)
}

// leads reports whether this replica leads.
func (s *sharedState) leads() bool { return s.opts.Election == nil || s.lead.Role == RoleLeader }

// acts reports whether this replica writes: the leader does, and all replicas of a shared
// target.
func (s *sharedState) acts() bool { return s.leads() || s.target.Shared }

// complete reports whether every source is synced and not stale.
func (s *sharedState) complete() bool {
	return !slices.ContainsFunc(s.pipelines, func(p *pipeline) bool { return !p.complete() })
}

// mayJudge reports whether deletions can be judged: the whole target was read, arrivals
// were written, and the guard records of earlier processes were read.
func (s *sharedState) mayJudge() bool {
	return s.listed != nil && len(s.unread)+len(s.agenda.arrivals) == 0 && s.records.guardsRead
}

// Deletions wait for what the source may still report. A process that was suspended, as by
// SIGSTOP or with its machine, received nothing meanwhile, so its waits begin again.

const (
	// turnAtLeastEvery is the longest time between two turns while deletions wait, so that
	// a suspension makes a turn late.
	turnAtLeastEvery = time.Second

	// maxTurnDelay is how late a turn may be without a suspension.
	maxTurnDelay = time.Second
)

// A clock detects that the process was suspended.
type clock struct {
	nextTurnAt time.Time // when the next turn is due; zero: after the next event
	lastTurnAt time.Time
}

// endTurn records that a turn ends, and when the next turn is due.
func (c *clock) endTurn(due, now time.Time) { c.nextTurnAt, c.lastTurnAt = due, now }

// paused reports whether a turn is late, or the wall clock ran ahead of the monotonic clock,
// as on a suspended machine.
func (c *clock) paused(now time.Time) bool {
	if c.lastTurnAt.IsZero() {
		return false
	}
	slept := now.Round(0).Sub(c.lastTurnAt.Round(0)) - now.Sub(c.lastTurnAt)
	return slept > maxTurnDelay || !c.nextTurnAt.IsZero() && now.Sub(c.nextTurnAt) > maxTurnDelay
}
