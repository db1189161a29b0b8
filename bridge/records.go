package bridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The kinds of records that a loop keeps in its target, where it is a
// registry.Recorder.
const (
	recordDecisions = "decisions" // about holds, by their ids
	recordHolds     = "holds"     // of the leader, as standbys show them, by their ids
	recordGuard     = "guard"     // guard.Record lists, by bridge and bucket
)

const (
	// consultEvery is how often the records are looked at while there is a hold,
	// or other replicas may have one.
	consultEvery = 5 * time.Second

	// buckets is how many records of a guard there are at most.
	buckets = 64
)

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
	kept      bool // the target keeps records
	pending   []record
	consulted time.Time // when they were last looked at
	notBefore time.Time // after a failure
	busy      bool
	failed    bool
	read      bool // those of the guards were read, or may not be
	decided   bool // decisions are kept, which are to be forgotten in time
	guards    map[string][]guard.Record
	published map[string]string   // holds of this leader, as they are recorded
	elsewhere map[string]Hold     // those of the leader that another replica is
	applied   map[string]decision // by id of their holds
}

// loaded reports whether what an earlier process recorded is known.
func (r *records) loaded() bool { return !r.kept || r.read }

// consultation is what came of a look.
type consultation struct {
	stored    []record
	left      []record // that could not be stored
	guards    map[string][]guard.Record
	read      bool // guards is all there is
	decisions map[string]decision
	holds     map[string]Hold // nil: they could not be read
}

