package bridge

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// CallDone handles the outcome of a call, and puts its group back on the agenda.
func (e *engine) CallDone(o outcome, now time.Time) {
	e.calls--
	if o.isCheck() {
		e.checks--
	}
	if o.op == opRecords {
		e.guards.recordsCallDone(o, now)
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

// applyList handles the target's list of groups: new groups are put on the agenda. The first
// list makes all claims due.
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
	e.state.planner.Forget(func(group registry.Group) bool {
		_, listed := e.state.listed[group]
		return listed
	})
	if before != nil {
		return
	}
	for _, group := range slices.SortedFunc(e.state.planner.Groups(), registry.Group.Compare) {
		e.touch(group, now)
	}
}

// applyReading handles the content of a group. The group becomes due again for the write, at
// the place that it had in the queue, before the read is too old to delete by.
func (e *engine) applyReading(o outcome, now time.Time) {
	it := o.item
	// Differences are drift, except in a standby, which reads what the leader writes, and
	// while our entries are leaving, which another owner may replace.
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
	isOurs := func(h registry.Stored) bool { return h.Owner == e.state.opts.Owner }
	it.isArrival = it.isArrival && !slices.ContainsFunc(o.stored, isOurs)
	e.guards.recountOrphans(it, now)
	e.markRead(it.group, now)
	if it.pace.pending() {
		e.state.agenda.enqueueChange(it)
	} else {
		it.enqueue(&e.state.agenda.changes, it.dueAt)
	}
}

// markRead records that a group was read, or cannot be read. After the last of the groups
// that were listed first, orphans may be judged.
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

// applyWrite records that a change was applied. It schedules the read that verifies the
// write, if the target requires one, or the read that begins a watch. After each mismatch
// the next verification is twice as late. So in the end, a group that others keep
// overwriting costs no more than its refreshes.
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
		verifyAfter := e.state.target.VerifyAfter
		backoff := registry.Backoff{Min: verifyAfter, Max: max(verifyAfter, e.state.opts.Refresh)}
		it.checkAt = now.Add(backoff.After(it.mismatches + 1))
	case !it.watched && e.watches(it): // the group was never read
		it.checkAt = now
	}
	switch {
	case it.pace.pending():
		e.state.agenda.enqueueChange(it)
	case len(it.refusals) > 0: // the write may have removed the cause of some
		it.enqueue(&e.state.agenda.changes, now)
	default:
		e.park(it)
	}
	it.readAgainIfAsked(now)
}

// finishItem handles a group in which there is nothing to do: it forgets a group without
// claims and entries, and parks any other.
func (e *engine) finishItem(it *item, now time.Time) {
	e.clearFailure(it)
	it.markCaughtUp()
	it.pace.firstChange = time.Time{}
	if !it.unchecked() {
		it.mismatches = 0
	}
	isIdle := len(it.orphans) == 0 && !it.unchecked() && now.Sub(it.pace.writtenAt) >= e.state.opts.Debounce
	if isIdle && !e.contradictions.has(it.group) && e.state.planner.Drop(it.group) {
		it.markDirty()
		delete(e.state.agenda.items, it.group)
		return
	}
	e.park(it)
}

// park makes a group due for its next refresh, or earlier for a waiting deletion, a
// verification or a retry of what was refused.
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

// clearFailure ends the failures of a group.
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

// applyRefusal records which keys of a change the target refused; the others were written.
//
// If the target names no keys, all writes count as refused or, in a change without writes,
// all deletions. The group is read, because some entries may have been written. The
// deletions are then tried without the writes.
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
	e.guards.recountOrphans(it, now) // a refused entry is no replacement
	it.enqueue(&e.state.agenda.changes, now)
	it.readAgainIfAsked(now)
}

// unnamed returns the keys that count as refused if the target names none.
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

// applyFailure makes a group due for a retry. It has to be read before it is written again.
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
		it.markCaughtUp() // no more can be done for it
		if it.attempts == 1 {
			e.state.journal.emit(Event{
				Kind: EventRefused, Subject: it.group.String(), What: o.op + " refused", Why: o.err.Error(),
			})
		}
		queue, wait = &e.state.agenda.refreshes, e.state.opts.Retry.Max
	}
	it.notBefore = now.Add(wait)
	it.enqueue(queue, it.notBefore)
	e.state.journal.logFailure(o, wait, now)
	e.state.journal.observe(Observation{Kind: ObservedRetry, Op: o.op, Count: 1, Err: o.err})
}

// applyRace makes a group due that another writer changed between our read and write. It is
// read again at once; only repeated races wait.
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

// A refusal is an entry that the target refused to store or delete. Only this entry waits
// for a retry; other entries of its group are written when they are due.
type refusal struct {
	value string // to be stored or deleted
	why   error
}

// values returns the values that a change stores or deletes, by key.
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

// withholdRefused removes the refused entries from a change. They are tried again together,
// once their wait is over and nothing else is to be written. A refusal ends if its entry is
// no longer needed, or needed with another value.
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
	accepted := change.Without(func(key string) bool {
		_, refused := d.item.refusals[key]
		return refused
	})
	if accepted.Empty() && !d.now.Before(d.item.refusedAt) {
		return change
	}
	return accepted
}

// addRefusals adds an omission for each origin whose entries are refused.
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
		d.item.omissions = append(d.item.omissions, omission{
			origin: origin, reason: ReasonRefused, detail: keys.Error(), entries: len(keys),
		})
	}
}

// A budget limits the calls to a target, at a time and in a second. The window of calls at a
// time is halved by a failed call, and grows by one with each round of successful calls, up
// to Options.Workers. So a target that throttles or breaks down receives fewer calls.
type budget struct {
	opts      *Options  // Workers and Rate
	window    float64   // calls at a time; 0: Workers
	cutAt     time.Time // when the window was last halved
	paidUntil time.Time // until when the rate is used up
}

// burst is how far calls may be ahead of the rate.
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

// pay records that a call begins. A smaller window reduces the rate, too.
func (b *budget) pay(now time.Time) {
	if b.opts.Rate > 0 {
		rate := b.opts.Rate * float64(b.maxCalls()) / float64(b.opts.Workers)
		b.paidUntil = later(b.paidUntil, now).Add(time.Duration(float64(time.Second) / rate))
	}
}

// callDone handles the result of a call. Calls that began before the window was last halved
// do not halve it again. Refusals and races are no sign of overload.
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
