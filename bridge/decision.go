package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// The kinds of records that a loop keeps in its target, where it is a
// registry.Recorder. They are named by setOf the id of a hold.
const (
	recordDecisions = "decisions"
	recordHolds     = "holds" // of the leader, as standbys show them
)

const (
	// consultEvery is how often the records are looked at while there is a
	// hold, or another replica may have one.
	consultEvery = 5 * time.Second

	// approvalTerm is how long an approval is good for beyond the hold that it
	// was given for, so that it survives a restart and not the next time that
	// the same set goes.
	approvalTerm = 5 * time.Minute

	// recordedEntries is how many entries of a hold standbys show.
	recordedEntries = 20
)

// decision is what a person decided about a hold.
type decision struct {
	Approved bool      `json:"approved"` // else denied
	Who      string    `json:"who"`
	At       time.Time `json:"at"`
	Since    time.Time `json:"since,omitzero"` // of the hold, as whoever has it says: clocks of replicas differ
}

// approves reports whether an approval is of a hold that is there since then.
func (d decision) approves(since, now time.Time) bool {
	return d.Approved && (d.Since.Equal(since) || now.Sub(d.At).Abs() < approvalTerm)
}

func (s *surplus) place() place { return place{s.item.group, s.Key} }

// A record is a text to be stored; an empty one is forgotten.
type record struct {
	kind, name, text string
	tried            chan<- error // told once how the first attempt ended; nil: nobody waits
}

// tell says how an attempt to store the record ended.
func (r *record) tell(err error) {
	if r.tried != nil {
		r.tried <- err
		r.tried = nil
	}
}

// records is what the loop knows of the records in its target. Calls about
// them run beside those about groups, one at a time.
type records struct {
	recorder  registry.Recorder // nil: nothing is recorded
	pending   []record
	consulted time.Time // when they were last looked at
	notBefore time.Time // after a failure
	busy      bool
	failed    bool
	published map[string]string // holds of this leader, as they are recorded
	elsewhere map[string]Hold   // those of the leader that another replica is
}

// consultation is what came of a look.
type consultation struct {
	stored    []record
	left      []record // that could not be stored
	decisions map[string]decision
	holds     map[string]Hold // nil: they could not be read
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

// forget drops a record when there is time.
func (l *loop) forget(kind, name string) { l.keep(kind, name, nil) }

var errReplaced = errors.New("another decision took its place")

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

// errNoRecords says why a decision is good for as long as the process.
var errNoRecords = errors.New("this target keeps no records, so that a restart asks anew")

// decide has a decision recorded, which then counts at whichever replica has the
// hold. It returns what tells once that was tried.
func (l *loop) decide(id string, d decision, now time.Time) (<-chan error, error) {
	set := setOf(id)
	d.At = now
	if h := l.find(set); h != nil {
		d.Since = h.since
	} else if other, known := l.records.elsewhere[set]; known {
		d.Since = other.Since
	} else {
		return nil, ErrNoHold
	}
	tried := make(chan error, 1)
	if l.records.recorder == nil {
		l.obey(map[string]decision{set: d}, now)
		tried <- errNoRecords
		return tried, nil
	}
	r := newRecord(recordDecisions, set, d)
	r.tried = tried
	l.records.add(r)
	return tried, nil
}

// obey acts on what was decided about holds of this loop.
func (l *loop) obey(decisions map[string]decision, now time.Time) {
	for _, h := range slices.Clone(l.holds) {
		switch d, decided := decisions[setOf(h.name())]; {
		case !decided:
		case d.approves(h.since, now):
			l.release(h, "approved by "+d.Who, now)
		case !d.Approved && h.denied == "":
			l.denied(h, d.Who)
		}
	}
}

// consult stores and looks at records, where that is due. It returns when it
// has to be called again; the zero time where only an event helps.
func (l *loop) consult(ctx context.Context, now time.Time) time.Time {
	r := &l.records
	look := l.opts.Election != nil || len(l.holds) > 0
	if r.recorder == nil || l.dry || r.busy || !look && len(r.pending) == 0 {
		return time.Time{}
	}
	at := r.consulted.Add(consultEvery)
	if len(r.pending) > 0 {
		at = time.Time{}
	}
	if at = later(at, r.notBefore); now.Before(at) {
		return at
	}
	l.publishHolds()
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

// publishHolds has the holds of this leader recorded, so that standbys show them.
func (l *loop) publishHolds() {
	r, before := &l.records, l.records.published
	if r.published = nil; l.opts.Election == nil || !l.leads() {
		return
	}
	r.published = make(map[string]string)
	for _, h := range l.holds {
		shown := h.report()
		shown.Entries = shown.Entries[:min(len(shown.Entries), recordedEntries)]
		shown.Groups = shown.Groups[:min(len(shown.Groups), recordedEntries)]
		next := newRecord(recordHolds, setOf(shown.ID), shown)
		r.published[next.name] = next.text
		if before[next.name] != next.text {
			r.add(next)
		}
	}
	for set := range before {
		if _, still := r.published[set]; !still {
			l.forget(recordHolds, set)
		}
	}
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
		c.holds, err = load[Hold](ctx, r, recordHolds)
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

// consulted takes in what came of a look. A decision that could not be recorded
// counts for as long as this process.
func (l *loop) consulted(o outcome, now time.Time) {
	r, c := &l.records, o.consulted
	r.busy, r.consulted, r.notBefore = false, now, time.Time{}
	if c.holds != nil {
		l.hear(c.holds)
	}
	l.obey(c.decisions, now)
	l.forgetApprovals(c.decisions, now)
	for i := range c.stored {
		c.stored[i].tell(nil)
	}
	if o.err == nil {
		r.failed = false
		return
	}
	for i := range c.left {
		p := &c.left[i]
		if d := (decision{}); p.kind == recordDecisions && json.Unmarshal([]byte(p.text), &d) == nil {
			l.obey(map[string]decision{p.name: d}, now)
		}
		p.tell(o.err)
	}
	newer := r.pending
	r.pending, r.notBefore = slices.Clone(c.left), now.Add(consultEvery)
	for _, next := range newer {
		r.add(next)
	}
	if !r.failed {
		l.opts.Log.Warn("decisions on holds cannot all be kept in the registry or read there: a restart would forget them", "target", l.opts.Target, "err", o.err)
	}
	r.failed = true
}

// hear takes in the holds of the leader. Who leads forgets those of the one
// before.
func (l *loop) hear(holds map[string]Hold) {
	r, leads := &l.records, l.leads()
	r.elsewhere = make(map[string]Hold)
	for set, h := range holds {
		_, ours := r.published[set]
		switch {
		case ours || l.find(set) != nil:
		case leads:
			l.forget(recordHolds, set)
		case set != "" && setOf(h.ID) == set: // else nobody's
			r.elsewhere[set] = h
		}
	}
}

// forgetApprovals drops approvals that are of no hold any more.
func (l *loop) forgetApprovals(decisions map[string]decision, now time.Time) {
	for set, d := range decisions {
		if d.Approved && now.Sub(d.At).Abs() >= approvalTerm && l.leads() && l.find(set) == nil {
			l.forget(recordDecisions, set)
		}
	}
}
