package bridge

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
)

const (
	// decisionTerm is how long a decision is kept for other replicas and for the
	// next process. What it let go or kept is in the records of the guard.
	decisionTerm = 5 * time.Minute

	// recordedEntries is how many entries of a hold standbys show.
	recordedEntries = 20

	// recordedKeys is how many keys a decision names. Of more it is good for the
	// hold of that id alone.
	recordedKeys = 2000
)

// ErrUnrecorded says that a decision is not kept in the registry, which is what
// a restart and other replicas know of it. On a hold of this process it counts
// all the same.
var ErrUnrecorded = errors.New("the decision is not recorded")

// releaseDenied is what ends a denial.
const releaseDenied = "each entry once it is claimed again, or all of them by approval"

// ErrNoHold says that no hold has the id that was asked for, such as when its
// set changed since it was shown.
var ErrNoHold = errors.New("no such hold: its entries changed, or it has ended")

// decision is what a person decided about a hold.
type decision struct {
	Approved bool        `json:"approved"` // else denied
	Who      string      `json:"who"`
	At       time.Time   `json:"at"`
	Keys     []guard.Key `json:"keys,omitempty"` // that were shown; none where there are too many
}

// same reports whether two decisions are one.
func (d decision) same(o decision) bool {
	return d.At.Equal(o.At) && d.Approved == o.Approved && d.Who == o.Who
}

// decide has a decision recorded, which then counts at whichever replica has the
// hold. It returns what tells once that was tried.
func (l *loop) decide(id string, d decision, now time.Time) (<-chan error, error) {
	d.At = now
	if h := l.hold(id); h != nil {
		if len(h.keys) <= recordedKeys {
			d.Keys = h.keys
		}
	} else if _, known := l.records.elsewhere[id]; !known {
		return nil, ErrNoHold
	}
	tried := make(chan error, 1)
	if l.records.recorder == nil {
		l.obey(map[string]decision{id: d}, now)
		tried <- errNoRecords
		return tried, nil
	}
	r := newRecord(recordDecisions, id, d)
	r.tried = tried
	l.records.add(r)
	return tried, nil
}

// hold returns the hold of this process that has an id; nil where none has.
func (l *loop) hold(id string) *held {
	for _, b := range l.scopes {
		for _, h := range b.holds() {
			if h.ID == id {
				return h
			}
		}
	}
	return nil
}

// applyDecision tells a guard what a person decided about candidates.
func (l *loop) applyDecision(b *scope, id string, d decision, now time.Time) {
	fate, what := guard.Denied, "denied by "+d.Who
	if d.Approved {
		fate, what = guard.Free, "approved by "+d.Who
	}
	n := b.guard.Decide(now, fate, d.Keys)
	if n == 0 {
		return
	}
	b.changed, b.decided = true, what
	for _, k := range d.Keys {
		if it := l.agenda.items[k.Service]; it != nil && it.orphans[k.Key] != nil && d.Approved {
			it.orphans[k.Key].released = "hold " + id + " ended: " + what
		}
	}
	e := Event{Kind: EventDenied, Bridge: b.name, Subject: id, What: "hold denied", Who: d.Who, Release: releaseDenied}
	if d.Approved {
		e.Kind, e.What, e.Why, e.Release = EventRelease, "hold ended", what, ""
	}
	l.tell(e)
	l.opts.Log.Info("hold decided", "bridge", b.name, "hold", id, "approved", d.Approved, "who", d.Who, "entries", n)
}

// obey applies decisions that were recorded.
func (l *loop) obey(decisions map[string]decision, now time.Time) {
	if !l.mayJudge() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(decisions)) {
		d := decisions[id]
		old := now.Sub(d.At).Abs() >= decisionTerm
		if !l.records.applied[id].same(d) && (!old || l.hold(id) != nil) {
			if h := l.hold(id); h != nil {
				d.Keys = h.keys
			}
			for _, b := range l.scopes {
				l.applyDecision(b, id, d, now)
			}
			l.records.applied[id] = d
		}
		if old && l.leads() && l.hold(id) == nil {
			l.forget(recordDecisions, id)
		}
	}
}

// publishHolds has the holds of this leader recorded, so that standbys show them.
func (l *loop) publishHolds() {
	r, before := &l.records, l.records.published
	if r.published = nil; l.opts.Election == nil || !l.leads() {
		return
	}
	r.published = make(map[string]string)
	for _, b := range l.scopes {
		for _, h := range b.holds() {
			shown := h.Hold
			shown.Entries = shown.Entries[:min(len(shown.Entries), recordedEntries)]
			shown.Groups = shown.Groups[:min(len(shown.Groups), recordedEntries)]
			next := newRecord(recordHolds, shown.ID, shown)
			r.published[next.name] = next.text
			if before[next.name] != next.text {
				r.add(next)
			}
		}
	}
	for id := range before {
		if _, still := r.published[id]; !still {
			l.forget(recordHolds, id)
		}
	}
}

// hear takes in the holds of the leader. Who leads forgets those of the one
// before.
func (l *loop) hear(holds map[string]Hold) {
	r, leads := &l.records, l.leads()
	r.elsewhere = make(map[string]Hold)
	for id, h := range holds {
		_, ours := r.published[id]
		switch {
		case ours || l.hold(id) != nil:
		case leads:
			l.forget(recordHolds, id)
		case id != "" && h.ID == id: // else nobody's
			r.elsewhere[id] = h
		}
	}
}
