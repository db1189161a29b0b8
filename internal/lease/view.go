package lease

import (
	"reflect"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// A view is what one replica knows of the election, and all that it decides by.
// It reads no clock and does no I/O.
type view struct {
	Options

	record   record               // as it was last read or written; format 0: never
	readAt   time.Time            // when that was
	highest  int64                // of all terms that were ever seen
	seen     map[string]time.Time // when the entry of a member was last seen to change
	renewed  time.Time            // from when our lease counts; zero: it was given up
	unready  time.Time            // since when this leader is not ready; zero: it is, or does not lead
	patience time.Duration        // with a leader that is not ready
	other    sighting             // of the replica that was last seen to be configured otherwise

	done      bridge.Leadership // the loop was last ready for
	reachable bool              // the target is
	config    string            // of this replica
	leaving   bool
}

// sighting is what a replica said that it is configured to write.
type sighting struct {
	name, config string
	at           time.Time // when it was last seen in the record
}

// anew returns a record in place of one that was deleted or spoiled, with the
// leader that this replica knows of. Where it knows of none, terms begin with the
// time in milliseconds: no leaders change so often that theirs are above it.
func (v *view) anew(now time.Time) record {
	if v.record.Format == 0 {
		return record{Format: format, Term: now.UnixMilli()}
	}
	return v.record
}

// observe adopts a record as the current one, and records which entries changed. If the
// record was not read for long, silence of an entry proves nothing.
func (v *view) observe(r record, now time.Time) {
	blind := now.Sub(v.readAt) > 2*v.beat()
	seen := make(map[string]time.Time, len(r.Members))
	for name, m := range r.Members {
		seen[name] = v.seen[name]
		if blind || seen[name].IsZero() || m.Beat != v.record.Members[name].Beat {
			seen[name] = now
		}
		if name != v.Identity && m.Config != "" && (m.Config != v.config || name == v.other.name) {
			v.other = sighting{name, m.Config, now}
		}
	}
	v.record, v.seen, v.readAt, v.highest = r, seen, now, max(v.highest, r.Term)
}

// decide returns the record that is to follow one that was read, and whether it
// is to be written.
func (v *view) decide(now time.Time, read record) (next record, due bool) {
	v.observe(read, now)
	self, next := v.Identity, read
	next.Members = map[string]member{}
	for name, m := range read.Members {
		if now.Sub(v.seen[name]) < max(v.TTL, time.Duration(m.TTL)*time.Millisecond) {
			next.Members[name] = m
		}
	}
	own := v.entry()
	next.Members[self] = own
	if next.Term < v.highest { // it was made anew by a clock that is behind
		next.Term = v.highest + 1
	}
	v.elect(&next, now)
	if v.leaving && next.dispensable(self) {
		delete(next.Members, self)
	}
	if reflect.DeepEqual(next, read) && now.Sub(v.renewed) < v.beat() {
		return next, false
	}
	if next.Leader != self || !next.has(self) {
		v.renewed = time.Time{} // before others may learn of it, and until a later write is stored: this one may come late
	}
	if next.has(self) {
		own.Beat++
		next.Members[self] = own
	}
	return next, true
}

// entry returns our entry as it is to follow the one in the record.
func (v *view) entry() member {
	r, self := v.record, v.Identity
	m := member{Beat: r.Members[self].Beat, TTL: v.TTL.Milliseconds(), Leaving: v.leaving, Config: v.config}
	if v.reachable && v.done.Term == r.Term && (v.done.Role == bridge.RoleLeader) == (r.Leader == self) {
		m.Ready = r.Term
	}
	return m
}

// elect makes the candidate the leader, as far as this replica may: itself where
// nobody leads, and another in its own place.
func (v *view) elect(r *record, now time.Time) {
	candidate, gives := r.candidate(v.Target), v.overdue(*r, now) || v.leaving
	if candidate == v.Identity && !r.has(r.Leader) || r.Leader == v.Identity && r.ready(candidate) && gives {
		r.Leader, r.Term = candidate, r.Term+1
	}
}

// overdue reports whether this leader has not been ready for so long that another
// has to lead.
func (v *view) overdue(r record, now time.Time) bool {
	switch leads := r.Leader == v.Identity; {
	case leads && r.ready(v.Identity):
		v.unready, v.patience = time.Time{}, v.leastPatience()
	case leads && v.unready.IsZero():
		v.unready = now
	case !leads && !v.unready.IsZero():
		v.unready, v.patience = time.Time{}, min(2*v.patience, 32*v.leastPatience())
	}
	return !v.unready.IsZero() && now.Sub(v.unready) >= v.patience
}

// leadership returns what the replica is. A leader whose time ran out is named
// no more.
func (v *view) leadership(now time.Time) bridge.Leadership {
	l := bridge.Leadership{Role: bridge.RoleStandby, Term: v.record.Term, Leader: v.record.Leader}
	until := v.renewed.Add(v.valid())
	switch {
	case l.Leader != v.Identity:
	case v.record.has(v.Identity) && now.Before(until):
		l.Role, l.Until = bridge.RoleLeader, until
	default:
		l.Leader = ""
	}
	return l
}
