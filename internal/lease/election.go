package lease

import (
	"reflect"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// An election is the state by which one replica decides. It reads no clock and does no
// I/O.
type election struct {
	Options

	// The record, and what was observed of it.
	record       leaseRecord          // the last one read or written; format 0 if there was none
	readAt       time.Time            // when record was read
	highestTerm  int64                // of all terms that were ever read
	lastChange   map[string]time.Time // when the entry of each member was last seen to change
	otherConfig  sighting             // the last other replica with a differing configuration
	renewedAt    time.Time            // the start of our lease; zero if it was given up
	unreadySince time.Time            // since when this leader is not ready; zero if it is ready or does not lead
	patience     time.Duration        // how long a leader may take to become ready

	// The state of this replica.
	readyFor  bridge.Leadership // the leadership for which the loop was last ready
	reachable bool              // whether the target is reachable
	config    string            // see Elector.Configure
	leaving   bool
}

// sighting is the configuration that another replica reported.
type sighting struct {
	name, config string
	at           time.Time // when it was last in the record
}

// recreate returns a record that replaces a deleted or invalid one, with the leader that
// this replica knows. Without a known leader, terms start at the time in milliseconds,
// which exceeds the terms of all earlier leaders.
func (e *election) recreate(now time.Time) leaseRecord {
	if e.record.Format == 0 {
		return leaseRecord{Format: format, Term: now.UnixMilli()}
	}
	return e.record
}

// observe adopts a record as the current one, and notes which entries changed. If the
// record was not read for some time, an unchanged entry proves nothing.
func (e *election) observe(r leaseRecord, now time.Time) {
	blind := now.Sub(e.readAt) > 2*e.beat()
	lastChange := make(map[string]time.Time, len(r.Members))
	for name, m := range r.Members {
		lastChange[name] = e.lastChange[name]
		if blind || lastChange[name].IsZero() || m.Beat != e.record.Members[name].Beat {
			lastChange[name] = now
		}
		if name != e.Identity && m.Config != "" && (m.Config != e.config || name == e.otherConfig.name) {
			e.otherConfig = sighting{name, m.Config, now}
		}
	}
	e.record, e.lastChange, e.readAt, e.highestTerm = r, lastChange, now, max(e.highestTerm, r.Term)
}

// decide returns the successor of a record that was read, and whether it must be written.
func (e *election) decide(now time.Time, read leaseRecord) (next leaseRecord, write bool) {
	e.observe(read, now)
	self, next := e.Identity, read
	next.Members = map[string]member{}
	for name, m := range read.Members {
		if now.Sub(e.lastChange[name]) < max(e.TTL, time.Duration(m.TTL)*time.Millisecond) {
			next.Members[name] = m
		}
	}
	own := e.ownEntry()
	next.Members[self] = own
	if next.Term < e.highestTerm { // a replica whose clock is behind recreated the record
		next.Term = e.highestTerm + 1
	}
	e.elect(&next, now)
	if e.leaving && next.dispensable(self) {
		delete(next.Members, self)
	}
	if reflect.DeepEqual(next, read) && now.Sub(e.renewedAt) < e.beat() {
		return next, false
	}
	if next.Leader != self || !next.has(self) {
		// The lease ends before others can see it, and until a later write is stored:
		// this write may be delayed.
		e.renewedAt = time.Time{}
	}
	if next.has(self) {
		own.Beat++
		next.Members[self] = own
	}
	return next, true
}

// ownEntry returns the successor of our entry in the record.
func (e *election) ownEntry() member {
	r, self := e.record, e.Identity
	m := member{Beat: r.Members[self].Beat, TTL: e.TTL.Milliseconds(), Leaving: e.leaving, Config: e.config}
	if e.reachable && e.readyFor.Term == r.Term && (e.readyFor.Role == bridge.RoleLeader) == (r.Leader == self) {
		m.Ready = r.Term
	}
	return m
}

// elect makes the candidate the leader, if this replica may: it may lead if there is no
// leader, and hand over its own leadership.
func (e *election) elect(r *leaseRecord, now time.Time) {
	candidate, handOver := r.candidate(e.Target), e.overdue(*r, now) || e.leaving
	if candidate == e.Identity && !r.has(r.Leader) || r.Leader == e.Identity && r.ready(candidate) && handOver {
		r.Leader, r.Term = candidate, r.Term+1
	}
}

// overdue reports whether this leader has not been ready for longer than its patience, so
// that another replica must lead.
func (e *election) overdue(r leaseRecord, now time.Time) bool {
	switch leads := r.Leader == e.Identity; {
	case leads && r.ready(e.Identity):
		e.unreadySince, e.patience = time.Time{}, e.minPatience()
	case leads && e.unreadySince.IsZero():
		e.unreadySince = now
	case !leads && !e.unreadySince.IsZero():
		e.unreadySince, e.patience = time.Time{}, min(2*e.patience, 32*e.minPatience())
	}
	return !e.unreadySince.IsZero() && now.Sub(e.unreadySince) >= e.patience
}

// leadership returns the role of this replica. If its own lease expired, the leader is
// empty.
func (e *election) leadership(now time.Time) bridge.Leadership {
	l := bridge.Leadership{Role: bridge.RoleStandby, Term: e.record.Term, Leader: e.record.Leader}
	until := e.renewedAt.Add(e.valid())
	switch {
	case l.Leader != e.Identity:
	case e.record.has(e.Identity) && now.Before(until):
		l.Role, l.Until = bridge.RoleLeader, until
	default:
		l.Leader = ""
	}
	return l
}
