package bridge

import (
	"slices"
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

	// Ready is told in which leadership everything is as the role asks for: read
	// by a standby, written by a leader. The zero value says that a loop begins.
	// It must not block.
	Ready(l Leadership)
}

// Leadership is what a replica is to the target of a loop.
type Leadership struct {
	Role   Role
	Term   int64     // rises with each leader
	Until  time.Time // of a leader: no write may begin or go on after it; zero: no such time
	Leader string    // who leads; empty: nobody is known to
}

// Role says what a replica does about a target.
type Role string

// The roles.
const (
	RoleLeader  Role = "leader"  // writes
	RoleStandby Role = "standby" // reads, to take over at once; publishes where the target is shared
)

// leadership returns what the loop may do at this moment. The clock may be ahead
// of what the loop took in, never the other way round: a leadership that was
// gained is acted on once everything was made to be read anew.
func (l *loop) leadership() Leadership {
	if l.opts.Election == nil {
		return Leadership{Role: RoleLeader}
	}
	now := l.opts.Election.Leadership()
	if l.lead.Role != RoleLeader || l.lead.Term != now.Term {
		now.Role = RoleStandby
	}
	return now
}

// leads reports whether this replica leads at this moment.
func (l *loop) leads() bool { return l.leadership().Role == RoleLeader }

// acts reports whether the loop has to write.
func (l *loop) acts() bool { return l.shared || l.leads() }

// changed is ready when the election has something new.
func (l *loop) changed() <-chan struct{} {
	if l.opts.Election == nil {
		return nil
	}
	return l.opts.Election.Changed()
}

// lookAtElection takes in how the leadership changed. A new leader lists and
// reads everything once more before it writes anything, and leftovers settle
// anew.
func (l *loop) lookAtElection(now time.Time) {
	before, next := l.lead, l.opts.Election.Leadership()
	l.lead = next
	if before.Role == next.Role && (before.Term == next.Term || next.Role == RoleStandby) {
		return
	}
	l.opts.Log.Info("leadership changed", "target", l.opts.Target, "from", before.Role, "to", next.Role, "leader", next.Leader, "term", next.Term)
	if next.Role == RoleLeader {
		l.takeovers++
		l.tookOverAt = now
		l.listAgain(now)
		l.records.read = false // what the leaders before recorded counts
	}
	for _, b := range l.scopes {
		l.reset(b)
	}
	for _, it := range l.agenda.items {
		if !it.group.IsZero() {
			l.reconsider(it, now)
		}
	}
}

// listAgain makes the groups that the target has be listed anew.
func (l *loop) listAgain(now time.Time) {
	l.relist = true
	list, _ := l.agenda.item(registry.Group{})
	if list.busy {
		list.again = true
		return
	}
	list.wait(&l.agenda.changes, later(now, list.notBefore))
}

// reconsider makes a group due after the leadership changed. What others made of
// it since it was read first is what losses are measured by from now on.
func (l *loop) reconsider(it *item, now time.Time) {
	it.notes, it.wakeAt, it.left = nil, time.Time{}, nil
	it.stir()
	l.account(it, now)
	stale := it.takeover != l.takeovers
	if it.busy {
		it.again = it.again || stale
		return
	}
	if stale {
		it.readAt, it.notBefore = time.Time{}, time.Time{}
	}
	it.wait(&l.agenda.changes, now)
}

// confirmEvery is how often a loop looks whether everything is as its role asks
// for.
const confirmEvery = 100 * time.Millisecond

// confirm tells the election once everything is as the role asks for, and where
// that is so no more because a source is stale. It returns when to look again;
// the zero time where there is nothing to look for.
func (l *loop) confirm(now time.Time) time.Time {
	if l.opts.Election == nil {
		return time.Time{}
	}
	complete := !slices.ContainsFunc(l.ways, func(w *way) bool { return !w.complete() })
	if done := l.confirmed; done.Role == l.lead.Role && done.Term == l.lead.Term {
		if !complete {
			l.confirmed = Leadership{}
			l.opts.Election.Ready(l.confirmed)
		}
		return time.Time{}
	}
	if next := l.confirmedAt.Add(confirmEvery); now.Before(next) {
		return next
	}
	l.confirmedAt = now
	if !complete || !l.caughtUp() {
		return now.Add(confirmEvery)
	}
	l.confirmed = l.lead
	l.opts.Election.Ready(l.lead)
	return time.Time{}
}

// caughtUp reports whether everything was brought to where the role asks for
// since the last take-over.
func (l *loop) caughtUp() bool {
	if l.listed == nil || l.asOf.Before(l.tookOverAt) {
		return false
	}
	for _, it := range l.agenda.items {
		if !it.group.IsZero() && it.takeover != l.takeovers {
			return false
		}
	}
	return true
}

// finished notes that a group is as the role asks for.
func (l *loop) finished(it *item) {
	if !it.again {
		it.takeover = l.takeovers
	}
}

// standby says who leads where this loop may not write.
func (l *loop) standby(it *item) (string, bool) {
	if it == nil || it.group.IsZero() || l.acts() {
		return "", false
	}
	if leader := l.opts.Election.Leadership().Leader; leader != "" {
		return leader + " leads", true
	}
	return "no replica leads at the moment", true
}
