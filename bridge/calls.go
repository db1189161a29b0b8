package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// recent is how old a reading may be that a leftover is deleted by.
const recent = time.Second

// A step is one call to the target.
type step struct {
	name string
	call func(context.Context, *outcome)
}

// The steps, as logs and observations call them.
const (
	stepList  = "list"
	stepRead  = "read"
	stepWrite = "write"
)

// An outcome is what came of a step.
type outcome struct {
	step   string
	item   *item
	began  time.Time
	first  time.Time // when the first of the changes written was seen
	groups []registry.Group
	held   []registry.Held
	change registry.Change
	err    error
}

// dispatch starts the calls that are due, as many as may run at a time.
func (l *loop) dispatch(ctx context.Context) {
	for l.calls < l.opts.Workers {
		now := time.Now()
		it := l.agenda.take(now)
		if it == nil {
			return
		}
		s, ok := l.next(it, now)
		if !ok {
			l.rest(it, now)
			continue
		}
		l.calls++
		go func() {
			o := outcome{step: s.name, item: it, began: now}
			s.call(ctx, &o)
			l.outcomes <- o
		}()
	}
}

// next decides what to do about a group that is due: list, read, write, or
// nothing.
func (l *loop) next(it *item, now time.Time) (step, bool) {
	if it.group.IsZero() {
		return step{stepList, func(ctx context.Context, o *outcome) { o.groups, o.err = l.target.Groups(ctx) }}, true
	}
	read := step{stepRead, func(ctx context.Context, o *outcome) { o.held, o.err = l.target.Read(ctx, it.group) }}
	if !l.trusted(it, now) {
		return read, true
	}
	change := l.permit(it, now)
	if change.Empty() || l.dry {
		return step{}, false
	}
	if now.Sub(it.readAt) > recent && it.removesLeftover(change) {
		return read, true
	}
	first := it.change.begin(now)
	if first.IsZero() {
		first = now
	}
	return step{stepWrite, func(ctx context.Context, o *outcome) {
		o.first, o.change = first, change
		o.err = l.target.Write(ctx, change)
	}}, true
}

// trusted reports whether what is believed of a group needs no reading. For a
// change it is trusted longer, so that changes need not wait for a refresh
// that is late.
func (l *loop) trusted(it *item, now time.Time) bool {
	switch {
	case it.readAt.IsZero():
		return false
	case it.change.pending():
		return now.Sub(it.readAt) < 2*l.opts.Refresh
	}
	return now.Sub(it.readAt) < spread(it.group, l.opts.Refresh)
}

func (it *item) removesLeftover(c registry.Change) bool {
	for _, h := range c.Delete {
		if s := it.surplus[h.Key]; s != nil && s.leftover() {
			return true
		}
	}
	return false
}

// settle takes an outcome in and puts its group back on the agenda.
func (l *loop) settle(o outcome, now time.Time) {
	l.calls--
	l.observe(Observation{Kind: ObservedCall, Op: o.step, Count: 1, Took: now.Sub(o.began), Err: o.err})
	if o.err != nil {
		l.failed(o, now)
		return
	}
	switch o.step {
	case stepList:
		l.succeeded(o.item)
		l.sawGroups(o, now)
		o.item.wait(&l.agenda.refreshes, now.Add(l.opts.Refresh))
		l.repeat(o.item, now)
	case stepRead:
		l.sawHeld(o, now)
	case stepWrite:
		l.wrote(o, now)
	}
}

// sawGroups takes the target's list of groups in and puts those that are new
// on the agenda.
func (l *loop) sawGroups(o outcome, now time.Time) {
	before := l.listed
	l.listed, l.asOf = make(map[registry.Group]struct{}, len(o.groups)), o.began
	for _, group := range o.groups {
		l.listed[group] = struct{}{}
		if _, old := before[group]; old && !l.relist {
			continue
		}
		if it, isNew := l.agenda.item(group); isNew {
			l.unread[group] = struct{}{}
			it.wait(&l.agenda.refreshes, now)
		}
	}
	l.relist = false
	if before != nil {
		return
	}
	for group := range l.planner.Groups() {
		l.touch(group, now)
	}
}

