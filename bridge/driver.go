package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A driver runs an engine: it waits for what happens, hands it to the engine, and makes
// the calls that it asks for. One goroutine, that of run, touches the engine. Beside
// it run the calls.
type driver struct {
	engine            *engine
	target            registry.Target
	tables            []*tableReader
	outcomes          chan outcome
	lost              <-chan struct{}            // Capabilities.Lost of the target; nil once it is closed
	changedByOthers   <-chan struct{}            // ready when others changed a group
	leadershipChanged <-chan struct{}            // ready when the leadership may have changed
	waiters           map[chan<- Status]struct{} // for AwaitIdle
	answered          chan<- struct{}            // closed at the end of the turn; nil: nobody asked anything
	onComplete        func()                     // called once, if the target serves: its claims are complete; nil: that was done
}

// A tableReader reads the table of a bridge.
type tableReader struct {
	reader *registry.Reader
	begun  chan struct{} // closed once the table may be read; see Bridge.Begin
}

func newDriver(l *Loop, dry bool) *driver { //nolint:revive // of the driver, not of the call
	d := &driver{engine: newEngine(l, dry), target: l.target, outcomes: make(chan outcome), waiters: make(map[chan<- Status]struct{})}
	if !dry {
		d.onComplete = d.engine.state.target.SourcesComplete
	}
	return d
}

