package bridge

import (
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// An Election says which of several replicas writes to the target of a loop.
type Election interface {
	// Leadership returns the current leadership of this replica, by the clock. It must
	// not block, and is called from several goroutines.
	Leadership() Leadership

	// Changed is ready after the leadership may have changed.
	Changed() <-chan struct{}

	// Ready is called with a leadership once everything is in the state that its role
	// requires: read by a standby, written by a leader. The zero value says that the loop
	// has begun, or is no longer ready. It must not block.
	Ready(l Leadership)
}

// Leadership is the role of a replica for the target of a loop.
type Leadership struct {
	Role   Role
	Term   int64     // rises with each leader
	Until  time.Time // when a leader has to stop writing; zero: no limit
	Leader string    // the name of the leader; empty: unknown
}

// Role says what a replica does with a target.
type Role string

// The roles.
const (
	RoleLeader  Role = "leader"  // writes
	RoleStandby Role = "standby" // reads, to be ready to lead; also writes if the target is shared
)

// applyLeadership handles a change of the leadership. A new leader lists and reads
// everything again before it writes, and the waits of orphans begin again.
func (e *engine) applyLeadership(next Leadership, now time.Time) {
	before := e.state.lead
	e.state.lead = next
	if before.Role == next.Role && (before.Term == next.Term || next.Role == RoleStandby) {
		if before.Leader != next.Leader { // the status of each group names the leader
			for _, it := range e.state.agenda.items {
				it.markDirty()
			}
		}
		return
	}
	e.state.opts.Log.Info("leadership changed", "target", e.state.opts.Target,
		"from", before.Role, "to", next.Role, "leader", next.Leader, "term", next.Term)
	if next.Role == RoleLeader {
		e.takeoverAt = now
		for _, it := range e.state.agenda.items {
			it.caughtUp = false
		}
		list, _ := e.state.agenda.item(registry.Group{})
		e.readAgain(list, now)
		e.relist = true
	}
	records := e.state.records // those of other leaders count, and those of this one
	records.guardsRead, records.drainedRead, records.additionsWaitUntil = !records.canRead, !records.canRead, time.Time{}
	clear(e.state.drains.groups)
	for _, b := range e.guards.scopes {
		e.guards.resetScope(b)
	}
	for _, it := range e.state.agenda.sortedItems() {
		e.requeue(it, now)
	}
}

// requeue makes a group due after the leadership changed. Losses are measured from then on
// by the content that other replicas left.
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

// checkReadyEvery is how often a loop checks whether everything is in the state that its
// role requires.
const checkReadyEvery = 100 * time.Millisecond

// reportReady reports to the election once everything is in the state that the role
// requires, and again if a source becomes stale.
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

// caughtUp reports whether every group was brought to the state that the role requires
// since its last change.
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

// standby returns who leads, for the status of a group, if this loop may not write.
func (s *sharedState) standby(it *item) (string, bool) {
	if it.group.IsZero() || s.acts() {
		return "", false
	}
	if leader := s.lead.Leader; leader != "" {
		return leader + " leads", true
	}
	return "no replica leads at the moment", true
}
