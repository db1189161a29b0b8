package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
)

const (
	// decisionTerm is how long a decision is recorded for other replicas and the next
	// process. Its effect on each entry is in the records of the guard.
	decisionTerm = 5 * time.Minute

	// readTerm is how long a replica takes to read a decision, at most.
	readTerm = 3 * recordsEvery

	// maxRecordedEntries is how many entries of a hold are recorded for standbys to show.
	maxRecordedEntries = 20

	// maxRecordedKeys is how many keys a decision names. A decision about more keys applies
	// only to the hold with the same id.
	maxRecordedKeys = 2000
)

// ErrUnrecorded says that a decision is not recorded in the registry: a restart and other
// replicas do not know it. A hold of this process follows it anyway.
var ErrUnrecorded = errors.New("the decision is not recorded")

// releaseDenied says how a denial ends.
const releaseDenied = "for each entry once it is claimed again, and for all of them by approval"

// ErrNoHold says that no hold has the given id, for instance because its entries changed
// since it was shown.
var ErrNoHold = errors.New("no such hold: its entries changed, or it has ended")

// A decision is the answer of an operator to a hold.
type decision struct {
	Approved bool        `json:"approved"` // false: denied
	Who      string      `json:"who"`
	At       time.Time   `json:"at"`
	Keys     []guard.Key `json:"keys,omitempty"` // of the hold; empty if there are more than maxRecordedKeys
}

// equal reports whether two records have the same decision.
func (d decision) equal(o decision) bool {
	return d.At.Equal(o.At) && d.Approved == o.Approved && d.Who == o.Who
}

// A shownHold is a hold as status shows it, with its keys. It is immutable once shown.
type shownHold struct {
	Hold

	keys    []guard.Key
	firstID string // the id when the hold began: the id changes with the keys
}

// setFirstID takes the first id from the same hold as it was shown before; nil: it is new.
func (h *shownHold) setFirstID(before *shownHold) {
	switch {
	case h == nil:
	case before == nil:
		h.firstID = h.ID
	default:
		h.firstID = before.firstID
	}
}

// holds returns the hold and the denied entries that are shown.
func (b *scope) holds() (all []*shownHold) {
	for _, h := range []*shownHold{b.hold, b.denied} {
		if h != nil {
			all = append(all, h)
		}
	}
	return all
}

// holdStatus returns a hold as status shows it; nil for nil.
func (b *scope) holdStatus(target string, h *guard.Hold) *shownHold {
	if h == nil {
		return nil
	}
	where := sha256.Sum256([]byte(target + "\x00" + b.name))
	out := &shownHold{keys: h.Keys, Hold: Hold{
		ID: hex.EncodeToString(where[:3]) + "-" + h.ID, Bridge: b.name, Since: h.Since, Count: len(h.Keys),
		Reason:  fmt.Sprintf("%d of %d services would have no endpoint left", h.Emptied, h.Services),
		Release: b.releaseText(h),
	}}
	switch {
	case b.pipeline == nil:
		out.Reason = "bridge " + b.name + " is not configured"
	case h.Emptied == 0:
		window := b.guard.Options.Window
		out.Reason = fmt.Sprintf("%d of %d endpoints would be gone within %s", h.Lost, h.Endpoints, window)
	}
	for _, k := range h.Keys {
		if n := len(out.Groups); n == 0 || out.Groups[n-1] != k.Service {
			out.Groups = append(out.Groups, k.Service)
		}
		out.Entries = append(out.Entries, k.Service.String()+" "+k.Key)
	}
	return out
}

// releaseText returns what ends a hold.
func (b *scope) releaseText(h *guard.Hold) string {
	switch confirm := b.guard.Options.Confirm; {
	case b.guard.Options.Mode == GuardWarn:
		return "at once: guard.mode is warn"
	case b.pipeline == nil:
		return "by approval, or once the bridge is configured again"
	case confirm == 0:
		return "by approval"
	case h.OperatorOnly && 2*h.Emptied > h.Services && h.Emptied < h.Services:
		return "only when an operator approves it: more than half of its services would have no endpoint left"
	case h.OperatorOnly:
		return "only when an operator approves it: the source now offers none of the stored endpoints"
	}
	return "by approval, or if the source confirms it over a new connection " +
		b.guard.Options.Confirm.String() + " after it began"
}