// sawHeld takes in what a group holds. The group is looked at once more, to
// write what has to be.
func (l *loop) sawHeld(o outcome, now time.Time) {
	it := o.item
	believed := !it.readAt.IsZero()
	if l.planner.Observe(it.group, o.held) && believed {
		l.observe(Observation{Kind: ObservedDrift, Count: 1})
	}
	it.readAt, l.lastRead = now, now
	l.account(it, now)
	l.wasRead(it.group, now)
	if it.change.pending() {
		l.agenda.pace(it)
	} else {
		it.wait(&l.agenda.changes, now)
	}
}

// wasRead records that a group was read or cannot be; when it was the last of
// those listed at first, leftovers may be judged.
func (l *loop) wasRead(group registry.Group, now time.Time) {
	if _, waiting := l.unread[group]; !waiting {
		return
	}
	delete(l.unread, group)
	if len(l.unread) == 0 {
		l.review(now)
	}
}

// wrote takes in that a change was applied.
func (l *loop) wrote(o outcome, now time.Time) {
	it := o.item
	l.applied(o, now)
	l.planner.Applied(o.change)
	l.account(it, now)
	l.succeeded(it)
	it.wroteAt, l.lastWrite = now, now
	if it.change.pending() {
		l.agenda.pace(it)
	} else {
		l.park(it)
	}
	l.repeat(it, now)
}

// repeat makes an item due once more that was asked for while it was busy.
func (l *loop) repeat(it *item, now time.Time) {
	if it.again {
		it.again, it.readAt = false, time.Time{}
		it.wait(&l.agenda.changes, now)
	}
}

// rest puts a group aside in which there is nothing to do.
func (l *loop) rest(it *item, now time.Time) {
	l.succeeded(it)
	it.change.first = time.Time{}
	idle := len(it.surplus) == 0 && now.Sub(it.change.written) >= l.opts.Quiet
	if idle && l.planner.Drop(it.group) {
		l.agenda.drop(it)
		return
	}
	l.park(it)
}

// park makes a group due when a deletion that waits may go, or for a refresh.
func (l *loop) park(it *item) {
	refresh := it.readAt.Add(spread(it.group, l.opts.Refresh))
	if !it.wakeAt.IsZero() && !refresh.Before(it.wakeAt) {
		it.wait(&l.agenda.changes, it.wakeAt)
		return
	}
	it.wait(&l.agenda.refreshes, refresh)
}

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
	queue, wait := &l.agenda.changes, l.opts.Retry.after(it.attempts)
	if it.refused() {
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
	it.notBefore = now
	if it.races > 1 {
		it.notBefore = now.Add(l.opts.Retry.after(it.races - 1))
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

func (l *loop) succeeded(it *item) {
	it.races, it.notBefore = 0, time.Time{}
	if it.attempts == 0 {
		return
	}
	it.attempts, it.err = 0, nil
	if l.failing--; l.failing == 0 {
		l.lastError = nil
		l.opts.Log.Info("target calls succeed again", "target", l.opts.Target)
	}
}

// applied tells of the entries that were written, by bridge.
func (l *loop) applied(o outcome, now time.Time) {
	if l.opts.Observe == nil {
		return
	}
	type of struct{ bridge, op string }
	counts := make(map[of]int, 1)
	for _, w := range o.change.Put {
		op := "create"
		if w.Old != nil {
			op = "update"
		}
		counts[of{l.nameOf(o.item, w.New.Key), op}]++
	}
	for _, h := range o.change.Delete {
		counts[of{l.nameOf(o.item, h.Key), "delete"}]++
	}
	for _, k := range sortedKeys(counts, func(a, b of) bool { return a.bridge+a.op < b.bridge+b.op }) {
		l.observe(Observation{
			Kind: ObservedApplied, Bridge: k.bridge, Op: k.op, Count: counts[k],
			Took: now.Sub(o.began), Latency: now.Sub(o.first),
		})
	}
}

// nameOf returns the bridge that claims a key or claimed it last.
func (l *loop) nameOf(it *item, key string) string {
	if origin, ok := l.planner.Winner(it.group, key); ok {
		return l.ways[origin.Bridge].Name
	}
	if s := it.surplus[key]; s != nil && s.Known {
		return l.ways[s.Origin.Bridge].Name
	}
	return l.strict.name
}
