package bridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// The kinds of records that a loop keeps in its target, where it is a
// registry.Recorder.
const (
	recordDecisions = "decisions" // on holds, by setOf the id of the hold
	recordHolds     = "holds"     // as other replicas show them, by the same
)

const (
	// consultEvery is how often the records are looked at while there is a
	// hold, or other replicas may have one.
	consultEvery = 5 * time.Second

	// approvalTerm is how long an approval is good for beyond the hold that it
	// was given for, so that it survives a restart and not the next time that
	// the same set goes.
	approvalTerm = 5 * time.Minute

	// holdTerm is how long the hold of a replica is shown that says no more, by
	// the clock of the one that shows it.
	holdTerm = 2 * time.Minute

	// recordedEntries is how many entries of a hold other replicas show.
	recordedEntries = 20

	// recordedCounts is how many groups an approval may except.
	recordedCounts = 50

	// denialTerm is how long a denial counts for parts of its set, which other
	// replicas make of it; for the set as a whole it counts until that changes.
	denialTerm = 24 * time.Hour

	// recordedKeys is of how many keys a denial tells.
	recordedKeys = 1000
)

// decision is a person's word on a hold.
type decision struct {
	Approved bool      `json:"approved"` // else denied
	Who      string    `json:"who"`
	At       time.Time `json:"at"`
	Since    time.Time `json:"since,omitzero"` // of the hold, as whoever has it says: clocks of replicas differ

	// Of an approval, as who let the hold go tells those who decide after it:
	Bridge string           `json:"bridge,omitempty"` // what it lost counts no more; empty: it does
	Counts []registry.Group `json:"counts,omitempty"` // but for these

	// Keys are digests of what a denial is of, in order, for replicas that decide a
	// part of it each by now; none where there are too many.
	Keys []string `json:"keys,omitempty"`
}

// has reports whether a denial is of a key, by its digest.
func (d decision) has(key string) bool {
	_, found := slices.BinarySearch(d.Keys, key)
	return found
}

// covers reports whether a denial is of all that a hold keeps.
func (d decision) covers(h *hold) bool {
	if len(h.set) > len(d.Keys) {
		return false
	}
	for s := range h.set {
		if !d.has(s.place().digest()) {
			return false
		}
	}
	return true
}

// denies reports whether a decision is a denial that parts of its set are still
// compared with.
func (d decision) denies(now time.Time) bool {
	return !d.Approved && now.Sub(d.At).Abs() < denialTerm
}

// digest tells a key apart from others in few letters.
func (p place) digest() string {
	sum := sha256.Sum256([]byte(p.group.String() + "\x00" + p.key))
	return hex.EncodeToString(sum[:6])
}

func (s *surplus) place() place { return place{s.item.group, s.Key} }

// approves reports whether an approval is of a hold that is there since then.
func (d decision) approves(since, now time.Time) bool {
	return d.Approved && (d.Since.Equal(since) || now.Sub(d.At).Abs() < approvalTerm)
}

// posted is a hold of some replica.
type posted struct {
	Hold
	At time.Time `json:"at"`
}

// A record is a text to be stored; an empty one is forgotten.
type record struct {
	kind, name, text string
	kept             chan<- error // told once how the first attempt ended; nil: nobody waits
}

// tell says how an attempt to store the record ended.
func (r *record) tell(err error) {
	if r.kept != nil {
		r.kept <- err
		r.kept = nil
	}
}

// records is what the loop knows of the records in its target. Calls about
// them run beside those about groups, one at a time.
type records struct {
	recorder  registry.Recorder // nil: nothing is recorded
	pending   []record
	consulted time.Time // when they were last looked at
	asked     time.Time // when that look began
	notBefore time.Time // after a failure
	busy      bool
	failed    bool
	elsewhere map[string]Hold // holds of other replicas
	heard     map[string]heard
	posted    map[string]time.Time
	vouched   map[string]time.Time // approvals of which the balance knows: when they were given
	denials   map[string]decision  // those of late, by record, for the parts of their sets
}

