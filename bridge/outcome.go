package bridge

import (
	"errors"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// settle takes an outcome in and puts its group back on the agenda.
func (l *loop) settle(o outcome, now time.Time) {
	l.calls--
	if o.step == stepConsult {
		l.consulted(o, now)
		return
	}
	l.budget.settle(o.began, o.err, now)
	l.observe(Observation{Kind: ObservedCall, Op: o.step, Count: 1, Took: now.Sub(o.began), Err: o.err})
	switch {
	case o.step == stepWrite && errors.Is(o.err, registry.ErrRefused):
		l.wasRefused(o, now)
		return
	case o.err != nil:
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
		l.repeat(o.item, now)
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
	l.look(now)
}

// sawHeld takes in what a group holds. The group is looked at once more, to
// write what has to be.
func (l *loop) sawHeld(o outcome, now time.Time) {
	it := o.item
	believed := !it.readAt.IsZero() && l.acts() // who writes nothing reads what others write
	differs := l.planner.Observe(it.group, o.held) && believed
	it.wasReadBack(differs)
	if differs {
		l.drifted(it, now)
	}
	it.readAt, l.lastRead = now, now
	it.arrive = it.arrive && !slices.ContainsFunc(o.held, func(h registry.Held) bool { return h.Owner == l.opts.Owner })
	l.account(it, now)
	l.wasRead(it.group, now)
	if it.change.pending() {
		l.agenda.pace(it)
	} else {
		it.wait(&l.agenda.changes, now)
	}
}

// drifted tells of a group that another changed since it was written or read.
// Restoring it waits for the next reading, so that no other writer is fought
// more often than a group is refreshed or read back. What stays so is told of
// once more, and then shown by status alone.
func (l *loop) drifted(it *item, now time.Time) {
	l.observe(Observation{Kind: ObservedDrift, Count: 1})
	e := Event{
		Kind: EventDrift, Subject: it.group.String(), What: "entries of ours are not as they were written",
		Why: "another writer changed them, or the registry lost them", Release: "they are written once more",
	}
	level := l.opts.Log.Debug
	switch {
	case it.missed > stubborn:
		return
	case it.missed == stubborn:
		l.overruled(it)
		return
	case now.Sub(l.driftedAt) >= l.opts.Retry.Max: // the first of many
		level, l.driftedAt = l.opts.Log.Warn, now
	}
	l.tell(e)
	level("entries of ours are not as they were written", "target", l.opts.Target, "group", it.group.String(), "reason", e.Why, "ends", e.Release)
}

// overruled tells of a group that others keep otherwise than it is written.
func (l *loop) overruled(it *item) {
	e := Event{
		Kind: EventDrift, Subject: it.group.String(), What: "entries of ours stay otherwise than they are written",
		Why: overridden, Release: "whatever has them so ends; until then they are written once a refresh",
	}
	l.tell(e)
	l.opts.Log.Warn("entries of ours stay otherwise than they are written", "target", l.opts.Target, "group", e.Subject, "reason", e.Why, "ends", e.Release)
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
	it.replaced(o.change, l.overlap(it.group), now)
	it.arrive = false
	l.account(it, now)
	l.succeeded(it)
	it.wroteAt, l.lastWrite = now, now
	l.finished(it)
	l.readBack(it, now)
	switch {
	case it.change.pending():
		l.agenda.pace(it)
	case len(it.refusals) > 0: // some may be written by now
		it.wait(&l.agenda.changes, now)
	default:
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
	l.finished(it)
	it.change.first = time.Time{}
	if !it.unchecked() {
		it.missed = 0
	}
	idle := len(it.orphans) == 0 && !it.unchecked() && now.Sub(it.change.written) >= l.opts.Quiet
	if idle && l.planner.Drop(it.group) {
		l.agenda.drop(it)
		return
	}
	l.park(it)
}

// park makes a group due when a deletion that waits may go, or for a refresh.
func (l *loop) park(it *item) {
	refresh := l.refreshes(it)
	if it.unchecked() {
		refresh = earlier(refresh, it.checkAt)
	}
	if len(it.refusals) > 0 {
		refresh = earlier(refresh, it.refusedAt)
	}
	if !it.wakeAt.IsZero() && !refresh.Before(it.wakeAt) {
		it.wait(&l.agenda.changes, it.wakeAt)
		return
	}
	it.wait(&l.agenda.refreshes, refresh)
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
