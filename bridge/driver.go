package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A driver runs an engine: it waits for events, hands them to the engine, and makes the
// calls that the engine returns. The goroutine of run is the only one that touches the
// driver and its engine; each call runs in a goroutine of its own.
type driver struct {
	engine *engine
	target registry.Target
	tables []*tableReader

	// What run waits for.
	outcomes          chan outcome
	lost              <-chan struct{} // Capabilities.Lost of the target; nil once it is closed
	changedByOthers   <-chan struct{} // ready after others changed a watched group
	leadershipChanged <-chan struct{} // ready after the leadership may have changed

	waiters    map[chan<- Status]struct{} // of AwaitIdle
	answered   chan<- struct{}            // closed at the end of the turn that answers a question; nil: none
	onComplete func()                     // Capabilities.SourcesComplete; nil: none, or already called
}

// A tableReader reads the table of a bridge.
type tableReader struct {
	reader *registry.Reader
	begun  chan struct{} // closed once the table may be read; see Bridge.Begin
}

func newDriver(l *Loop, dry bool) *driver { //nolint:revive // of the driver, not of the call
	d := &driver{
		engine: newEngine(l, dry), target: l.target,
		outcomes: make(chan outcome), waiters: make(map[chan<- Status]struct{}),
	}
	if !dry {
		d.onComplete = d.engine.state.target.SourcesComplete
	}
	return d
}

// run works until ctx ends or until is true, which may be nil. It returns after the calls
// in flight have ended.
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

// wait waits for the next event and returns its handler; false if ctx has ended.
func (d *driver) wait(
	ctx context.Context, wake <-chan struct{}, asks <-chan question, due <-chan time.Time,
) (handler func(time.Time), ok bool) {
	nothing := func(time.Time) {}
	select {
	case <-ctx.Done():
		return nil, false
	case <-wake:
		return d.applyTables, true
	case o := <-d.outcomes:
		//nolint:contextcheck // below, a log is asked for its level; nothing is waited for
		return func(now time.Time) { d.callDone(o, now) }, true
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

// turn handles an event, starts the calls that are due, and sets the timer for the next
// turn.
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

// makeCall makes a call and returns its outcome. A call ends at its deadline, so that a
// target that never answers does not block a worker forever.
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

// listen opens a reader of every table. It returns a channel that is ready after any table
// was written or could first be read, and a function that closes the readers.
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
		d.applyTables(now) // the tables may have waited for the list
	}
}

// applyTables applies the changes of the tables. Until the first list of the target, it may
// have to leave them there.
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

// answerWaiters answers AwaitIdle, and calls onComplete once everything is stored. Both
// include changes of the tables that have not woken the loop yet. It reports whether these
// require another turn first.
func (d *driver) answerWaiters(now time.Time) bool {
	if d.onComplete == nil && len(d.waiters) == 0 || !d.engine.allStored() {
		return false
	}
	before := d.engine.state.agenda.nextDueAt()
	d.applyTables(now)
	again := !d.engine.allStored() || !d.engine.state.agenda.nextDueAt().Equal(before)
	if again || d.engine.state.mayJudge() && d.engine.guards.judgementDue() {
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

// awaitCalls waits until the calls in flight have ended, and drops their results.
func (d *driver) awaitCalls() {
	for ; d.engine.calls > 0; d.engine.calls-- {
		<-d.outcomes
	}
}

// A question is a call of a method of Loop. It is answered at the end of the turn that
// handled it, when status shows the result.
type question struct {
	ask      func(*driver, time.Time)
	answered chan<- struct{}
}

// ask runs f in the goroutine of the loop, after the loop has applied the current content
// of the tables. It fails if the loop has stopped, or if ctx ends before the loop answers.
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