// heard is when a replica said anew that it has a hold.
type heard struct{ at, here time.Time } // by its clock, and by ours

// consultation is what came of a look.
type consultation struct {
	stored    []record
	left      []record // that could not be stored
	decisions map[string]decision
	holds     map[string]posted
}

// keep stores a record when there is time.
func (l *loop) keep(kind, name string, value any) {
	if l.records.recorder != nil && !l.dry {
		l.records.add(newRecord(kind, name, value))
	}
}

func newRecord(kind, name string, value any) record {
	r := record{kind: kind, name: name}
	if value != nil {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // of texts and times alone
		}
		r.text = string(text)
	}
	return r
}

// errNoRecords says why a decision is good for as long as the process.
var errNoRecords = errors.New("this target keeps no records, so that a restart asks anew")

var errReplaced = errors.New("another decision took its place")

// keepDecision is keep for a decision, and returns what tells how that went.
func (l *loop) keepDecision(id string, d decision) <-chan error {
	kept := make(chan error, 1)
	if l.records.recorder == nil || l.dry {
		kept <- errNoRecords
		return kept
	}
	r := newRecord(recordDecisions, id, d)
	r.kept = kept
	l.records.add(r)
	return kept
}

// add has a record stored in the place of what was to be stored under its name.
func (r *records) add(next record) {
	r.pending = slices.DeleteFunc(r.pending, func(p record) bool {
		same := p.kind == next.kind && p.name == next.name
		if same {
			p.tell(errReplaced)
		}
		return same
	})
	r.pending = append(r.pending, next)
}

// forget drops a record when there is time.
func (l *loop) forget(kind, name string) { l.keep(kind, name, nil) }

// consult stores and looks at records, where that is due. It returns when it
// has to be called again; the zero time where only an event helps.
func (l *loop) consult(ctx context.Context, now time.Time) time.Time {
	r := &l.records
	if r.recorder == nil || l.dry || r.busy {
		return time.Time{}
	}
	look := l.posts != nil || len(l.holds) > 0
	if !look && len(r.pending) == 0 {
		return time.Time{}
	}
	if look {
		l.post(now)
	}
	at := r.consulted.Add(consultEvery)
	if len(r.pending) > 0 {
		at = time.Time{}
	}
	if at = later(at, r.notBefore); now.Before(at) {
		return at
	}
	pending := r.pending
	r.pending, r.busy = nil, true
	l.calls++
	go func() {
		o := outcome{step: stepConsult, began: now}
		s := step{name: stepConsult, call: func(ctx context.Context, o *outcome) { o.consulted, o.err = consult(ctx, r.recorder, pending) }}
		s.within(ctx, l.opts.Timeout, &o)
		l.outcomes <- o
	}()
	return time.Time{}
}

// consult stores records and reads all there are. One that is refused costs
// itself: the others are stored and read, and the error is ErrRefused.
func consult(ctx context.Context, r registry.Recorder, pending []record) (c consultation, err error) {
	var refused error
	for i, p := range pending {
		err := r.Record(ctx, p.kind, p.name, p.text)
		if err != nil && !errors.Is(err, registry.ErrRefused) {
			c.left = append(c.left, pending[i:]...)
			return c, err //nolint:wrapcheck // it says what was written
		}
		if err != nil {
			c.left, refused = append(c.left, p), cmp.Or(refused, err)
		} else {
			c.stored = append(c.stored, p)
		}
	}
	if c.decisions, err = load[decision](ctx, r, recordDecisions); err == nil || errors.Is(err, registry.ErrRefused) {
		refused = cmp.Or(refused, err)
		c.holds, err = load[posted](ctx, r, recordHolds)
	}
	return c, cmp.Or(err, refused) //nolint:wrapcheck // it says what was read or written
}

