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

// An item is what an engine knows of one group, beside what the planner does.
// The zero group is the list of all groups.
type item struct {
	slot
	freshness
	failureState
	shownState

	group        registry.Group
	isArrival    bool // nothing was written to the group yet, and nothing of ours was there
	caughtUp     bool // it was as the role asks for since it last changed
	pace         pace
	replacedAt   map[registry.Entry]time.Time // since when entries are beside what replaced them
	leavingSince time.Time                    // since when our last endpoints are marked as leaving; zero: they are not
	wakeAt       time.Time                    // when a deletion that waits may go
	orphans      map[string]*orphan
}

// A slot is where an item waits.
type slot struct {
	agenda    *agenda
	dueAt     time.Time // when it is due
	queue     *queue
	index     int
	busy      bool // being worked on: in no queue
	parked    bool // there is nothing to do but what waits for time; of one that is busy, there was nothing but a refresh
	readAgain bool // has to be read once more after that
}

// A freshness is how well it is known what a group holds.
type freshness struct {
	readAt          time.Time // when what is believed was last known to be so; zero: read first
	wroteAt         time.Time
	checkAt         time.Time // when the last write is to be read back; zero: not at all, or it was
	wasBelieved     bool      // until it changed, what is believed was so
	lostKeys        []string  // keys of ours that others deleted, or the registry lost, at the last reading
	watched         bool      // the target reports what changes in it
	reportedChanged bool      // the target reported a change since the last reading began
	mismatches      int       // readings back in a row that found something else
}

// A failureState is what failed of late.
type failureState struct {
	notBefore time.Time // after a failure, whatever changes
	attempts  int       // failures in a row
	races     int       // conflicts with other writers in a row
	lastErr   error
	refusals  map[string]refusal // by key
	refusedAt time.Time          // from when on they are tried again
}

// A shownState is what status says of a group.
type shownState struct {
	omissions []omission // what is left undone, and why
	dirty     bool       // see agenda.dirty

	contradictions []plan.Contradiction  // of the claims in it
	others         []plan.SelfRegistered // beside the claims in it
	reason         Reason                // how far the group is, as status shows it
	detail         string
}

// markDirty has status show a group anew.
func (it *item) markDirty() {
	if !it.dirty {
		it.dirty = true
		it.agenda.dirty = append(it.agenda.dirty, it)
	}
}

// pace is how the changes of a group are gathered: the first is due at once
// unless the group was just written; those that follow are debounced.
type pace struct {
	firstChange time.Time // the first one that is not written; zero: there is none
	lastChange  time.Time
	writtenAt   time.Time // when the last write began
	paidUntil   time.Time // up to when writes were made in advance, at one in each maxDebounce
}

// ahead is how many writes of a group may be made in advance. A group that
// changes all the time, such as by an endpoint that flaps, is then written once
// in each maxDebounce; one that was idle for long enough is written at once.
const writesInAdvance = 10

func (p *pace) record(now time.Time) {
	if p.firstChange.IsZero() {
		p.firstChange = now
	}
	p.lastChange = now
}

// dueAt returns when the changes are to be written.
func (p *pace) dueAt(debounce, maxDebounce time.Duration) time.Time {
	return later(p.debouncedUntil(debounce, maxDebounce), p.paidUntil.Add(-writesInAdvance*maxDebounce))
}

func (p *pace) debouncedUntil(debounce, maxDebounce time.Duration) time.Time {
	if p.writtenAt.IsZero() || !p.firstChange.Before(p.writtenAt.Add(debounce)) {
		return p.firstChange
	}
	return earlier(p.lastChange.Add(debounce), p.firstChange.Add(maxDebounce))
}

func (p *pace) pending() bool { return !p.firstChange.IsZero() }

// begin records that a write of all changes so far begins, and returns when
// the first of them was seen.
func (p *pace) begin(now time.Time, maxDebounce time.Duration) time.Time {
	first := p.firstChange
	p.firstChange, p.writtenAt = time.Time{}, now
	p.paidUntil = later(p.paidUntil, now).Add(maxDebounce)
	return first
}

// restore undoes begin: the changes were not written. What failed is paced by the
// wait after a failure alone.
func (p *pace) restore(first time.Time) {
	p.writtenAt = time.Time{}
	if !first.IsZero() {
		p.firstChange = first
		p.lastChange = later(p.lastChange, first)
	}
}

// stubborn is after how many writes in a row, each of which was read back as
// something else, a group is said to be what others make of it; contested is
// the same for writes that met what others wrote, the last about half a minute
// after the first: replicas that lead in turn are done by then.
const (
	maxMismatches = 3
	maxRaces      = 6
)

const overriddenText = "the registry keeps showing other values than were written: " +
	"another process of this owner, another writer, or a setting in the registry's console overrides them"

