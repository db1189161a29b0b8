package bridge

import (
	"errors"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// failed puts a group back that has to be read before it is written again.
func (l *loop) failed(o outcome, now time.Time) {
	it := o.item
	it.readAt = time.Time{}
	it.change.restore(o.first)
	if errors.Is(o.err, registry.ErrConflict) {
		l.raced(it, now)
		return
	}
	l.wasRead(it.group, now)
	it.attempts++
	it.err, l.lastError = o.err, o.err
	if it.attempts == 1 {
		l.failing++
	}
	queue, wait := &l.agenda.changes, l.opts.Retry.After(it.attempts)
	if it.refused() {
		l.finished(it) // it cannot be brought further
		if it.attempts == 1 {
			l.tell(Event{Kind: EventRefused, Subject: it.group.String(), What: o.step + " refused", Why: o.err.Error()})
		}
		queue, wait = &l.agenda.refreshes, l.opts.Retry.Max
	}
	it.notBefore = now.Add(wait)
	it.wait(queue, it.notBefore)
	l.complain(o, wait, now)
	l.observe(Observation{Kind: ObservedRetry, Op: o.step, Count: 1, Err: o.err})
}

func (it *item) refused() bool { return errors.Is(it.err, registry.ErrRefused) }

// raced puts a group back that another changed since it was read: it is read
// again at once, and with growing waits only where that repeats.
func (l *loop) raced(it *item, now time.Time) {
	it.races++
	if it.races == contested {
		l.overruled(it)
	}
	it.notBefore = now
	if it.races > 1 {
		it.notBefore = now.Add(l.opts.Retry.After(it.races - 1))
	}
	it.wait(&l.agenda.changes, it.notBefore)
	l.observe(Observation{Kind: ObservedRetry, Op: stepWrite, Count: 1, Err: registry.ErrConflict})
}

// complain logs failures: the first of an outage, each first refusal, and
// then no more than one in a while.
func (l *loop) complain(o outcome, wait time.Duration, now time.Time) {
	level := l.opts.Log.Debug
	refused := o.item.refused() && o.item.attempts == 1
	if refused || l.failing == 1 && o.item.attempts == 1 || now.Sub(l.warnedAt) >= l.opts.Retry.Max {
		level, l.warnedAt = l.opts.Log.Warn, now
	}
	level("target call failed", "target", l.opts.Target, "step", o.step, "group", o.item.group.String(),
		"attempt", o.item.attempts, "groups_failing", l.failing, "retry_in", wait, "err", o.err)
}
