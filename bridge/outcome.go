package bridge

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// CallDone handles the outcome of a call and puts its group back on the agenda.
func (e *engine) CallDone(o outcome, now time.Time) {
	e.calls--
	if o.isCheck() {
		e.checks--
	}
	if o.op == opRecords {
		e.guards.recordsSynced(o, now)
		return
	}
	e.budget.callDone(o.began, o.err, now)
	e.state.journal.observe(Observation{Kind: ObservedCall, Op: o.op, Count: 1, Took: now.Sub(o.began), Err: o.err})
	switch {
	case o.op == opWrite && errors.Is(o.err, registry.ErrRefused):
		e.applyRefusal(o, now)
	case o.err != nil:
		e.applyFailure(o, now)
	case o.op == opList:
		e.clearFailure(o.item)
		e.applyList(o, now)
		o.item.enqueue(&e.state.agenda.refreshes, now.Add(e.state.opts.Refresh))
		o.item.readAgainIfAsked(now)
	case o.op == opRead:
		e.applyReading(o, now)
		o.item.readAgainIfAsked(now)
	case o.op == opWrite:
		e.applyWrite(o, now)
	}
	e.readChanged(o.item, now)
}

// applyList handles the target's list of groups and puts those that are new
// on the agenda.
func (e *engine) applyList(o outcome, now time.Time) {
	before := e.state.listed
	e.state.listed, e.state.asOf = make(map[registry.Group]struct{}, len(o.groups)), o.began
	for _, group := range o.groups {
		e.state.listed[group] = struct{}{}
		if _, old := before[group]; old && !e.relist {
			continue
		}
		if it, isNew := e.state.agenda.item(group); isNew {
			e.state.unread[group] = struct{}{}
			it.enqueue(&e.state.agenda.refreshes, now)
		}
	}
	e.relist = false
	if !e.state.records.drainedRead {
		e.state.records.additionsWaitUntil = now.Add(recordsAwaited)
	}
	e.state.planner.Forget(func(group registry.Group) bool { _, there := e.state.listed[group]; return there })
	if before != nil {
		return
	}
	for _, group := range slices.SortedFunc(e.state.planner.Groups(), registry.Group.Compare) {
		e.touch(group, now)
	}
}

// applyReading handles what a group holds. The group is looked at once more, to write
// what has to be: in the place that it had, for a reading does not stay recent.
func (e *engine) applyReading(o outcome, now time.Time) {
	it := o.item
	// Who writes nothing reads what others write; and another owner may replace what leaves.
	believed := (it.wasBelieved || !it.readAt.IsZero()) && it.leavingSince.IsZero() && e.state.acts()
	e.state.drains.observe(it.group, o.stored)
	differs := e.state.planner.Observe(it.group, o.stored) && believed
	e.compareContradicted(it.group, now)
	it.wasBelieved, it.lostKeys = false, nil
	if differs && it.unchecked() {
		it.mismatches++
	}
	it.checkAt = time.Time{}
	if differs {
		it.lostKeys = e.state.planner.Lost()
		e.state.journal.reportDrift(it, now)
	}
	it.readAt, it.watched, e.statusCache.lastRead = now, o.watch, now
	it.isArrival = it.isArrival && !slices.ContainsFunc(o.stored, func(h registry.Stored) bool { return h.Owner == e.state.opts.Owner })
	e.guards.recountOrphans(it, now)
	e.markRead(it.group, now)
	if it.pace.pending() {
		e.state.agenda.enqueueChange(it)
	} else {
		it.enqueue(&e.state.agenda.changes, it.dueAt)
	}
}

// markRead records that a group was read or cannot be; when it was the last of
// those listed at first, orphans may be judged.
func (e *engine) markRead(group registry.Group, now time.Time) {
	if _, waiting := e.state.unread[group]; !waiting {
		return
	}
	delete(e.state.unread, group)
	if len(e.state.unread) == 0 {
		e.guards.recountAllOrphans(now)
		e.compareAllRegistrations(now)
	}
}

// applyWrite records that a change was applied, and has it read back where the target
// asks for that, or where the group is not watched yet. After a reading back that found something missing the next is twice
// as late, so that a group that never comes out as it should costs no more than its
// refreshes in the end.
func (e *engine) applyWrite(o outcome, now time.Time) {
	it := o.item
	e.state.journal.reportWrite(o, e.state.planner.Applied(o.change), now)
	it.recordReplaced(o.change, e.state.overlap(it.group), now)
	it.isArrival, it.lostKeys = false, nil
	e.guards.recountOrphans(it, now)
	e.clearFailure(it)
	it.wroteAt, e.statusCache.lastWrite = now, now
	it.markCaughtUp()
	switch {
	case e.state.target.VerifyAfter > 0:
		it.checkAt = now.Add(registry.Backoff{Min: e.state.target.VerifyAfter, Max: max(e.state.target.VerifyAfter, e.state.opts.Refresh)}.After(it.mismatches + 1))
	case !it.watched && e.watches(it): // it was never read; a reading begins the watch
		it.checkAt = now
	}
	switch {
	case it.pace.pending():
		e.state.agenda.enqueueChange(it)
	case len(it.refusals) > 0: // some may be written by now
		it.enqueue(&e.state.agenda.changes, now)
	default:
		e.park(it)
	}
	it.readAgainIfAsked(now)
}