// keep stores a record when there is time.
func (g *guards) keep(kind, name string, value any) {
	if g.records.kept && !g.dry {
		g.records.add(newRecord(kind, name, value))
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
func (g *guards) forget(kind, name string) { g.keep(kind, name, nil) }

// bucket returns in which record of its guard a group is.
func (b *scope) bucket(group registry.Group) string {
	sum := sha256.Sum256([]byte(b.name))
	return fmt.Sprintf("%s-%02x", hex.EncodeToString(sum[:4]), hash(group)%buckets)
}

// storeRecord has what the guard remembers of a group be stored before anything
// of it is deleted.
func (g *guards) storeRecord(b *scope, group registry.Group) {
	name := b.bucket(group)
	if b.recorded[name] == nil {
		b.recorded[name] = make(map[registry.Group]guard.Record)
	}
	if r := b.guard.Record(group); r.Empty() {
		delete(b.recorded[name], group)
	} else {
		b.recorded[name][group] = r
	}
	if !g.records.kept || g.dry {
		return
	}
	b.unstored[group] = struct{}{}
	list := slices.SortedFunc(maps.Values(b.recorded[name]), func(x, y guard.Record) int { return x.Service.Compare(y.Service) })
	if len(list) == 0 {
		g.forget(recordGuard, name)
	} else {
		g.keep(recordGuard, name, list)
	}
}

// recordStored takes in that a record is stored, or refused for good.
func (g *guards) recordStored(r record, now time.Time) {
	newer := slices.ContainsFunc(g.records.pending, func(p record) bool { return p.kind == r.kind && p.name == r.name })
	if r.kind != recordGuard || newer {
		return
	}
	for _, b := range g.scopes {
		for group := range b.unstored {
			if b.bucket(group) != r.name {
				continue
			}
			delete(b.unstored, group)
			if it := g.agenda.items[group]; it != nil {
				g.agenda.touch(it, now)
			}
		}
	}
}

// load gives the guards what an earlier process recorded.
func (g *guards) load(guards map[string][]guard.Record, now time.Time) {
	g.records.read, g.records.guards = true, guards
	for _, b := range g.scopes {
		b.restore(guards)
	}
	for _, it := range g.agenda.items {
		g.inform(it, now)
	}
}

// restore gives the guard what was recorded of it.
func (b *scope) restore(guards map[string][]guard.Record) {
	var all []guard.Record
	clear(b.recorded)
	for name, list := range guards {
		for _, r := range list {
			if b.bucket(r.Service) == name {
				all = append(all, r)
				if b.recorded[name] == nil {
					b.recorded[name] = make(map[registry.Group]guard.Record)
				}
				b.recorded[name][r.Service] = r
			}
		}
	}
	b.guard, b.changed = guard.New(b.guard.Options, all), true
}

// consult returns the call that stores and reads records, where that is due, and
// when it has to be called again; the zero time where only an event helps.
func (g *guards) consult(now time.Time) ([]call, time.Time) {
	r := g.records
	if !r.kept || r.busy || g.dry && r.read {
		return nil, time.Time{}
	}
	if !g.looks() && len(r.pending) == 0 {
		return nil, time.Time{}
	}
	at := r.consulted.Add(consultEvery)
	if len(r.pending) > 0 {
		at = time.Time{}
	}
	if at = later(at, r.notBefore); now.Before(at) {
		return nil, at
	}
	if !g.dry {
		g.publishHolds()
	}
	if !r.read && !g.target.shared { // what was to be stored before is older than what is there
		r.pending = slices.DeleteFunc(r.pending, func(p record) bool { return p.kind == recordGuard })
	}
	c := call{op: opConsult, records: r.pending, guards: !r.read, began: now, until: now.Add(g.opts.Timeout)}
	r.pending, r.busy = nil, true
	return []call{c}, time.Time{}
}

// looks reports whether there may be records that say something new.
func (g *guards) looks() bool {
	return g.opts.Election != nil || !g.records.read || g.records.decided ||
		slices.ContainsFunc(g.scopes, func(b *scope) bool { return len(b.holds()) > 0 })
}

// consult stores records and reads all there are, those of the guards where they
// are asked for. One that is refused costs itself: the others are stored and
// read, and the error is ErrRefused.
func consult(ctx context.Context, r registry.Recorder, pending []record, guards bool) (c consultation, err error) { //nolint:revive // what is wanted, not a mode
	var refused error
	for i, p := range pending {
		err := r.Record(ctx, p.kind, p.name, p.text)
		if err != nil && !errors.Is(err, registry.ErrRefused) {
			c.left = append(c.left, pending[i:]...)
			return c, err //nolint:wrapcheck // it says what was written
		}
		if err != nil {
			refused = cmp.Or(refused, err)
			c.left = append(c.left, p)
		} else {
			c.stored = append(c.stored, p)
		}
	}
	if guards {
		c.guards, err = readRecords[[]guard.Record](ctx, r, recordGuard)
		if c.read = err == nil || errors.Is(err, registry.ErrRefused); !c.read {
			return c, err
		}
		refused = cmp.Or(refused, err)
	}
	if c.decisions, err = readRecords[decision](ctx, r, recordDecisions); err == nil || errors.Is(err, registry.ErrRefused) {
		refused = cmp.Or(refused, err)
		c.holds, err = readRecords[Hold](ctx, r, recordHolds)
	}
	return c, cmp.Or(err, refused) //nolint:wrapcheck // it says what was read or written
}

// readRecords reads the records of a kind. One that cannot be read is none.
func readRecords[T any](ctx context.Context, r registry.Recorder, kind string) (map[string]T, error) {
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

// consulted takes in what the records say.
func (g *guards) consulted(o outcome, now time.Time) {
	r := g.records
	r.busy, r.consulted, r.notBefore = false, now, time.Time{}
	for i := range o.consulted.stored {
		o.consulted.stored[i].tell(nil)
		g.recordStored(o.consulted.stored[i], now)
	}
	if o.err != nil {
		g.recordsFailed(o, now)
	}
	r.failed = o.err != nil
	if o.consulted.read {
		g.load(o.consulted.guards, now)
	}
	if r.failed && !errors.Is(o.err, registry.ErrRefused) {
		return
	}
	if o.consulted.holds != nil {
		g.hear(o.consulted.holds)
	}
	r.decided = len(o.consulted.decisions) > 0
	g.obey(o.consulted.decisions, now)
}

// recordsFailed has what could not be stored be tried again. What is refused to a
// guard is not waited for: it is lost with the process.
func (g *guards) recordsFailed(o outcome, now time.Time) {
	r, newer := g.records, g.records.pending
	refused := errors.Is(o.err, registry.ErrRefused)
	for i := range o.consulted.left {
		o.consulted.left[i].tell(o.err)
		if refused {
			g.recordStored(o.consulted.left[i], now)
		}
	}
	r.pending, r.notBefore = slices.Clone(o.consulted.left), now.Add(consultEvery)
	for _, next := range newer {
		r.add(next)
	}
	if !r.failed {
		g.opts.Log.Warn("what the guard remembers cannot all be kept in the registry or read there: a restart would forget it", "target", g.opts.Target, "err", o.err)
	}
}
