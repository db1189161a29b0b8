package bridge

import (
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// recent is how old a reading may be that a leftover is deleted by.
const recent = time.Second

// A call is one call to the target.
type call struct {
	op      string
	item    *item           // whose group is read or written; of a list that of the zero group
	watch   bool            // the group is watched once it is read
	change  registry.Change // of a write
	first   time.Time       // when the first of the changes written was seen
	began   time.Time
	until   time.Time // when it is given up at the latest
	records []record  // to be stored
	guards  bool      // the records of the guards are read too
}

// isCheck reports whether a call reads a group for no more than a refresh.
func (c call) isCheck() bool { return c.op == opRead && c.item.parked }

// The calls, as logs and observations name them.
const (
	opList    = "list"
	opRead    = "read"
	opWrite   = "write"
	opRecords = "consult" // of records, see decision.go
)

// An outcome is what came of a call.
type outcome struct {
	call
	groups    []registry.Group
	held      []registry.Held
	err       error
	consulted recordsResult
}

// due returns the calls that are due, as many as may run at a time.
func (e *engine) due(now time.Time) (calls []call) {
	for e.working()+len(calls) < e.budget.calls() && !now.Before(e.budget.opens()) {
		it := e.agenda.pop(now)
		if it == nil {
			break
		}
		c, ok := e.next(it, now)
		if !ok {
			e.rest(it, now)
			continue
		}
		c.item, c.began = it, now
		if c.isCheck() {
			e.checks++
		}
		it.changed = it.changed && c.op != opRead
		if limit := now.Add(e.opts.Timeout); c.until.IsZero() || limit.Before(c.until) {
			c.until = limit
		}
		e.budget.spend(now)
		calls = append(calls, c)
	}
	return calls
}

// working returns how many calls about groups are under way.
func (e *engine) working() int {
	if e.records.inFlight != nil {
		return e.calls - 1
	}
	return e.calls
}

// next decides what to do about a group that is due: list, read, write, or
// nothing.
func (e *engine) next(it *item, now time.Time) (call, bool) {
	if it.group.IsZero() {
		return call{op: opList}, true
	}
	if !e.trusted(it, now) {
		return e.reading(it), true
	}
	if !e.acts() {
		it.refusals = nil // the leader finds them out
		return call{}, false
	}
	d := draft{facts: e.facts, guards: e.guards, item: it, now: now}
	change := d.change()
	if change.Empty() || e.dry { // a reading back begins and ends a watch too
		return e.reading(it), it.watched != e.watches(it) && !it.unchecked()
	}
	if now.Sub(it.readAt) > recent && it.removesOrphan(change) {
		return e.reading(it), true
	}
	c := call{op: opWrite, change: change, first: it.change.begin(now, e.opts.MaxQuiet)}
	if c.first.IsZero() {
		c.first = now
	}
	if !e.target.shared {
		c.until = e.lead.Until
	}
	return c, true
}

func (e *engine) reading(it *item) call { return call{op: opRead, watch: e.watches(it)} }

// watches reports whether what others do to a group matters. Until every source
// reported everything it may be that of any.
func (e *engine) watches(it *item) bool {
	return e.target.watched && (e.planner.Concerns(it.group) || !e.complete())
}

// trusted reports whether what is believed of a group is enough without a reading. For a
// change it is trusted longer, so that changes need not wait for a refresh
// that is late.
func (e *engine) trusted(it *item, now time.Time) bool {
	switch {
	case it.readAt.IsZero():
		return false
	case it.change.pending():
		return now.Sub(it.readAt) < 2*e.opts.Refresh
	case it.unchecked() && !now.Before(it.checkAt):
		return false
	}
	return now.Before(it.refreshes(e.opts.Refresh))
}