// run works until ctx ends or, where until is given, until it is true. Calls in
// flight have ended when it returns.
func (d *driver) run(ctx context.Context, asks <-chan question, until func() bool) {
	ctx, cancel := context.WithCancel(ctx)
	wake, stop := d.listen(ctx)
	defer stop()
	defer d.awaitCalls()
	defer cancel()
	d.lost = d.engine.state.target.Lost
	if watcher := d.engine.state.target.Watcher; watcher != nil {
		d.changedByOthers = watcher.Changed()
	}
	if e := d.engine.state.opts.Election; e != nil {
		d.leadershipChanged = e.Changed()
		e.Ready(Leadership{})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for until == nil || !until() {
		happened, ok := d.wait(ctx, wake, asks, timer.C)
		if !ok {
			return
		}
		d.turn(ctx, happened, timer)
	}
}

// wait waits for what happens next, and returns its handler; false where ctx
// has ended.
func (d *driver) wait(ctx context.Context, wake <-chan struct{}, asks <-chan question, due <-chan time.Time) (func(time.Time), bool) {
	nothing := func(time.Time) {}
	select {
	case <-ctx.Done():
		return nil, false
	case <-wake:
		return d.applyTables, true
	case o := <-d.outcomes:
		return func(now time.Time) { d.callDone(o, now) }, true //nolint:contextcheck // below, a log is asked for its level; nothing is waited for
	case _, open := <-d.lost:
		if open {
			return d.engine.LoseSession, true
		}
		d.lost = nil
		return nothing, true
	case <-d.changedByOthers:
		return func(now time.Time) { d.engine.ReadChanged(d.engine.state.target.Watcher.Changes(), now) }, true
	case q := <-asks:
		return func(now time.Time) {
			d.applyTables(now)
			q.ask(d, now)
			d.answered = q.answered
		}, true
	case <-d.leadershipChanged:
	case <-due:
	}
	return nothing, true
}

// turn handles what happened, starts the calls that are due, and sets the timer
// for what comes next.
func (d *driver) turn(ctx context.Context, happened func(time.Time), timer *time.Timer) {
	now, lead := time.Now(), Leadership{}
	if e := d.engine.state.opts.Election; e != nil {
		lead = e.Leadership()
	}
	d.engine.Begin(now, lead)
	happened(now)
	s := d.engine.Step(now)
	for _, c := range s.calls {
		go func() { d.outcomes <- d.makeCall(ctx, c) }()
	}
	if s.ready != nil {
		d.engine.state.opts.Election.Ready(*s.ready)
	}
	for _, i := range s.recheck {
		if recheck := d.engine.state.pipelines[i].Recheck; recheck != nil {
			recheck()
		}
	}
	if d.answerWaiters(now) {
		s.nextAt = now
	}
	if d.answered != nil {
		d.engine.statusCache.update(now)
		close(d.answered)
		d.answered = nil
	}
	if s.nextAt.IsZero() {
		timer.Stop()
	} else {
		timer.Reset(time.Until(s.nextAt))
	}
}

// makeCall makes a call, and gives it up once its time is over, so that a target that
// never answers keeps no worker.
func (d *driver) makeCall(ctx context.Context, c call) outcome {
	o := outcome{call: c}
	limited, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	switch c.op {
	case opList:
		o.groups, o.err = d.target.Groups(limited)
	case opRead:
		read := d.target.Read
		if c.watch {
			read = d.engine.state.target.Watcher.Watch
		}
		o.stored, o.err = read(limited, c.item.group)
	case opWrite:
		o.err = d.target.Write(limited, c.change)
	case opRecords:
		o.consulted, o.err = syncRecords(limited, d.engine.state.target.Records, c)
	}
	if o.err != nil && limited.Err() != nil && ctx.Err() == nil {
		o.err = fmt.Errorf("timed out after %s: %w", c.until.Sub(c.began), o.err)
	}
	return o
}

// listen opens a reader on every table and returns a channel that is ready
// after any of them was written.
func (d *driver) listen(ctx context.Context) (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	var beginning sync.WaitGroup
	for _, w := range d.engine.state.pipelines {
		r := &tableReader{reader: w.Table.ReaderOn(wake, w.Part...), begun: make(chan struct{})}
		d.tables = append(d.tables, r)
		if w.Begin == nil {
			close(r.begun)
			continue
		}
		beginning.Go(func() {
			if w.Begin(ctx) != nil {
				return
			}
			close(r.begun)
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	}
	return wake, func() {
		for _, r := range d.tables {
			r.reader.Close()
		}
		beginning.Wait()
	}
}

// callDone hands the result of a call to the engine.
func (d *driver) callDone(o outcome, now time.Time) {
	if d.engine.CallDone(o, now); o.op == opList {
		d.applyTables(now) // it may have waited for that
	}
}

// applyTables applies what changed in the tables.
func (d *driver) applyTables(now time.Time) {
	if d.engine.waitsForList() {
		return
	}
	for i, r := range d.tables {
		select {
		case <-r.begun:
			d.engine.ApplyDelta(i, r.reader.Drain(), now)
		default:
		}
	}
}

// answerWaiters answers those who wait in AwaitIdle, and reports once that the claims are
// complete. What the tables have by then counts, though no wake-up reported it
// yet; it reports whether that asks for another turn.
func (d *driver) answerWaiters(now time.Time) bool {
	if d.onComplete == nil && len(d.waiters) == 0 || !d.engine.allStored() {
		return false
	}
	before := d.engine.state.agenda.nextDueAt()
	d.applyTables(now)
	if !d.engine.allStored() || !d.engine.state.agenda.nextDueAt().Equal(before) || d.engine.state.mayJudge() && d.engine.guards.judgementDue() {
		return true
	}
	if d.onComplete != nil {
		d.onComplete()
		d.onComplete = nil
	}
	if len(d.waiters) > 0 && d.engine.isIdle() {
		d.engine.statusCache.update(now)
		for w := range d.waiters {
			w <- d.engine.statusCache.status()
		}
		clear(d.waiters)
	}
	return false
}

// awaitCalls waits for the calls in flight.
func (d *driver) awaitCalls() {
	for ; d.engine.calls > 0; d.engine.calls-- {
		<-d.outcomes
	}
}

// A question is what somebody asks of a loop. It is answered once a turn handled
// it and status shows the result.
type question struct {
	ask      func(*driver, time.Time)
	answered chan<- struct{}
}

// ask runs f in the goroutine of the loop, after the loop has applied what the
// tables hold by now.
func (l *Loop) ask(ctx context.Context, f func(*driver, time.Time)) error {
	answered := make(chan struct{})
	select {
	case l.asks <- question{f, answered}:
		<-answered
		return nil
	case <-l.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