// finishItem puts a group aside in which there is nothing to do.
func (e *engine) finishItem(it *item, now time.Time) {
	e.clearFailure(it)
	it.markCaughtUp()
	it.pace.firstChange = time.Time{}
	if !it.unchecked() {
		it.mismatches = 0
	}
	idle := len(it.orphans) == 0 && !it.unchecked() && now.Sub(it.pace.writtenAt) >= e.state.opts.Debounce
	if idle && !e.contradictions.has(it.group) && e.state.planner.Drop(it.group) {
		it.markDirty()
		delete(e.state.agenda.items, it.group)
		return
	}
	e.park(it)
}

// park makes a group due when a deletion that waits may go, or for a refresh.
func (e *engine) park(it *item) {
	refresh := it.refreshAt(e.state.opts.Refresh)
	if it.unchecked() {
		refresh = earlier(refresh, it.checkAt)
	}
	if len(it.refusals) > 0 {
		refresh = earlier(refresh, it.refusedAt)
	}
	if it.wakeAt.IsZero() {
		it.enqueue(&e.state.agenda.refreshes, refresh)
	} else {
		it.enqueue(&e.state.agenda.changes, earlier(it.wakeAt, refresh))
	}
	it.parked = true
}

func (e *engine) clearFailure(it *item) {
	it.races, it.notBefore = 0, time.Time{}
	if it.attempts == 0 {
		return
	}
	it.attempts, it.lastErr = 0, nil
	if e.state.journal.failing--; e.state.journal.failing == 0 {
		e.statusCache.lastError = nil
		e.state.opts.Log.Info("target calls succeed again", "target", e.state.opts.Target)
	}
}

// applyRefusal records which keys of a change the target refused; the others
// were written. Where it names none, all that was to be put is refused, or else
// all that was to be deleted, and the group is read, because some may have been
// written. Deletions are then tried without what was to be put.
func (e *engine) applyRefusal(o outcome, now time.Time) {
	it, tried := o.item, values(o.change)
	refused, named := errors.AsType[registry.Refused](o.err)
	if !named {
		refused, it.readAt = unnamed(o.change, o.err), time.Time{}
		it.wasBelieved = false
	}
	isNew := false
	if it.refusals == nil {
		it.refusals = make(map[string]refusal, len(refused))
	}
	for key, why := range refused {
		before, known := it.refusals[key]
		isNew = isNew || !known || before.value != tried[key]
		it.refusals[key] = refusal{tried[key], why}
	}
	if !now.Before(it.refusedAt) {
		it.refusedAt = now.Add(e.state.opts.Retry.Max)
	}
	if isNew {
		e.state.journal.reportRefusals(it, o.err)
	}
	e.state.journal.observe(Observation{Kind: ObservedRetry, Op: o.op, Count: 1, Err: o.err})
	if o.change = o.change.Except(refused); named && !o.change.Empty() {
		e.applyWrite(o, now)
		return
	}
	e.guards.recountOrphans(it, now) // what is refused replaces nothing
	it.enqueue(&e.state.agenda.changes, now)
	it.readAgainIfAsked(now)
}

// unnamed returns what counts as refused of a change that is refused with no key named.
func unnamed(c registry.Change, err error) registry.Refused {
	refused := make(registry.Refused, len(c.Put))
	for _, w := range c.Put {
		refused[w.New.Key] = err
	}
	for _, h := range c.Delete {
		if len(c.Put) == 0 {
			refused[h.Key] = err
		}
	}
	return refused
}

// applyFailure puts a group back that has to be read before it is written again.
func (e *engine) applyFailure(o outcome, now time.Time) {
	it := o.item
	it.readAt = time.Time{}
	it.wasBelieved = false
	it.pace.restore(o.firstChange)
	if errors.Is(o.err, registry.ErrConflict) {
		e.applyRace(it, now)
		return
	}
	e.markRead(it.group, now)
	it.attempts++
	it.lastErr, e.statusCache.lastError = o.err, o.err
	if it.attempts == 1 {
		e.state.journal.failing++
	}
	queue, wait := &e.state.agenda.changes, e.state.opts.Retry.After(it.attempts)
	if it.refused() {
		it.markCaughtUp() // it cannot be brought further
		if it.attempts == 1 {
			e.state.journal.emit(Event{Kind: EventRefused, Subject: it.group.String(), What: o.op + " refused", Why: o.err.Error()})
		}
		queue, wait = &e.state.agenda.refreshes, e.state.opts.Retry.Max
	}
	it.notBefore = now.Add(wait)
	it.enqueue(queue, it.notBefore)
	e.state.journal.logFailure(o, wait, now)
	e.state.journal.observe(Observation{Kind: ObservedRetry, Op: o.op, Count: 1, Err: o.err})
}

