package bridge

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An engine decides what is done to one target. It is given what sources tell,
// what came of calls, who leads and the time, and returns the calls to make. It
// starts nothing but projections, reads no clock and does no I/O: the same events
// at the same times give the same calls. It is not safe for concurrent use.
type engine struct {
	*facts

	guards *guards
	view   *view
	calls  int    // under way
	checks int    // of these, readings of what is as it should be, as far as is known
	budget budget // of calls
	clock  clock
	relist bool // the next list is taken as if it were the first

	tookOverAt  time.Time  // when everything had to be read anew last
	confirmed   Leadership // for which the election was last told to be ready
	confirmedAt time.Time  // when that was last looked at
}

// newEngine returns the engine of a loop. A dry one writes nothing and shows what
// a leader would.
func newEngine(l *Loop, dry bool) *engine { //nolint:revive // of the engine, not of the call
	f := &facts{
		opts: l.opts, dry: dry, target: traitsOf(l.target, dry),
		planner: plan.New(l.opts.Owner), agenda: &agenda{items: make(map[registry.Group]*item)},
		records: newRecords(l.target, dry), unread: make(map[registry.Group]struct{}),
	}
	if dry {
		f.opts.Election, f.opts.Observe, f.opts.Log = nil, nil, slog.New(slog.DiscardHandler)
	}
	f.agenda.opts, f.journal = &f.opts, &journal{facts: f}
	e := &engine{facts: f, budget: budget{opts: &f.opts}}
	e.guards = &guards{facts: f, owing: make(map[*item]struct{})}
	e.view = newView(e)
	if slices.ContainsFunc(l.bridges, func(b Bridge) bool { return b.Yields != nil }) {
		f.planner.Yields = func(o plan.Origin, entry registry.Entry) bool {
			yields := l.bridges[o.Bridge].Yields
			return yields != nil && yields(entry)
		}
	}
	for i, b := range l.bridges {
		w := &way{
			Bridge: b, index: i, services: make(map[registry.Name]*service), moved: make(map[registry.Name]struct{}),
			reasons: make(map[Reason]int), unknowns: make(map[string]string),
		}
		f.ways = append(f.ways, w)
		e.guards.addScope(w.Name, w)
	}
	return e
}

// Begin begins a turn: what is told until the next one happens at this time. Where
// the process stood still all waits begin anew.
func (e *engine) Begin(now time.Time, lead Leadership) {
	e.journal.now = now
	if list, isNew := e.agenda.item(registry.Group{}); isNew {
		e.lead = lead
		list.wait(&e.agenda.changes, now)
	}
	e.follow(lead, now)
	if e.clock.paused(now) {
		for _, b := range e.guards.scopes {
			e.guards.restart(b, now)
		}
	}
}

// Step decides what is to be done. It returns the calls to make, and when it has
// to be called again; the zero time where only an event helps.
func (e *engine) Step(now time.Time) (calls []call, next time.Time) {
	next = e.guards.judgeAll(now)
	calls = e.due(now)
	if e.mayJudge() && e.guards.unjudged() { // what was to be added came to an end in this turn
		next = now
	}
	consult, at := e.guards.consult(now)
	calls = append(calls, consult...)
	e.calls += len(calls)
	next = soonest(soonest(next, at), soonest(e.confirm(now), e.view.publish(now)))
	if at := e.agenda.next(); !at.IsZero() && e.working() < e.budget.calls() {
		next = soonest(next, later(at, e.budget.opens()))
	}
	if len(e.guards.owing) > 0 {
		next = soonest(next, now.Add(pulse))
	}
	e.clock.set(next, now)
	return calls, next
}

// waitsForList reports whether sources must not be taken in yet: what is served
// may depend on what was served before.
func (e *engine) waitsForList() bool { return e.target.serves && e.listed == nil }

// Take takes in what the source of a bridge told.
func (e *engine) Take(bridge int, d registry.Delta, now time.Time) {
	w := e.ways[bridge]
	mayGo, fresh := w.learn(d, now)
	if fresh {
		e.guards.restart(e.guards.scopes[bridge], now)
	}
	w.moveScopes(d.Scopes)
	for p := range w.projectAll(d.Rows) {
		e.claim(w, p, now)
	}
	if mayGo {
		e.guards.review(now)
	}
}

// claim hands what became of a service to the planner.
func (e *engine) claim(w *way, p *projected, now time.Time) {
	if p.err == nil {
		origin := plan.Origin{Bridge: w.index, Service: p.name}
		for _, group := range e.planner.Claim(origin, w.evidence(p.row), p.entries) {
			if e.listed != nil { // else it becomes due once the target is listed
				e.touch(group, now)
			}
		}
	}
	if w.note(p.name, p.state) && p.state.reason == ReasonInvalid {
		e.journal.invalid(w, p)
	}
}

// touch makes a group due whose claims changed. One that is new to the agenda
// and was not listed is known to be empty and needs no reading.
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

// Lose makes every group due in which something of ours has to be written
// once more, without a reading in between. A write under way may have gone to
// either session, so its group is read.
func (e *engine) Lose(now time.Time) {
	e.journal.tell(Event{Kind: EventSession, What: "session lost; everything of ours is written once more"})
	e.opts.Log.Info("the target lost its session; everything of ours is written once more", "target", e.opts.Target)
	for _, it := range e.agenda.items {
		it.again = it.again || it.busy
	}
	for _, it := range e.agenda.all() {
		if it.watched && !e.planner.Owned(it.group) { // else it is read after it was written
			e.readAgain(it, now)
		}
	}
	for _, group := range e.planner.Lost() {
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
		e.guards.inform(it, now) // what stayed may be let go by now
		e.readAgain(it, now)
	}
	e.relist = true
}

// Disturb makes groups be read once more that changed, which ends the watch of one
// that is of no concern. Who writes nothing reads them once it has to.
func (e *engine) Disturb(groups []registry.Group, now time.Time) {
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
// tells of what others do before that.
func (e *engine) readChanged(it *item, now time.Time) {
	at := later(it.readAt, it.wroteAt).Add(e.target.verify)
	switch {
	case !it.changed || it.busy:
	case !it.unchecked() && !now.Before(at):
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

// quiet reports whether nothing is left to do but what waits for an event.
func (e *engine) quiet() bool {
	return e.stored() && len(e.agenda.changes) == 0 && !e.guards.unjudged() && e.records.settled() &&
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
	e.opts.Quiet, e.opts.MaxQuiet, e.opts.Refresh = opts.Quiet, opts.MaxQuiet, opts.Refresh
	for i, w := range e.ways {
		if g, ok := guards[w.Name]; ok {
			w.Guard = g
			w.Guard.Mode = cmp.Or(g.Mode, GuardEnforce)
			e.guards.scopes[i].guard.Options, e.guards.scopes[i].changed = w.Guard, true
		}
	}
	e.guards.review(now)
}