// holdEndText returns how the hold that is shown ended.
func (b *scope) holdEndText(cause string) string {
	if b.hold == nil {
		return "hold ended: " + cause
	}
	return "hold " + b.hold.ID + " ended: " + cause
}

// showHold updates what is shown of the hold of a scope, and reports if it began, changed or
// ended.
func (g *guards) showHold(b *scope, r guard.Round, now time.Time) {
	before, target := b.hold, g.state.opts.Target
	b.hold, b.denied = b.holdStatus(target, b.guard.Hold()), b.holdStatus(target, b.guard.Denied())
	if b.denied != nil {
		b.denied.Denied, b.denied.Reason, b.denied.Release = true, "an operator denied it", releaseDenied
	}
	b.hold.setFirstID(before)
	switch h := b.hold; {
	case h == nil && before != nil:
		why := "none of its entries is to be deleted any more"
		if len(r.Released) > 0 {
			why = r.Released[0].Cause
		}
		g.state.journal.emitHoldEnd(b, before, cmp.Or(b.decisionText, why))
	case h != nil && before == nil:
		g.touchGroups(h.Groups, now) // so that their services are shown as held
		g.state.journal.emitHold(h.Hold, "held back")
		g.state.journal.warnHold(b, h)
	case h != nil && before.ID != h.ID:
		g.touchGroups(h.Groups, now)
		g.state.journal.emitHold(h.Hold, "held back, its entries changed")
	case h != nil && before.Release != h.Release:
		g.state.journal.emitHold(h.Hold, "held back, what ends it changed")
	}
	b.decisionText = ""
}

// decide applies a decision about a hold of this process, and records it for other
// processes. The channel receives the result of the first attempt to record it. It fails
// with ErrNoHold if no replica shows the hold.
func (g *guards) decide(id string, d decision, now time.Time) (recorded <-chan error, err error) {
	d.At = now
	if h := g.hold(id); h != nil {
		g.applyDecision(id, d, h, now)
		if len(h.keys) <= maxRecordedKeys {
			d.Keys = h.keys
		}
	} else if !slices.ContainsFunc(g.otherHolds(), func(h Hold) bool { return h.ID == id }) {
		return nil, ErrNoHold
	}
	firstAttempt := make(chan error, 1)
	if !g.state.records.canStore {
		firstAttempt <- errNoRecords
		return firstAttempt, nil
	}
	r := newPendingRecord(recordDecisions, id, d)
	r.firstAttempt = firstAttempt
	g.state.records.enqueue(r)
	return firstAttempt, nil
}

// hold returns the hold of this process with the given id; nil if there is none.
func (g *guards) hold(id string) *shownHold {
	for _, b := range g.scopes {
		for _, h := range b.holds() {
			if h.ID == id {
				return h
			}
		}
	}
	return nil
}

// applyDecision applies a decision to the guards: to the keys of the hold. If the hold is
// nil because it ended, it applies to the keys that the decision names.
func (g *guards) applyDecision(id string, d decision, h *shownHold, now time.Time) {
	g.state.records.appliedDecisions[id] = d
	if h != nil {
		d.Keys = h.keys
	}
	for _, b := range g.scopes {
		g.decideKeys(b, id, d, now)
	}
}

