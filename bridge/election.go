package bridge

import (
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// An Election says which of several replicas writes to the target of a loop.
type Election interface {
	// Leadership returns what this replica is now. It looks at the clock, must
	// not block, and is called from several goroutines.
	Leadership() Leadership

	// Changed is ready after the leadership may have changed.
	Changed() <-chan struct{}

	// Ready is called with the leadership in which everything is as the role asks
	// for: read by a standby, written by a leader. The zero value says that a loop
	// begins. It must not block.
	Ready(l Leadership)
}

// Leadership is what a replica is to the target of a loop.
type Leadership struct {
	Role   Role
	Term   int64     // rises with each leader
	Until  time.Time // of a leader: no write may begin or continue after it; zero: no such time
	Leader string    // who leads; empty: nobody is known to
}

// Role says what a replica does about a target.
type Role string

// The roles.
const (
	RoleLeader  Role = "leader"  // writes
	RoleStandby Role = "standby" // reads, to lead at once; publishes where the target is shared
)

// applyLeadership handles a change of the leadership. A new leader lists and reads
// everything once more before it writes anything, and orphans settle anew.
func (e *engine) applyLeadership(next Leadership, now time.Time) {
	before := e.state.lead
	e.state.lead = next
	if before.Role == next.Role && (before.Term == next.Term || next.Role == RoleStandby) {
		if before.Leader != next.Leader { // as every group says
			for _, it := range e.state.agenda.items {
				it.markDirty()
			}
		}
		return
	}
	e.state.opts.Log.Info("leadership changed", "target", e.state.opts.Target, "from", before.Role, "to", next.Role, "leader", next.Leader, "term", next.Term)
	if next.Role == RoleLeader {
		e.takeoverAt = now
		for _, it := range e.state.agenda.items {
			it.caughtUp = false
		}
		list, _ := e.state.agenda.item(registry.Group{})
		e.readAgain(list, now)
		e.relist = true
	}
	e.state.records.drainedRead, e.state.records.additionsWaitUntil = !e.state.records.canRead, time.Time{}
	clear(e.state.drains.groups)
	e.state.records.guardsRead = !e.state.records.canRead // what was recorded counts, by the leaders before or by this one
	for _, b := range e.guards.scopes {
		e.guards.resetScope(b)
	}
	for _, it := range e.state.agenda.sortedItems() {
		e.requeue(it, now)
	}
}

// requeue makes a group due after the leadership changed. What others made of
// it since it was read first is what losses are measured by from now on.
func (e *engine) requeue(it *item, now time.Time) {
	it.omissions, it.wakeAt, it.replacedAt = nil, time.Time{}, nil
	delete(e.guards.awaitingRecord, it)
	it.markDirty()
	e.guards.recountOrphans(it, now)
	stale := !it.caughtUp
	if it.busy {
		it.readAgain = it.readAgain || stale
		return
	}
	if stale {
		it.readAt, it.notBefore, it.wasBelieved = time.Time{}, time.Time{}, false
		e.state.unread[it.group] = struct{}{}
	}
	it.enqueue(&e.state.agenda.changes, now)
}

// checkReadyEvery is how often a loop looks whether everything is as its role asks
// for.
const checkReadyEvery = 100 * time.Millisecond

// reportReady reports to the election once everything is as the role asks for, and if
// that is no longer so because a source is stale.
func (e *engine) reportReady(s *step, now time.Time) {
	done, complete := e.reported, e.state.complete()
	isDone := done.Role == e.state.lead.Role && done.Term == e.state.lead.Term
	switch next := e.checkedReadyAt.Add(checkReadyEvery); {
	case e.state.opts.Election == nil, isDone && complete:
		return
	case isDone:
		e.reported = Leadership{}
	case now.Before(next):
		s.wakeAt(next)
		return
	default:
		e.checkedReadyAt = now
		if !complete || !e.caughtUp() {
			s.wakeAt(now.Add(checkReadyEvery))
			return
		}
		e.reported = e.state.lead
	}
	ready := e.reported
	s.ready = &ready
}

// caughtUp reports whether everything was brought to where the role asks for
// since it last changed.
func (e *engine) caughtUp() bool {
	if e.state.listed == nil || e.state.asOf.Before(e.takeoverAt) {
		return false
	}
	for _, it := range e.state.agenda.items {
		if !it.group.IsZero() && !it.caughtUp {
			return false
		}
	}
	return true
}

// standby says who leads where this loop may not write.
func (s *sharedState) standby(it *item) (string, bool) {
	if it.group.IsZero() || s.acts() {
		return "", false
	}
	if leader := s.lead.Leader; leader != "" {
		return leader + " leads", true
	}
	return "no replica leads at the moment", true
}
