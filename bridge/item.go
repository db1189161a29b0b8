package bridge

import (
	"container/heap"
	"errors"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// An item is what an engine knows of one group, beside what the planner does.
// The zero group is the list of all groups.
type item struct {
	slot
	freshness
	failureState
	shown

	group    registry.Group
	arrive   bool // nothing was written to the group yet, and nothing of ours was there
	caughtUp bool // it was as the role asks for since the last take-over
	change   pace
	left     map[registry.Entry]time.Time // since when entries are beside what replaced them
	wakeAt   time.Time                    // when a deletion that waits may go
	orphans  map[string]*orphan
}

// A slot is where an item waits.
type slot struct {
	agenda *agenda
	at     time.Time // when it is due
	in     *queue
	index  int
	busy   bool // being worked on: in no queue
	parked bool // there is nothing to do but what waits for time; of one that is busy, there was nothing but a refresh
	again  bool // has to be read once more after that
}

// A freshness is how well it is known what a group holds.
type freshness struct {
	readAt  time.Time // when what is believed was last known to be so; zero: read first
	wroteAt time.Time
	checkAt time.Time // when the last write is to be read back; zero: not at all, or it was
	watched bool      // the target reports what changes in it
	changed bool      // the target reported a change since the last reading began
	missed  int       // readings back in a row that found something else
}

// A failureState is what failed of late.
type failureState struct {
	notBefore time.Time // after a failure, whatever changes
	attempts  int       // failures in a row
	races     int       // conflicts with other writers in a row
	err       error
	refusals  map[string]refusal // by key
	refusedAt time.Time          // from when on they are tried again
}

// shown is what status says of a group.
type shown struct {
	notes  []note // what is left undone, and why
	dirty  bool   // see agenda.dirty
	reason Reason // how far the group is, as status shows it
	detail string
}

// markDirty has status show a group anew.
func (it *item) markDirty() {
	if !it.dirty {
		it.dirty = true
		it.agenda.dirty = append(it.agenda.dirty, it)
	}
}

// pace is how the changes of a group are gathered: the first is due at once
// unless the group was just written; those that follow wait for quiet.
type pace struct {
	first   time.Time // the first one that is not written; zero: there is none
	last    time.Time
	written time.Time // when the last write began
	spent   time.Time // up to when writes were made in advance, at one in each maxQuiet
}

// ahead is how many writes of a group may be made in advance. A group that
// changes all the time, such as by an endpoint that flaps, is then written once
// in each maxQuiet; one that was idle for long enough is written at once.
const ahead = 10

func (p *pace) add(now time.Time) {
	if p.first.IsZero() {
		p.first = now
	}
	p.last = now
}

// due returns when the changes are to be written.
func (p *pace) due(quiet, maxQuiet time.Duration) time.Time {
	return later(p.gathered(quiet, maxQuiet), p.spent.Add(-ahead*maxQuiet))
}

func (p *pace) gathered(quiet, maxQuiet time.Duration) time.Time {
	if p.written.IsZero() || !p.first.Before(p.written.Add(quiet)) {
		return p.first
	}
	return earlier(p.last.Add(quiet), p.first.Add(maxQuiet))
}

func (p *pace) pending() bool { return !p.first.IsZero() }

// begin records that a write of all changes so far begins, and returns when
// the first of them was seen.
func (p *pace) begin(now time.Time, maxQuiet time.Duration) time.Time {
	first := p.first
	p.first, p.written = time.Time{}, now
	p.spent = later(p.spent, now).Add(maxQuiet)
	return first
}

// restore undoes begin: the changes were not written. What failed is paced by the
// wait after a failure alone.
func (p *pace) restore(first time.Time) {
	p.written = time.Time{}
	if !first.IsZero() {
		p.first = first
		p.last = later(p.last, first)
	}
}

// stubborn is after how many writes in a row, each of which was read back as
// something else, a group is said to be what others make of it; contested is
// the same for writes that met what others wrote, the last about half a minute
// after the first: replicas that take over from each other are done by then.
const (
	stubborn  = 3
	contested = 6
)

const overridden = "the registry shows it otherwise than it was written, time and again: " +
	"another process of this owner, another writer, or what somebody set in the registry's console has it so"

// unchecked reports whether the last write is still to be read back.
func (it *item) unchecked() bool { return !it.checkAt.IsZero() }

// wait makes an item wait in a queue until the given time.
func (it *item) wait(in *queue, at time.Time) {
	it.markDirty()
	it.busy, it.parked = false, false
	if it.in == in {
		it.at = at
		heap.Fix(in, it.index)
		return
	}
	if it.in != nil {
		heap.Remove(it.in, it.index)
	}
	it.in, it.at = in, at
	heap.Push(in, it)
}

// start takes an item out of its queue; it is busy until it waits again.
func (it *item) start() {
	it.markDirty()
	heap.Remove(it.in, it.index)
	it.parked = it.parked && it.in == &it.agenda.refreshes
	it.in, it.busy = nil, true
}

// waits reports whether an item is due for no more than a deletion that waits, or
// a look before that.
func (it *item) waits() bool { return it.parked && !it.change.pending() }

func (it *item) removesOrphan(c registry.Change) bool {
	for _, h := range c.Delete {
		if o := it.orphans[h.Key]; o != nil && o.missing() {
			return true
		}
	}
	return false
}

// recordReplaced records which entries were left beside what replaced them, and has the
// group looked at when the first of them may go.
func (it *item) recordReplaced(change registry.Change, overlap time.Duration, now time.Time) {
	for _, w := range change.Put {
		if w.Beside {
			it.leave(w.Old.Entry, now)
			it.wakeAt = soonest(it.wakeAt, now.Add(overlap))
		}
	}
	for _, h := range change.Delete {
		delete(it.left, h.Entry)
	}
}

func (it *item) leave(e registry.Entry, now time.Time) {
	if it.left == nil {
		it.left = make(map[registry.Entry]time.Time)
	}
	it.left[e] = now
}

// addNote adds a note, or counts it in one that says the same.
func (it *item) addNote(n note) {
	for i := range it.notes {
		o := &it.notes[i]
		if o.conflict == nil && o.origin == n.origin && o.reason == n.reason && o.detail == n.detail {
			o.entries++
			return
		}
	}
	n.entries = 1
	it.notes = append(it.notes, n)
}

// markCaughtUp records that a group is as the role asks for.
func (it *item) markCaughtUp() { it.caughtUp = it.caughtUp || !it.again }

// repeat makes an item due once more that was asked for while it was busy.
func (it *item) repeat(now time.Time) {
	if it.again {
		it.again, it.readAt = false, time.Time{}
		it.wait(&it.agenda.changes, now)
	}
}

// refreshes returns when a group is to be read again without a cause.
func (it *item) refreshes(every time.Duration) time.Time {
	return it.readAt.Add(spread(it.group, every))
}

func (it *item) refused() bool { return errors.Is(it.err, registry.ErrRefused) }

// finding says how far a group is.
func (it *item) finding() (Reason, string) {
	switch {
	case it.attempts > 0 && it.refused():
		return ReasonRefused, it.err.Error()
	case it.attempts > 0:
		return ReasonRetrying, it.err.Error()
	case it.missed >= stubborn, it.races >= contested:
		return ReasonRefused, overridden
	case it.change.pending() || it.readAt.IsZero() || it.busy && it.change.written.After(it.wroteAt):
		return ReasonPending, "a write is due"
	}
	return ReasonSynced, ""
}