// load reads the records of a kind. One that cannot be read is none.
func load[T any](ctx context.Context, r registry.Recorder, kind string) (map[string]T, error) {
	texts, err := r.Records(ctx, kind)
	if err != nil && texts == nil {
		return nil, err //nolint:wrapcheck // it says what was read
	}
	all := make(map[string]T, len(texts))
	for name, text := range texts {
		var v T
		if json.Unmarshal([]byte(text), &v) == nil {
			all[name] = v
		}
	}
	return all, err //nolint:wrapcheck // it says what was read
}

// tookCounsel takes in what the records say.
func (l *loop) tookCounsel(o outcome, now time.Time) {
	r := &l.records
	r.busy, r.consulted, r.notBefore = false, now, time.Time{}
	for i := range o.consulted.stored {
		o.consulted.stored[i].tell(nil)
	}
	if o.err != nil {
		newer := r.pending
		for i := range o.consulted.left {
			o.consulted.left[i].tell(o.err)
		}
		r.pending, r.notBefore = slices.Clone(o.consulted.left), now.Add(consultEvery)
		for _, next := range newer {
			r.add(next)
		}
		if !r.failed {
			l.opts.Log.Warn("words on holds cannot all be kept in the registry or read there: a restart would forget them", "target", l.opts.Target, "err", o.err)
		}
	}
	if r.failed = o.err != nil; r.failed && !errors.Is(o.err, registry.ErrRefused) {
		return
	}
	if o.consulted.holds != nil {
		l.hear(o.consulted.holds, now)
	}
	l.hearDenials(o.consulted.decisions, now)
	l.obey(o.consulted.decisions, now)
	l.vouch(o.consulted.decisions)
	r.asked = o.began
}

// hear takes in the holds of all replicas.
func (l *loop) hear(holds map[string]posted, now time.Time) {
	r, before := &l.records, l.records.heard
	r.elsewhere, r.heard = make(map[string]Hold), make(map[string]heard, len(holds))
	for id, p := range holds {
		_, ours := r.posted[id]
		last, again := before[id]
		if !again || !last.at.Equal(p.At) {
			last = heard{p.At, now}
		}
		r.heard[id] = last
		switch {
		case ours:
		case id == "" || setOf(p.ID) != id: // and so nobody's
		case now.Sub(last.here) > holdTerm:
			l.forget(recordHolds, id)
		default:
			r.elsewhere[id] = p.Hold
		}
	}
}

// obey does what was decided about holds of this loop.
func (l *loop) obey(decisions map[string]decision, now time.Time) {
	for _, h := range slices.Clone(l.holds) {
		id := setOf(h.name())
		d, decided := decisions[id]
		switch {
		case d.approves(h.since, now):
			l.approved(h, d, now)
		case h.denied != "":
		case decided && !d.Approved:
			l.denied(h, id, d)
		case !decided:
			l.deniedAsPart(h)
		}
	}
	l.forgetApprovals(decisions, now)
}

// forgetApprovals drops approvals that are of no hold any more.
func (l *loop) forgetApprovals(decisions map[string]decision, now time.Time) {
	for id, d := range decisions {
		if _, waits := l.records.heard[id]; d.Approved && !waits && now.Sub(d.At).Abs() >= approvalTerm {
			l.forget(recordDecisions, id)
		}
	}
}

// deniedAsPart denies a hold that all was in a larger set which a person denied,
// at this replica or at another.
func (l *loop) deniedAsPart(h *hold) {
	for _, id := range slices.Sorted(maps.Keys(l.records.denials)) {
		if d := l.records.denials[id]; d.covers(h) {
			l.denied(h, id, d)
			return
		}
	}
}

// forgets reports whether a record is about to be forgotten.
func (r *records) forgets(kind, name string) bool {
	return slices.ContainsFunc(r.pending, func(p record) bool { return p.kind == kind && p.name == name && p.text == "" })
}

// hearDenials takes in what was denied of late, where replicas may share it. What
// is about to be forgotten is no denial any more.
func (l *loop) hearDenials(decisions map[string]decision, now time.Time) {
	l.records.denials = nil
	if l.posts == nil {
		return
	}
	l.records.denials = maps.Clone(decisions)
	maps.DeleteFunc(l.records.denials, func(id string, d decision) bool { return !d.denies(now) || l.records.forgets(recordDecisions, id) })
}

