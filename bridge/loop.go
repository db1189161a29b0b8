package bridge

import (
	"context"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A loop is a running Loop. Only the goroutine in run touches it; calls to
// the target run beside it and come back as outcomes.
type loop struct {
	target   registry.Target
	opts     Options
	planner  *plan.Planner
	agenda   *agenda
	ways     []*way
	shared   bool // several replicas publish the same, and readers see the sum
	outcomes chan outcome
	calls    int    // under way
	budget   budget // of calls
	clock    clock
	dry      bool          // nothing is written
	served   bool          // a target that serves was told that it is complete
	verify   time.Duration // how long after a write a group is read back; 0: not

	listed map[registry.Group]struct{} // the groups the target told of last; nil before that
	asOf   time.Time                   // when it was asked for them
	unread map[registry.Group]struct{} // groups listed that still have to be read once
	relist bool                        // the next list is taken as if it were the first

	scopes []*scope           // by bridge
	owing  map[*item]struct{} // items with orphans

	lead        Leadership // as it was last taken in
	takeovers   int        // how often everything had to be read anew, the start included
	tookOverAt  time.Time  // when that was last
	confirmed   Leadership // for which the election was last told to be ready
	confirmedAt time.Time  // when that was last looked at

	records records

	tally     *tally
	board     *board
	published time.Time // when the board was last written

	waiters   map[chan<- Status]struct{}
	failing   int       // groups whose last call failed
	warnedAt  time.Time // when that was last logged
	driftedAt time.Time // when drift was last logged
	refusedAt time.Time // when a refused claim was last logged
	wasInSync bool      // that was logged
	lastRead  time.Time
	lastWrite time.Time
	lastError error
}

func newLoop(l *Loop) *loop {
	r := &loop{
		target:   l.target,
		opts:     l.opts,
		planner:  plan.New(l.opts.Owner),
		agenda:   newAgenda(l.opts.Quiet, l.opts.MaxQuiet),
		outcomes: make(chan outcome),
		budget:   budget{most: l.opts.Workers, rate: l.opts.Rate},
		unread:   make(map[registry.Group]struct{}),
		owing:    make(map[*item]struct{}),
		tally:    newTally(len(l.bridges)),
		board:    &l.board,
		waiters:  make(map[chan<- Status]struct{}),
	}
	if v, ok := l.target.(registry.Verified); ok {
		r.verify = v.VerifyAfter()
	}
	if e := l.opts.Election; e != nil {
		r.lead, r.takeovers = e.Leadership(), 1
		_, r.shared = l.target.(registry.Shared)
	}
	r.records.recorder, _ = l.target.(registry.Recorder)
	r.records.applied = make(map[string]decision)
	for i, b := range l.bridges {
		w := &way{Bridge: b, index: i, services: make(map[registry.Name]*service), moved: make(map[registry.Name]struct{})}
		r.ways = append(r.ways, w)
	}
	return r
}

// run works until ctx ends or, where until is given, until nothing is left to
// do. Calls under way have ended when it returns.
func (l *loop) run(ctx context.Context, asks <-chan func(*loop), until func() bool) {
	ctx, cancel := context.WithCancel(ctx)
	wake, stop := l.listen(ctx)
	defer stop()
	defer l.drain()
	defer cancel()
	lost := l.sessions()
	if l.opts.Election != nil {
		l.opts.Election.Ready(Leadership{})
	}
	list, _ := l.agenda.item(registry.Group{})
	list.wait(&l.agenda.changes, time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for until == nil || !until() {
		select {
		case <-ctx.Done():
			return
		case <-wake:
			l.look(time.Now())
		case o := <-l.outcomes:
			l.settle(o, time.Now()) //nolint:contextcheck // below, a log is asked for its level; nothing is waited for
		case _, ok := <-lost:
			if !ok {
				lost = nil
				continue
			}
			l.lose(time.Now())
		case f := <-asks:
			f(l)
		case <-l.changed():
			l.lookAtElection(time.Now())
		case <-timer.C:
		}
		l.resume(time.Now())
		l.turn(ctx, timer)
	}
}

// sessions returns what is ready when the target lost a session of ours.
func (l *loop) sessions() <-chan struct{} {
	if s, ok := l.target.(registry.Sessioned); ok && !l.dry {
		return s.Lost()
	}
	return nil
}

// turn does what is due and sets the timer for what comes next.
func (l *loop) turn(ctx context.Context, timer *time.Timer) {
	next := l.judgeAll(time.Now())
	l.dispatch(ctx)
	l.answer()
	now := time.Now()
	if l.mayJudge() && l.unjudged() { // what was to be added came to an end in this turn
		next = now
	}
	next = soonest(next, soonest(l.confirm(now), l.consult(ctx, now)))
	next = soonest(next, l.publish(now))
	if at := l.agenda.next(); !at.IsZero() && l.calls < l.budget.calls() {
		next = soonest(next, later(at, l.budget.opens()))
	}
	if len(l.owing) > 0 {
		next = soonest(next, now.Add(pulse))
	}
	if l.clock.set(next, now); next.IsZero() {
		timer.Stop()
	} else {
		timer.Reset(time.Until(next))
	}
}

// listen opens a reader on every table and returns a channel that is ready
// after any of them was written.
func (l *loop) listen(ctx context.Context) (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	done := make(chan struct{}, len(l.ways))
	for _, w := range l.ways {
		l.addScope(w.Name, w)
		w.open()
		go func() {
			defer func() { done <- struct{}{} }()
			w.forward(ctx, wake)
		}()
	}
	return wake, func() {
		for _, w := range l.ways {
			w.reader.Close()
			<-done
		}
	}
}

func forward(ctx context.Context, from <-chan struct{}, to chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
		}
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

// look takes in what changed in the tables. What is served may depend on what
// was served before, so that it waits for the list of that. (V28).
func (l *loop) look(now time.Time) {
	if _, serves := l.target.(registry.Serving); serves && l.listed == nil {
		return
	}
	for _, w := range l.ways {
		if !w.mayLook() {
			continue
		}
		d, fresh := w.reader.Drain(), w.fresh
		mayGo := w.learn(d, now)
		if w.fresh != fresh {
			l.restart(l.scopes[w.index], now)
		}
		w.moveScopes(d.Scopes)
		for p := range w.projectAll(d.Rows) {
			l.claim(w, p, now)
		}
		if mayGo {
			l.review(now)
		}
	}
}

// claim hands what became of a service to the planner.
func (l *loop) claim(w *way, p *projected, now time.Time) {
	if p.err == nil {
		origin := plan.Origin{Bridge: w.index, Service: p.name}
		for _, group := range l.planner.Claim(origin, w.evidence(p.row), p.entries) {
			if l.listed != nil { // else it becomes due once the target is listed
				l.touch(group, now)
			}
		}
	}
	if w.note(p.name, p.state) && p.err != nil {
		l.observe(Observation{Kind: ObservedInvalid, Bridge: w.Name, Count: 1, Err: p.err})
		l.tell(Event{Kind: EventInvalid, Bridge: w.Name, Subject: string(p.name), What: "left as it was", Why: p.err.Error()})
		l.opts.Log.Warn("service left as it was", "bridge", w.Name, "service", p.name, "err", p.err)
	}
}

// touch makes a group due whose claims changed. One that is new to the agenda
// and was not listed is known to be empty and needs no reading.
func (l *loop) touch(group registry.Group, now time.Time) {
	it, isNew := l.agenda.item(group)
	if isNew {
		if _, listed := l.listed[group]; !listed {
			it.readAt, it.arrive = l.asOf, true
		}
	} else {
		l.account(it, now)
	}
	if l.agenda.touch(it, now) {
		l.observe(Observation{Kind: ObservedCoalesce, Count: 1})
	}
}

// review makes every group due in which a deletion may have been waiting for
// more than time.
func (l *loop) review(now time.Time) {
	for it := range l.owing {
		l.inform(it, now)
		l.agenda.touch(it, now)
	}
}

// lose makes every group due in which something of ours has to be written
// once more, without a reading in between. A write under way may have gone to
// either session, so its group is read.
func (l *loop) lose(now time.Time) {
	l.tell(Event{Kind: EventSession, What: "session lost; everything of ours is written once more"})
	l.opts.Log.Info("the target lost its session; everything of ours is written once more", "target", l.opts.Target)
	for _, it := range l.agenda.items {
		it.again = it.again || it.busy
	}
	for _, group := range l.planner.Lost() {
		it, _ := l.agenda.item(group)
		if !it.readAt.IsZero() {
			it.readAt = now
		}
		it.change.written, it.change.spent = time.Time{}, time.Time{}
		l.agenda.touch(it, now)
	}
}

// resync makes everything be read and compared again.
func (l *loop) resync(now time.Time) {
	for _, it := range l.agenda.items {
		l.inform(it, now) // what stayed may be let go by now
		if it.busy {
			it.again = true
			continue
		}
		it.readAt = time.Time{}
		it.wait(&l.agenda.changes, later(now, it.notBefore))
	}
	l.relist = true
}

// quiet reports whether nothing is left to do but what waits for an event.
func (l *loop) quiet() bool {
	return l.stored() && len(l.agenda.changes) == 0 && !l.unjudged() &&
		!slices.ContainsFunc(l.scopes, func(b *scope) bool { return b.waits || len(b.unstored) > 0 })
}

// stored reports whether everything was read and everything that is to be put
// was put. Deletions may still wait: in a large registry there always is one.
func (l *loop) stored() bool {
	for _, w := range l.ways {
		if !w.complete() {
			return false
		}
	}
	return l.listed != nil && l.calls == 0 && len(l.unread)+len(l.agenda.arrivals) == 0 &&
		!slices.ContainsFunc(l.agenda.changes, func(it *item) bool { return !it.waits() })
}

// answer tells those who wait for quiet, and a target that serves the first
// time. What the tables tell by then counts, though no wake-up told of it yet.
func (l *loop) answer() {
	serving, serves := l.target.(registry.Serving)
	first := serves && !l.served && !l.dry
	if !first && len(l.waiters) == 0 || !l.stored() {
		return
	}
	if l.look(time.Now()); !l.stored() {
		return
	}
	if first {
		l.served = true
		serving.Settled()
	}
	if len(l.waiters) == 0 || !l.quiet() {
		return
	}
	for w := range l.waiters {
		w <- l.overview(time.Now())
	}
	clear(l.waiters)
}

func (l *loop) observe(o Observation) {
	if l.opts.Observe != nil {
		l.opts.Observe(o)
	}
}

// drain waits for the calls under way.
func (l *loop) drain() {
	for ; l.calls > 0; l.calls-- {
		<-l.outcomes
	}
}
