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
	*facts

	guards *guards
	view   *view
	calls  int    // in flight
	checks int    // of these, readings of what is as it should be, as far as is known
	budget budget // of calls
	clock  clock
	relist bool // the next list is handled as the first

	contradictions contradictions

	takeoverAt     time.Time  // when everything had to be read anew last
	reported       Leadership // that was last reported to the election as ready
	checkedReadyAt time.Time  // when that was last looked at
}

// newEngine returns the engine of a loop. A dry one writes nothing and shows what
// a leader would.
func newEngine(l *Loop, dry bool) *engine { //nolint:revive // of the engine, not of the call
	f := &facts{
		opts: l.opts, dry: dry, target: capabilitiesOf(l.target, dry),
		planner: plan.New(l.opts.Owner), agenda: &agenda{items: make(map[registry.Group]*item)},
		records: newRecords(l.target.Capabilities().Records != nil, dry), unread: make(map[registry.Group]struct{}),
	}
	if dry {
		f.opts.Election, f.opts.Observe, f.opts.Log = nil, nil, slog.New(slog.DiscardHandler)
	}
	f.drains = &drains{facts: f, groups: make(map[registry.Group]map[string]bool)}
	f.planner.Drained = f.drains.has
	f.agenda.opts, f.journal = &f.opts, &journal{facts: f}
	e := &engine{facts: f, budget: budget{opts: &f.opts}, contradictions: contradictions{by: make(map[registry.Group]map[registry.Group]struct{})}}
	e.guards = &guards{facts: f, withOrphans: make(map[*item]struct{}), recording: make(map[*item]time.Time)}
	e.view = newView(e)
	if slices.ContainsFunc(l.bridges, func(b Bridge) bool { return b.Yields != nil }) {
		f.planner.Yields = func(o plan.Origin, entry registry.Entry) bool {
			yields := l.bridges[o.Bridge].Yields
			return yields != nil && yields(entry)
		}
	}
	for i, b := range l.bridges {
		p := &pipeline{
			Bridge: b, index: i, services: make(map[registry.Name]*service), dirty: make(map[registry.Name]struct{}),
			reasons: make(map[Reason]int), unknowns: make(map[string]string),
		}
		f.pipelines = append(f.pipelines, p)
		e.guards.addScope(p.Name, p)
	}
	return e
}

// Begin begins a turn: all events until the next one happen at this time. If the
// process was suspended, all waits begin anew.
func (e *engine) Begin(now time.Time, lead Leadership) {
	e.journal.now = now
	if list, isNew := e.agenda.item(registry.Group{}); isNew {
		e.lead = lead
		list.wait(&e.agenda.changes, now)
	}
	e.applyLeadership(lead, now)
	if e.clock.paused(now) {
		for _, b := range e.guards.scopes {
			e.guards.restart(b, now)
		}
	}
}

// A step is what an engine asks its driver for.
type step struct {
	calls   []call
	next    time.Time   // when Step has to be called again; zero: only an event helps
	ready   *Leadership // to report to the election; nil: nothing
	recheck []int       // bridges whose sources are to be read over a new connection
}

// wake has Step be called again at a time; the zero time means never.
func (s *step) wake(at time.Time) { s.next = soonest(s.next, at) }

// Step decides what is to be done.
func (e *engine) Step(now time.Time) step {
	var s step
	e.guards.judgeAll(&s, now)
	s.calls = e.due(now)
	if e.mayJudge() && e.guards.judgementDue() { // what was to be added came to an end in this turn
		s.wake(now)
	}
	e.guards.addRecordsCall(&s, now)
	e.calls += len(s.calls)
	e.reportReady(&s, now)
	s.wake(e.view.publish(now))
	if at := e.agenda.next(); !at.IsZero() && e.working() < e.budget.calls() {
		s.wake(later(at, e.budget.opens()))
	}
	if len(e.guards.withOrphans) > 0 {
		s.wake(now.Add(pulse))
	}
	e.clock.set(s.next, now)
	return s
}

