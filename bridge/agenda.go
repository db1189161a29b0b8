package bridge

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

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
	turn      int     // of pop
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

// all returns the items of all groups, in their order.
func (a *agenda) all() []*item {
	return inOrder(maps.Values(a.items))
}

// inOrder returns the items of groups in the order of these.
func inOrder(items iter.Seq[*item]) []*item {
	all := slices.SortedFunc(items, func(a, b *item) int { return a.group.Compare(b.group) })
	return slices.DeleteFunc(all, func(it *item) bool { return it.group.IsZero() })
}

// touch records a change of a group and makes it due as its pace and its last
// failure allow. It reports whether the change joined one that was due.
func (a *agenda) touch(it *item, now time.Time) bool {
	it.markDirty()
	joined := it.change.pending()
	it.change.add(now)
	overdue := (it.in == &a.changes || it.in == &a.arrivals) && !it.at.After(now)
	if !it.busy && !overdue {
		a.pace(it)
	}
	return joined
}

// pace makes an item with changes due when its pace and its last failure allow.
func (a *agenda) pace(it *item) {
	queue := &a.changes
	if it.arrive && it.attempts == 0 { // nothing waits for one that fails
		queue = &a.arrivals
	}
	it.wait(queue, later(it.change.due(a.opts.Quiet, a.opts.MaxQuiet), it.notBefore))
}

// pop removes and returns an item that is due: a change before an arrival
// before a refresh, but of every eight turns two are the arrivals' and one is
// the refreshes', so that a flood of one kind does not stop the others.
func (a *agenda) pop(now time.Time) *item {
	order := [...]*queue{&a.changes, &a.arrivals, &a.refreshes}
	switch a.turn++; a.turn % 8 {
	case 2, 5:
		order = [...]*queue{&a.arrivals, &a.changes, &a.refreshes}
	case 7:
		order = [...]*queue{&a.refreshes, &a.changes, &a.arrivals}
	}
	for _, q := range order {
		if len(*q) > 0 && !(*q)[0].at.After(now) {
			it := (*q)[0]
			it.start()
			return it
		}
	}
	return nil
}

// next returns when the first item is due; the zero time if there is none.
func (a *agenda) next() time.Time {
	var at time.Time
	for _, q := range []queue{a.changes, a.arrivals, a.refreshes} {
		if len(q) > 0 && (at.IsZero() || q[0].at.Before(at)) {
			at = q[0].at
		}
	}
	return at
}

// due returns how many items are due and since when the first of them is.
func (a *agenda) due(now time.Time) (int, time.Time) {
	n, first := 0, now
	for _, q := range []queue{a.changes, a.arrivals, a.refreshes} {
		if due := dueBelow(q, 0, now); due > 0 {
			n += due
			first = earlier(first, q[0].at)
		}
	}
	return n, first
}

// dueBelow returns how many items are due from a place of a heap downwards.
func dueBelow(q queue, i int, now time.Time) int {
	if i >= len(q) || q[i].at.After(now) {
		return 0
	}
	return 1 + dueBelow(q, 2*i+1, now) + dueBelow(q, 2*i+2, now)
}

// spread returns how long a belief about a group is trusted: a fixed place of
// each group in the last quarter of the interval, so that groups read together
// are not read together again.
func spread(group registry.Group, interval time.Duration) time.Duration {
	return interval - interval/4*time.Duration(hash(group)%1024)/1024
}

// hash returns a number that is the same for a group everywhere.
func hash(group registry.Group) uint32 {
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
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.readAt.After(b.readAt)
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

// Waits are for what the source may still say. While the process stood still,
// as by SIGSTOP or with its machine, nothing was heard, so that waits begin
// anew after it.

const (
	// pulse is how often the loop turns at least while deletions wait, so that
	// a pause shows in how late a turn is.
	pulse = time.Second

	// late is how much later than its timer a turn is after a pause.
	late = time.Second
)

// A clock reports whether the process stood still.
type clock struct {
	due  time.Time // when the next turn is to be at the latest; zero: no such time
	seen time.Time // when the last one was
}

// set records that a turn ends, and when the next one is due.
func (c *clock) set(due, now time.Time) { c.due, c.seen = due, now }

// paused reports whether a turn is late, or the clock on the wall continued
// without the one that timers follow, as on a machine that was suspended.
func (c *clock) paused(now time.Time) bool {
	slept := now.Round(0).Sub(c.seen.Round(0)) - now.Sub(c.seen)
	return !c.seen.IsZero() && (slept > late || !c.due.IsZero() && now.Sub(c.due) > late)
}