// decideKeys applies a decision to those of its keys that are candidates of one guard.
func (g *guards) decideKeys(b *scope, id string, d decision, now time.Time) {
	fate, what := guard.Denied, "denied by "+d.Who
	if d.Approved {
		fate, what = guard.Free, "approved by "+d.Who
	}
	n := b.guard.Decide(now, fate, d.Keys)
	if n == 0 {
		return
	}
	b.needsJudgement, b.decisionText = true, what
	for _, k := range d.Keys {
		if o := g.orphan(k); o != nil && d.Approved {
			o.releaseCause = "hold " + id + " ended: " + what
		}
	}
	e := Event{Kind: EventDenied, Bridge: b.name, Subject: id, What: "hold denied", Who: d.Who, Release: releaseDenied}
	if d.Approved {
		e.Kind, e.What, e.Why, e.Release = EventRelease, "hold ended", what, ""
	}
	g.state.journal.emit(e)
	g.state.opts.Log.Info("hold decided",
		"bridge", b.name, "hold", id, "approved", d.Approved, "who", d.Who, "entries", n)
}

// applyRecorded applies recorded decisions, and deletes the records of those that are old or
// carried out.
func (g *guards) applyRecorded(decisions map[string]decision, now time.Time) {
	if !g.state.mayJudge() {
		return
	}
	maps.DeleteFunc(g.state.records.appliedDecisions, func(id string, d decision) bool {
		_, kept := decisions[id]
		return !kept && now.Sub(d.At).Abs() >= decisionTerm
	})
	for _, id := range slices.Sorted(maps.Keys(decisions)) {
		d := decisions[id]
		age := now.Sub(d.At).Abs()
		old := age >= decisionTerm
		isApplicable := !old && len(d.Keys) > 0 || g.hold(id) != nil // a decision without keys waits for its hold
		if isApplicable && !g.state.records.appliedDecisions[id].equal(d) {
			g.applyDecision(id, d, g.hold(id), now)
		}
		if (old || g.carriedOut(d, age)) && g.state.leads() && g.hold(id) == nil {
			g.state.records.store(recordDecisions, id, nil)
		}
	}
}

// carriedOut reports whether every replica had time to read a decision, and none of its keys
// is an orphan any more. The next process must not apply it to another loss.
func (g *guards) carriedOut(d decision, age time.Duration) bool {
	isOrphan := func(k guard.Key) bool { return g.orphan(k) != nil }
	return len(d.Keys) > 0 && age >= readTerm && !slices.ContainsFunc(d.Keys, isOrphan)
}

// orphan returns the orphan of a key; nil if there is none.
func (g *guards) orphan(k guard.Key) *orphan {
	if it := g.state.agenda.items[k.Service]; it != nil {
		return it.orphans[k.Key]
	}
	return nil
}

// publishHolds records the holds of this leader instead of those recorded so far, so that
// standbys show them.
func (g *guards) publishHolds() {
	// Until this leader has judged, it may still find the holds of the leader before.
	if !g.state.leads() || !g.state.mayJudge() || g.judgementDue() {
		return
	}
	records, ours := g.state.records, make(map[string]bool)
	for _, b := range g.scopes {
		for _, h := range b.holds() {
			if g.state.opts.Election == nil {
				break
			}
			shown := h.Hold
			shown.Entries = shown.Entries[:min(len(shown.Entries), maxRecordedEntries)]
			shown.Groups = shown.Groups[:min(len(shown.Groups), maxRecordedEntries)]
			next := newPendingRecord(recordHolds, shown.ID, shown)
			if next.text != newPendingRecord(recordHolds, shown.ID, records.holds[shown.ID]).text {
				records.enqueue(next)
			}
			ours[shown.ID] = true
		}
	}
	for id := range records.holds {
		if !ours[id] {
			records.store(recordHolds, id, nil)
		}
	}
}

// otherHolds returns the recorded holds that this process does not have, by id.
func (g *guards) otherHolds() (list []Hold) {
	for _, id := range slices.Sorted(maps.Keys(g.state.records.holds)) {
		if h := g.state.records.holds[id]; id != "" && h.ID == id && g.hold(id) == nil { // else it is not a hold
			list = append(list, h)
		}
	}
	return list
}

// holdList returns the holds that status shows: those of this process, and then the others.
func (g *guards) holdList() []Hold {
	list := make([]Hold, 0, len(g.scopes))
	for _, b := range g.scopes {
		for _, h := range b.holds() {
			list = append(list, h.Hold)
		}
	}
	return append(list, g.otherHolds()...)
}