// waitsForList reports whether sources must not be applied yet: what is served
// may depend on what was served before.
func (e *engine) waitsForList() bool { return e.target.SourcesComplete != nil && e.listed == nil }

// ApplyDelta applies what the source of a bridge reported.
func (e *engine) ApplyDelta(bridge int, d registry.Delta, now time.Time) {
	p := e.pipelines[bridge]
	mayGo, fresh := p.setCertainty(d, now)
	if fresh {
		e.guards.restart(e.guards.scopes[bridge], now)
	}
	p.markScopes(d.Scopes)
	for one := range p.projectAll(d.Rows) {
		e.claim(p, one, now)
	}
	e.drains.forget()
	if mayGo {
		e.guards.review(now)
	}
}

// claim hands what a service claims to the planner.
func (e *engine) claim(p *pipeline, one *projected, now time.Time) {
	origin := plan.Origin{Bridge: p.index, Service: one.name}
	for _, group := range e.planner.Claim(origin, p.evidence(one.row), one.entries) {
		if e.listed != nil { // else it is due once the target is listed
			e.touch(group, now)
		}
	}
	if p.set(one.name, one.state) && one.state.reason == ReasonUnwritable {
		e.journal.reportUnwritable(p, one)
	}
}

// touch makes a group due whose claims changed. One that is new to the agenda
// and was not listed is known to be empty and is not read.
func (e *engine) touch(group registry.Group, now time.Time) {
	it, isNew := e.agenda.item(group)
	if isNew {
		if _, listed := e.listed[group]; !listed {
			it.readAt, it.arrive = e.asOf, true
		}
	} else {
		e.guards.account(it, now)
	}
	if e.agenda.touch(it, now) {
		e.journal.observe(Observation{Kind: ObservedCoalesce, Count: 1})
	}
}

// LoseSession makes every group due in which something of ours has to be written
// once more, without a reading in between. A write in flight may have gone to
// either session, so its group is read.
func (e *engine) LoseSession(now time.Time) {
	e.journal.emit(Event{Kind: EventSession, What: "session lost; everything of ours is written once more"})
	e.opts.Log.Info("the target lost its session; everything of ours is written once more", "target", e.opts.Target)
	for _, it := range e.agenda.items {
		it.again = it.again || it.busy
	}
	for _, it := range e.agenda.all() {
		if it.watched && !e.planner.HoldsOurs(it.group) { // else it is read after it was written
			e.readAgain(it, now)
		}
	}
	for _, group := range e.planner.SessionLost() {
		it, _ := e.agenda.item(group)
		if !it.readAt.IsZero() {
			it.readAt = now
		}
		it.change.written, it.change.spent = time.Time{}, time.Time{}
		e.agenda.touch(it, now)
	}
}

// resync makes everything be read and compared again.
func (e *engine) resync(now time.Time) {
	list, _ := e.agenda.item(registry.Group{})
	for _, it := range append(e.agenda.all(), list) {
		e.guards.account(it, now) // what stayed may be let go by now
		e.readAgain(it, now)
	}
	e.relist = true
}

// ReadChanged makes groups be read once more that changed, which ends the watch of one
// that is of no concern. Who writes nothing reads them once it has to.
func (e *engine) ReadChanged(groups []registry.Group, now time.Time) {
	if !e.acts() {
		return
	}
	for _, group := range groups {
		it, _ := e.agenda.item(group)
		it.changed = true
		e.readChanged(it, now)
	}
}

// readChanged makes a group be read that changed since it was: at once, but no
// sooner after it was read or written than it is read back. After a write, which may
// be what changed it, that is its reading back, and this is not put off: nothing
// reports what others do before that.
func (e *engine) readChanged(it *item, now time.Time) {
	at := later(it.readAt, it.wroteAt).Add(e.target.VerifyAfter)
	switch {
	case !it.changed || it.busy:
	case !it.unchecked() && !now.Before(at):
		it.sure = !it.readAt.IsZero()
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
		it.again = true
		return
	}
	it.readAt = time.Time{}
	it.wait(&e.agenda.changes, later(now, it.notBefore))
}