// applyRace puts a group back that another changed since it was read: it is read
// again at once, and with growing waits only where that repeats.
func (e *engine) applyRace(it *item, now time.Time) {
	it.races++
	if it.races == maxRaces {
		e.state.journal.reportOverride(it)
	}
	it.notBefore = now
	if it.races > 1 {
		it.notBefore = now.Add(e.state.opts.Retry.After(it.races - 1))
	}
	it.enqueue(&e.state.agenda.changes, it.notBefore)
	e.state.journal.observe(Observation{Kind: ObservedRetry, Op: opWrite, Count: 1, Err: registry.ErrConflict})
}

// A refusal is what a target refuses under a key. It waits by itself, so that
// what has to be written beside it is written when it is due.
type refusal struct {
	value string // that was to be stored or deleted
	why   error
}

// values returns what a change stores or deletes, by key.
func values(c registry.Change) map[string]string {
	all := make(map[string]string, len(c.Put)+len(c.Delete))
	for _, h := range c.Delete {
		all[h.Key] = h.Value
	}
	for _, w := range c.Put {
		all[w.New.Key] = w.New.Value
	}
	return all
}

// withholdRefused leaves out of a change what the target refuses, until there is
// nothing else to write and it is time to try that again, all of it at once.
// What is needed no more, or with another value, is refused no more.
func (d *draft) withholdRefused(change registry.Change) registry.Change {
	if len(d.item.refusals) == 0 {
		return change
	}
	required := values(change)
	maps.DeleteFunc(d.item.refusals, func(key string, r refusal) bool {
		value, still := required[key]
		return !still || value != r.value
	})
	d.addRefusals()
	rest := change.Without(func(key string) bool { _, refused := d.item.refusals[key]; return refused })
	if rest.Empty() && !d.now.Before(d.item.refusedAt) {
		return change
	}
	return rest
}

// addRefusals adds omissions of what is refused, by whom it is claimed or was.
func (d *draft) addRefusals() {
	by := make(map[plan.Origin]registry.Refused)
	for key, r := range d.item.refusals {
		origin := d.state.planner.Winner(d.item.group, key)
		if origin.IsZero() && d.item.orphans[key] != nil {
			origin = d.item.orphans[key].Origin
		}
		if by[origin] == nil {
			by[origin] = make(registry.Refused)
		}
		by[origin][key] = r.why
	}
	for origin, keys := range by {
		d.item.omissions = append(d.item.omissions, omission{origin: origin, reason: ReasonRefused, detail: keys.Error(), entries: len(keys)})
	}
}

// A budget says how many calls a target is given at a time, and how many in a
// second. After a call that failed it is half of what it was, and with each
// round of calls that succeed one call more, up to what the options allow: a
// target that throttles or breaks down is asked for less until it keeps up.
type budget struct {
	opts      *Options // Workers and Rate
	window    float64  // calls at a time by now; 0: as many as there are workers
	cutAt     time.Time
	paidUntil time.Time // up to when calls were made in advance, by the rate
}

// burst is for how long calls may be made in advance of the rate.
const burst = 100 * time.Millisecond

// maxCalls returns how many calls may be in flight.
func (b *budget) maxCalls() int {
	if b.window == 0 {
		return b.opts.Workers
	}
	return min(b.opts.Workers, max(1, int(b.window)))
}

// nextCallAt returns when the rate permits the next call.
func (b *budget) nextCallAt() time.Time {
	if b.opts.Rate <= 0 {
		return time.Time{}
	}
	return b.paidUntil.Add(-burst)
}

// pay records that a call begins. A smaller window makes the rate smaller too.
func (b *budget) pay(now time.Time) {
	if b.opts.Rate > 0 {
		rate := b.opts.Rate * float64(b.maxCalls()) / float64(b.opts.Workers)
		b.paidUntil = later(b.paidUntil, now).Add(time.Duration(float64(time.Second) / rate))
	}
}

// callDone handles the result of a call. Failures of calls that began before the
// window was cut last say nothing new, and a refusal or a race says nothing of
// how much the target can handle.
func (b *budget) callDone(began time.Time, err error, now time.Time) {
	switch {
	case err == nil:
		if b.window > 0 {
			b.window = min(float64(b.opts.Workers), b.window+1/b.window)
		}
	case errors.Is(err, registry.ErrConflict), errors.Is(err, registry.ErrRefused), began.Before(b.cutAt):
	default:
		b.window, b.cutAt = max(1, float64(b.maxCalls())/2), now
	}
}
