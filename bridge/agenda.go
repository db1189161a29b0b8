package bridge

import (
	"container/heap"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An item is the state of one group in the engine, in addition to that in the planner. The
// item of the zero group stands for the list of all groups. Only the goroutine of the engine
// touches it; within the engine each part has its writers:
//
//	slot           the agenda: enqueue and dequeue; readAgain the engine
//	freshness      the results of calls (outcome.go), and the engine when a group has to be read again
//	failureState   the results of calls; refusals also the draft that withholds them
//	shownState     omissions the draft of the next write; contradictions registered.go; the others the status cache
//	progress       the results of calls and changes of claims; an election resets it
//	deferred work  the draft; replacedAt also the results of writes
//	orphans        the guards
type item struct {
	slot
	freshness
	failureState
	shownState

	group registry.Group // immutable

	// Progress.
	isArrival bool // the group was never written, and had none of our entries
	caughtUp  bool // since the last change the group was brought to the state that the role requires
	pace      pace

	// Deferred work.
	replacedAt   map[registry.Entry]time.Time // when each entry was replaced that is kept next to its replacement
	leavingSince time.Time                    // when our last endpoints were marked as leaving; zero: they are not
	wakeAt       time.Time                    // when the first waiting deletion may be made

	orphans map[string]*orphan // by key
}

// A slot is the place of an item in its agenda.
type slot struct {
	agenda *agenda // immutable
	queue  *queue  // nil while busy
	index  int     // in the queue
	dueAt  time.Time
	busy   bool // a call is in flight

	// parked says that the item only waits for time: for a deletion or a refresh. A busy
	// item is parked if its call was a refresh.
	parked bool

	readAgain bool // to be read again once it is no longer busy
}

// A freshness says how far the belief about the content of a group can be trusted.
type freshness struct {
	readAt  time.Time // when the belief was last known to be true; zero: read first
	wroteAt time.Time
	checkAt time.Time // when the last write is to be read back; zero: not at all, or done

	wasBelieved     bool     // the belief was true until the reported change
	reportedChanged bool     // the target reported a change since the last read began
	watched         bool     // the target reports changes of the group
	mismatches      int      // reads in a row after a write that found something else
	lostKeys        []string // our keys that the last read found deleted or lost
}

// A failureState counts the recent failures of a group.
type failureState struct {
	notBefore time.Time // no call before this time, whatever changes
	attempts  int       // failures in a row
	races     int       // conflicts with other writers in a row
	lastErr   error
	refusals  map[string]refusal // by key
	refusedAt time.Time          // when refused entries are tried again
}

// A shownState is the part of a group that status shows.
type shownState struct {
	omissions      []omission // what is not done, and why
	contradictions []plan.Contradiction
	others         []plan.SelfRegistered

	reason Reason
	detail string
	dirty  bool // listed in agenda.dirty
}

// markDirty has status show the group again.
func (it *item) markDirty() {
	if !it.dirty {
		it.dirty = true
		it.agenda.dirty = append(it.agenda.dirty, it)
	}
}

// A pace debounces the changes of a group. The first change is due at once, unless the
// group was just written; later ones are gathered.
type pace struct {
	firstChange time.Time // the first unwritten change; zero: none
	lastChange  time.Time
	writtenAt   time.Time // when the last write began
	paidUntil   time.Time // limits the rate: each write moves it by maxDebounce
}

// writesInAdvance is how many writes of a group are free. A group that changes all the
// time, such as by a flapping endpoint, is then written once in each maxDebounce. A group
// that was idle long enough is written at once.
const writesInAdvance = 10

// record records a change.
func (p *pace) record(now time.Time) {
	if p.firstChange.IsZero() {
		p.firstChange = now
	}
	p.lastChange = now
}

// dueAt returns when the pending changes are to be written.
func (p *pace) dueAt(debounce, maxDebounce time.Duration) time.Time {
	return later(p.debouncedUntil(debounce, maxDebounce), p.paidUntil.Add(-writesInAdvance*maxDebounce))
}

func (p *pace) debouncedUntil(debounce, maxDebounce time.Duration) time.Time {
	if p.writtenAt.IsZero() || !p.firstChange.Before(p.writtenAt.Add(debounce)) {
		return p.firstChange
	}
	return earlier(p.lastChange.Add(debounce), p.firstChange.Add(maxDebounce))
}

// pending reports whether there is an unwritten change.
func (p *pace) pending() bool { return !p.firstChange.IsZero() }

// begin records that a write of all pending changes begins. It returns when the first of
// them was seen.
func (p *pace) begin(now time.Time, maxDebounce time.Duration) time.Time {
	first := p.firstChange
	p.firstChange, p.writtenAt = time.Time{}, now
	p.paidUntil = later(p.paidUntil, now).Add(maxDebounce)
	return first
}

// restore undoes begin after the write failed. The wait after a failure paces the retry.
func (p *pace) restore(first time.Time) {
	p.writtenAt = time.Time{}
	if !first.IsZero() {
		p.firstChange = first
		p.lastChange = later(p.lastChange, first)
	}
}

// A group counts as overridden by another writer after a number of failed writes in a row:
// writes that were read back as something else, or that met a concurrent change. The sixth
// race is about half a minute after the first. That is longer than replicas take to hand
// over the leadership.
const (
	maxMismatches = 3
	maxRaces      = 6
)

const overriddenText = "the registry keeps showing other values than were written: " +
	"another process of this owner, another writer, or a setting in the registry's console overrides them"

// unchecked reports whether the last write has not been read back yet.
func (it *item) unchecked() bool { return !it.checkAt.IsZero() }

// enqueue puts an item into a queue, due at the given time.
func (it *item) enqueue(in *queue, at time.Time) {
	it.markDirty()
	it.busy, it.parked = false, false
	if it.queue == in {
		it.dueAt = at
		heap.Fix(in, it.index)
		return
	}
	if it.queue != nil {
		heap.Remove(it.queue, it.index)
	}
	it.queue, it.dueAt = in, at
	heap.Push(in, it)
}

// dequeue removes an item from its queue. The item is busy until it is enqueued again.
func (it *item) dequeue() {
	it.markDirty()
	heap.Remove(it.queue, it.index)
	it.parked = it.parked && it.queue == &it.agenda.refreshes
	it.queue, it.busy = nil, true
}

// onlyWaits reports whether an item waits only for time: no change is pending.
func (it *item) onlyWaits() bool { return it.parked && !it.pace.pending() }

// markCaughtUp records that the group is in the state that the role requires.
func (it *item) markCaughtUp() { it.caughtUp = it.caughtUp || !it.readAgain }

// readAgainIfAsked makes an item due if a read was requested while it was busy.
func (it *item) readAgainIfAsked(now time.Time) {
	if it.readAgain {
		it.readAgain, it.readAt = false, time.Time{}
		it.enqueue(&it.agenda.changes, now)
	}
}

// refreshAt returns when a group is refreshed: read again without a cause.
func (it *item) refreshAt(every time.Duration) time.Time {
	return it.readAt.Add(spreadInterval(it.group, every))
}

func (it *item) refused() bool { return errors.Is(it.lastErr, registry.ErrRefused) }

// reasonAndDetail returns what status shows of a group.
func (it *item) reasonAndDetail() (Reason, string) {
	switch {
	case it.attempts > 0 && it.refused():
		return ReasonRefused, it.lastErr.Error()
	case it.attempts > 0:
		return ReasonRetrying, it.lastErr.Error()
	case it.mismatches >= maxMismatches, it.races >= maxRaces:
		return ReasonRefused, overriddenText
	case it.pace.pending() || it.readAt.IsZero() || it.busy && it.pace.writtenAt.After(it.wroteAt):
		return ReasonPending, "a write is due"
	}
	return ReasonSynced, ""
}

// An agenda orders the groups by when they are due. Every known group has one item. While
// a call for a group is in flight, its item is in no queue.
//
// Changes and retries go before arrivals, and arrivals before refreshes, but each gets its
// turns. Within a queue the item goes first that has been due for longest. A group that was
// just written is due later than those that wait, so that no group starves another.
type agenda struct {
	opts  *Options
	items map[registry.Group]*item

	changes   queue // and retries
	arrivals  queue // changes of groups that were never written
	refreshes queue

	turns int     // calls of pop
	dirty []*item // changed since the last update of status
}

// item returns the item of a group, and whether it is new. The caller enqueues a new item.
func (a *agenda) item(group registry.Group) (*item, bool) {
	if it := a.items[group]; it != nil {
		return it, false
	}
	it := &item{slot: slot{agenda: a}, group: group}
	a.items[group] = it
	return it, true
}

// sortedItems returns the items of all groups in order, without that of the zero group.
func (a *agenda) sortedItems() []*item {
	return sortItems(maps.Values(a.items))
}

// sortItems returns items in the order of their groups, without that of the zero group.
func sortItems(items iter.Seq[*item]) []*item {
	all := slices.SortedFunc(items, func(a, b *item) int { return a.group.Compare(b.group) })
	return slices.DeleteFunc(all, func(it *item) bool { return it.group.IsZero() })
}

// touch records a change of a group and makes it due as soon as its pace and its last
// failure allow. It reports whether the change joined a pending one.
func (a *agenda) touch(it *item, now time.Time) bool {
	it.markDirty()
	joined := it.pace.pending()
	it.pace.record(now)
	overdue := (it.queue == &a.changes || it.queue == &a.arrivals) && !it.dueAt.After(now)
	if !it.busy && !overdue {
		a.enqueueChange(it)
	}
	return joined
}

// enqueueChange makes an item with changes due as soon as its pace and its last failure allow.
func (a *agenda) enqueueChange(it *item) {
	queue := &a.changes
	if it.isArrival && it.attempts == 0 { // a failing group is retried as a change
		queue = &a.arrivals
	}
	it.enqueue(queue, later(it.pace.dueAt(a.opts.Debounce, a.opts.MaxDebounce), it.notBefore))
}

// pop removes and returns an item that is due: a change before an arrival before a refresh.
// Of every eight turns, two begin with arrivals and one with refreshes, so that a flood of
// one kind does not stop the others. It returns nil if no item is due.
func (a *agenda) pop(now time.Time) *item {
	order := [...]*queue{&a.changes, &a.arrivals, &a.refreshes}
	switch a.turns++; a.turns % 8 {
	case 2, 5:
		order = [...]*queue{&a.arrivals, &a.changes, &a.refreshes}
	case 7:
		order = [...]*queue{&a.refreshes, &a.changes, &a.arrivals}
	}
	for _, q := range order {
		if len(*q) > 0 && !(*q)[0].dueAt.After(now) {
			it := (*q)[0]
			it.dequeue()
			return it
		}
	}
	return nil
}

// nextDueAt returns when the first item is due; zero if there is none.
func (a *agenda) nextDueAt() time.Time {
	var at time.Time
	for _, q := range []queue{a.changes, a.arrivals, a.refreshes} {
		if len(q) > 0 && (at.IsZero() || q[0].dueAt.Before(at)) {
			at = q[0].dueAt
		}
	}
	return at
}

// countDue returns how many items are due, and since when the first of them has been.
func (a *agenda) countDue(now time.Time) (int, time.Time) {
	n, first := 0, now
	for _, q := range []queue{a.changes, a.arrivals, a.refreshes} {
		if due := countDueBelow(q, 0, now); due > 0 {
			n += due
			first = earlier(first, q[0].dueAt)
		}
	}
	return n, first
}

// countDueBelow counts the due items of a heap from index i downwards.
func countDueBelow(q queue, i int, now time.Time) int {
	if i >= len(q) || q[i].dueAt.After(now) {
		return 0
	}
	return 1 + countDueBelow(q, 2*i+1, now) + countDueBelow(q, 2*i+2, now)
}

// spreadInterval returns how long the belief about a group is trusted: a fixed point, by
// its hash, in the last quarter of the interval. So groups that were read together are not
// read together again.
func spreadInterval(group registry.Group, interval time.Duration) time.Duration {
	return interval - interval/4*time.Duration(hashOf(group)%1024)/1024
}

// hashOf returns a hash of a group that is the same in every process.
func hashOf(group registry.Group) uint32 {
	hash := uint32(2166136261) // FNV-1a
	for _, part := range []string{group.Namespace, group.Group, group.Name} {
		for i := range len(part) {
			hash = (hash ^ uint32(part[i])) * 16777619
		}
	}
	return hash
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// soonest returns the earlier of two times. The zero time does not count.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// A queue is a heap of items with the first that is due on top. Of items due at the same
// time the last one read goes first, while its read is recent.
type queue []*item

func (q *queue) Len() int { return len(*q) }

func (q *queue) Less(i, j int) bool {
	a, b := (*q)[i], (*q)[j]
	return a.dueAt.Before(b.dueAt) || a.dueAt.Equal(b.dueAt) && a.readAt.After(b.readAt)
}

func (q *queue) Swap(i, j int) {
	(*q)[i], (*q)[j] = (*q)[j], (*q)[i]
	(*q)[i].index, (*q)[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if it, ok := x.(*item); ok {
		it.index = len(*q)
		*q = append(*q, it)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return it
}