// isIdle reports whether nothing is left to do but what waits for an event.
func (e *engine) isIdle() bool {
	return e.stored() && len(e.agenda.changes) == 0 && !e.guards.judgementDue() && e.records.allStored() &&
		!slices.ContainsFunc(e.guards.scopes, func(b *scope) bool { return b.waits })
}

// stored reports whether everything was read and everything that is to be put
// was put. Deletions may still wait: in a large registry there always is one.
func (e *engine) stored() bool {
	return e.complete() && e.listed != nil && e.calls == e.checks && len(e.unread)+len(e.agenda.arrivals) == 0 &&
		!slices.ContainsFunc(e.agenda.changes, func(it *item) bool { return !it.waits() })
}

func (e *engine) tune(guards map[string]Guard, opts Options, now time.Time) {
	opts = opts.withDefaults()
	e.opts.Workers, e.opts.Rate, e.opts.Timeout, e.opts.Retry = opts.Workers, opts.Rate, opts.Timeout, opts.Retry
	e.opts.Debounce, e.opts.MaxDebounce, e.opts.Refresh = opts.Debounce, opts.MaxDebounce, opts.Refresh
	for i, p := range e.pipelines {
		if g, ok := guards[p.Name]; ok {
			p.Guard = g
			p.Guard.Mode = cmp.Or(g.Mode, GuardEnforce)
			e.guards.scopes[i].guard.Options, e.guards.scopes[i].changed = p.Guard, true
		}
	}
	e.guards.review(now)
}

// facts are what an engine knows of its sources, of its target, and of who leads.
type facts struct {
	opts      Options
	target    registry.Capabilities
	planner   *plan.Planner
	agenda    *agenda
	pipelines []*pipeline
	records   *records
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
func (f *facts) admitted() error {
	if f.target.Admission == nil {
		return nil
	}
	return f.target.Admission()
}

// overlap returns how long a replaced entry of a group stays next to the entry that
// replaces it.
func (f *facts) overlap(group registry.Group) time.Duration {
	if f.target.Overlap == nil {
		return 0
	}
	return f.target.Overlap(group)
}

// leads reports whether this replica leads.
func (f *facts) leads() bool { return f.opts.Election == nil || f.lead.Role == RoleLeader }

// acts reports whether there is something to write.
func (f *facts) acts() bool { return f.leads() || f.target.Shared }

// complete reports whether every source reported everything and still does.
func (f *facts) complete() bool {
	return !slices.ContainsFunc(f.pipelines, func(p *pipeline) bool { return !p.complete() })
}

// mayJudge reports whether what the target stores is known well enough to judge
// what may be deleted: all of it was read, what is to be added was added once,
// and what an earlier process recorded is known.
func (f *facts) mayJudge() bool {
	return f.listed != nil && len(f.unread)+len(f.agenda.arrivals) == 0 && f.records.loaded
}

// Waits are for what the source may still say. While the process was suspended,
// as by SIGSTOP or with its machine, nothing was heard, so that waits begin
// anew after it.

const (
	// pulse is how often the loop turns at least while deletions wait, so that
	// a pause shows in how late a turn is.
	pulse = time.Second

	// late is how much later than its timer a turn is after a pause.
	late = time.Second
)

// A clock reports whether the process was suspended.
type clock struct {
	due  time.Time // when the next turn is to be at the latest; zero: no such time
	seen time.Time // when the last one was
}

// set records that a turn ends, and when the next one is due.
func (c *clock) set(due, now time.Time) { c.due, c.seen = due, now }

// paused reports whether a turn is late, or the clock on the wall continued
// without the one that timers follow, as on a machine that was suspended.
func (c *clock) paused(now time.Time) bool {
	slept := now.Round(0).Sub(c.seen.Round(0)) - now.Sub(c.seen)
	return !c.seen.IsZero() && (slept > late || !c.due.IsZero() && now.Sub(c.due) > late)
}