// denialsOf returns the records of the denials that a key was in, at this replica
// or at another.
func (l *loop) denialsOf(p place) (ids []string) {
	if len(l.records.denials) == 0 {
		return nil
	}
	key := p.digest()
	for id, d := range l.records.denials {
		if d.has(key) {
			ids = append(ids, id)
		}
	}
	return ids
}

// undenied ends the denials of sets of which something is wanted again.
func (l *loop) undenied(p place) {
	for _, id := range l.denialsOf(p) {
		l.endDenial(id)
	}
}

// endDenial forgets a denial of which the set has changed.
func (l *loop) endDenial(record string) {
	delete(l.records.denials, record)
	l.forget(recordDecisions, record)
}

// approved lets a hold go by a person's word, and tells who decides next what of
// its bridge's losses still counts.
func (l *loop) approved(h *hold, d decision, now time.Time) <-chan error {
	id := setOf(h.name())
	l.release(h, "approved by "+d.Who, now)
	if counts := h.ward.balance.deficits; !h.ward.unclaimed && len(counts) <= recordedCounts {
		d.Bridge, d.Counts = h.ward.name, slices.SortedFunc(maps.Keys(counts), registry.Group.Compare)
	}
	if l.records.vouched == nil {
		l.records.vouched = make(map[string]time.Time)
	}
	l.records.vouched[id] = d.At
	return l.keepDecision(id, d)
}

// vouch takes in what persons approved at other replicas: what had gone by the
// last look, which did not show that yet, is no loss any more.
func (l *loop) vouch(decisions map[string]decision) {
	known := make(map[string]time.Time, len(decisions))
	for id, d := range decisions {
		if !d.Approved || d.Bridge == "" {
			continue
		}
		if known[id] = d.At; l.records.vouched[id].Equal(d.At) {
			continue
		}
		for _, b := range l.wards {
			if b.name == d.Bridge {
				l.vouchFor(&b.balance, d.Counts)
			}
		}
	}
	l.records.vouched = known
}

func (l *loop) vouchFor(b *balance, counts []registry.Group) {
	for group, t := range b.deficits {
		if t.since.After(l.records.asked) || slices.Contains(counts, group) {
			continue
		}
		it := l.agenda.items[group]
		t.vouched = it != nil && !l.acts(l.role(it)) // else what is there still is ours to judge
		b.forget(group, t)
	}
	b.stale = true
}

// post lets other replicas show the holds of this one.
func (l *loop) post(now time.Time) {
	if l.posts == nil {
		return
	}
	r, before := &l.records, l.records.posted
	r.posted = make(map[string]time.Time)
	for _, h := range l.holds {
		id := setOf(h.name())
		if r.posted[id] = before[id]; now.Sub(before[id]) > holdTerm/2 {
			shown := h.report()
			shown.Entries = shown.Entries[:min(len(shown.Entries), recordedEntries)]
			shown.Groups = shown.Groups[:min(len(shown.Groups), recordedEntries)]
			l.keep(recordHolds, id, posted{shown, now})
			r.posted[id] = now
		}
	}
	for id := range before {
		if _, still := r.posted[id]; !still {
			l.forget(recordHolds, id)
		}
	}
}

// decideElsewhere keeps a decision on a hold of another replica, which acts on
// it.
func (l *loop) decideElsewhere(id string, d decision) (<-chan error, error) {
	h, known := l.records.elsewhere[setOf(id)]
	if !known {
		return nil, ErrNoHold
	}
	d.Since = h.Since
	return l.keepDecision(setOf(id), d), nil
}

// holdsElsewhere returns the holds of other replicas in the order of their ids.
func (l *loop) holdsElsewhere() []Hold {
	var all []Hold
	for _, id := range slices.Sorted(maps.Keys(l.records.elsewhere)) {
		all = append(all, l.records.elsewhere[id])
	}
	return all
}