// unchecked reports whether the last write is still to be read back.
func (it *item) unchecked() bool { return !it.checkAt.IsZero() }

// enqueue makes an item wait in a queue until the given time.
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

// dequeue removes an item from its queue; it is busy until it waits again.
func (it *item) dequeue() {
	it.markDirty()
	heap.Remove(it.queue, it.index)
	it.parked = it.parked && it.queue == &it.agenda.refreshes
	it.queue, it.busy = nil, true
}

// onlyWaits reports whether an item is due for no more than a deletion that waits, or
// a look before that.
func (it *item) onlyWaits() bool { return it.parked && !it.pace.pending() }

// markCaughtUp records that a group is as the role asks for.
func (it *item) markCaughtUp() { it.caughtUp = it.caughtUp || !it.readAgain }

// readAgainIfAsked makes an item due once more that was asked for while it was busy.
func (it *item) readAgainIfAsked(now time.Time) {
	if it.readAgain {
		it.readAgain, it.readAt = false, time.Time{}
		it.enqueue(&it.agenda.changes, now)
	}
}

// refreshAt returns when a group is to be read again without a cause.
func (it *item) refreshAt(every time.Duration) time.Time {
	return it.readAt.Add(spreadInterval(it.group, every))
}

func (it *item) refused() bool { return errors.Is(it.lastErr, registry.ErrRefused) }

// reasonAndDetail says how far a group is.
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

// An agenda says which group is due when. Every group it knows has one item;
// while a group is being worked on, its item is out of the queues. Changes and
// retries go before arrivals, and these before refreshes, but each gets its
// turns. Within a queue, what has been due for longest goes first, and what was
// just written is due later than what waits, so that no group starves another.
type agenda struct {
	opts      *Options
	items     map[registry.Group]*item
	changes   queue
	arrivals  queue // changes of groups that nothing was ever written to
	refreshes queue
	turns     int     // of pop
	dirty     []*item // that changed since status was last shown
}

// item returns the item of a group and whether it is new; a new one has to be
// made to wait.
func (a *agenda) item(group registry.Group) (*item, bool) {
	if it := a.items[group]; it != nil {
		return it, false
	}
	it := &item{slot: slot{agenda: a}, group: group}
	a.items[group] = it
	return it, true
}

// sortedItems returns the items of all groups, in their order.
func (a *agenda) sortedItems() []*item {
	return sortItems(maps.Values(a.items))
}

// sortItems returns the items of groups in the order of these.
func sortItems(items iter.Seq[*item]) []*item {
	all := slices.SortedFunc(items, func(a, b *item) int { return a.group.Compare(b.group) })
	return slices.DeleteFunc(all, func(it *item) bool { return it.group.IsZero() })
}

// touch records a change of a group and makes it due as its pace and its last
// failure allow. It reports whether the change joined one that was due.
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

// enqueueChange makes an item with changes due when its pace and its last failure allow.
func (a *agenda) enqueueChange(it *item) {
	queue := &a.changes
	if it.isArrival && it.attempts == 0 { // nothing waits for one that fails
		queue = &a.arrivals
	}
	it.enqueue(queue, later(it.pace.dueAt(a.opts.Debounce, a.opts.MaxDebounce), it.notBefore))
}

// pop removes and returns an item that is due: a change before an arrival
// before a refresh, but of every eight turns two are the arrivals' and one is
// the refreshes', so that a flood of one kind does not stop the others.
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

// nextDueAt returns when the first item is due; the zero time if there is none.
func (a *agenda) nextDueAt() time.Time {
	var at time.Time
	for _, q := range []queue{a.changes, a.arrivals, a.refreshes} {
		if len(q) > 0 && (at.IsZero() || q[0].dueAt.Before(at)) {
			at = q[0].dueAt
		}
	}
	return at
}

// countDue returns how many items are due and since when the first of them is.
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

// countDueBelow returns how many items are due from a place of a heap downwards.
func countDueBelow(q queue, i int, now time.Time) int {
	if i >= len(q) || q[i].dueAt.After(now) {
		return 0
	}
	return 1 + countDueBelow(q, 2*i+1, now) + countDueBelow(q, 2*i+2, now)
}

// spreadInterval returns how long a belief about a group is trusted: a fixed place of
// each group in the last quarter of the interval, so that groups read together
// are not read together again.
func spreadInterval(group registry.Group, interval time.Duration) time.Duration {
	return interval - interval/4*time.Duration(hashOf(group)%1024)/1024
}

// hashOf returns a number that is the same for a group everywhere.
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

// soonest returns the earlier of two times, of which a zero one is none.
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

// A queue is a heap of items, the one that is due first on top; of those that are
// due at one time the one that was read last, as long as that is recent.
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
