package bridge

import (
	"cmp"
	"context"
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
	recordDrained   = "drained"   // drain lists, by bucket
)

const (
	// recordsEvery is how often the records are looked at while there is a hold,
	// or other replicas may have one, and how long a failure is waited out.
	recordsEvery = 5 * time.Second

	// recordsAwaited is how long what is to be added waits for the records to be read, from
	// when the target can be read.
	recordsAwaited = 5 * time.Second

	// recordsAgain is how long after a failure they are looked at again meanwhile.
	recordsAgain = time.Second

	// buckets is how many records of a guard there are at most.
	buckets = 64
)

// recordName is under what a record is stored.
type recordName struct{ kind, name string }

func (n recordName) compare(o recordName) int {
	return cmp.Or(cmp.Compare(n.kind, o.kind), cmp.Compare(n.name, o.name))
}

// A pendingRecord is a text to be stored; an empty one is forgotten.
type pendingRecord struct {
	recordName

	text         string
	firstChange  time.Time    // when what it records changed first of all that is not stored
	lastErr      error        // of the last attempt
	firstAttempt chan<- error // receives the result of the first attempt; nil: nobody waits
}

// reportAttempt says how an attempt to store the record ended.
func (r *pendingRecord) reportAttempt(err error) {
	if r.firstAttempt != nil {
		r.firstAttempt <- err
		r.firstAttempt = nil
	}
}

// refused reports whether the target refused the record: it is tried again, and
// nothing waits for it.
func (r *pendingRecord) refused() bool { return errors.Is(r.lastErr, registry.ErrRefused) }

// A recordStore is what the loop keeps in its target, beside entries. A call about them
// runs beside those about groups, one at a time.
type recordStore struct {
	canRead, canStore bool // the target keeps records; and this loop may change them

	pending            map[recordName]pendingRecord
	inFlight           map[recordName]pendingRecord // nil: no call about them is
	sharedReadAt       time.Time                    // when those that other replicas change were last read
	lastCallFailed     bool                         // the last call, by more than refusals
	err                error                        // of the last call that looked, or of one that failed since
	guardsRead         bool                         // those of the guards were read, or may not be
	additionsWaitUntil time.Time                    // until when additions wait for them; zero: they were not asked for yet
	drainedRead        bool                         // those of drained places were read since a takeover, or are refused
	guards             map[string]map[registry.Group]guard.Record
	hasDecisions       bool                // decisions are kept, which are to be forgotten in time
	holds              map[string]Hold     // of the leader, as they were last read
	appliedDecisions   map[string]decision // by id of their holds
}

func newRecordStore(kept, dry bool) *recordStore {
	return &recordStore{
		canRead: kept, canStore: kept && !dry, guardsRead: !kept, drainedRead: !kept,
		pending: make(map[recordName]pendingRecord), guards: make(map[string]map[registry.Group]guard.Record), appliedDecisions: make(map[string]decision),
	}
}

// store has a value stored when there is time; nil forgets what is stored.
func (r *recordStore) store(kind, name string, value any) {
	r.storeSince(time.Time{}, kind, name, value)
}

// storeSince is keep for a value that something waits for which happened at a time.
func (r *recordStore) storeSince(since time.Time, kind, name string, value any) {
	if r.canStore {
		next := newPendingRecord(kind, name, value)
		next.firstChange = since
		r.enqueue(next)
	}
}

func newPendingRecord(kind, name string, value any) pendingRecord {
	r := pendingRecord{recordName: recordName{kind, name}}
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
var errNoRecords = errors.New("this target keeps no records, so a restart asks again")

var errReplaced = errors.New("a later decision replaced it")

// enqueue has a record stored in the place of what was to be stored under its name.
func (r *recordStore) enqueue(next pendingRecord) {
	if before, waits := r.pending[next.recordName]; waits {
		before.reportAttempt(errReplaced)
		next.include(before)
	}
	r.pending[next.recordName] = next
}

// include has a record stand for one that was not stored before it.
func (r *pendingRecord) include(before pendingRecord) {
	if !before.refused() { // else nothing waits for it
		r.firstChange = soonest(r.firstChange, before.firstChange)
	}
}

// isPending reports whether a record waits to be stored, for a change that happened by
// then, and the target does not refuse it. What changed later waits for itself.
func (r *recordStore) isPending(name recordName, then time.Time) bool {
	for _, list := range []map[recordName]pendingRecord{r.pending, r.inFlight} {
		if next, waits := list[name]; waits && !next.refused() && !next.firstChange.After(then) {
			return true
		}
	}
	return false
}

// allStored reports whether no record waits to be stored that the target does not
// refuse.
func (r *recordStore) allStored() bool { return !anyUnrefused(r.pending) && !anyUnrefused(r.inFlight) }

func anyUnrefused(list map[recordName]pendingRecord) bool {
	for _, next := range list {
		if !next.refused() {
			return true
		}
	}
	return false
}

// nextCallAt returns when the records are to be looked at, once there is a cause to. What was
// refused delays nothing else.
func (r *recordStore) nextCallAt() time.Time {
	switch {
	case !r.lastCallFailed && anyUnrefused(r.pending):
		return time.Time{}
	case !r.drainedRead:
		return r.sharedReadAt.Add(recordsAgain)
	}
	return r.sharedReadAt.Add(recordsEvery)
}

// kindsToRead returns the kinds of records that the next call reads: those that were not
// read yet, and those that other replicas change.
func (r *recordStore) kindsToRead(now time.Time) (kinds []string) {
	if !r.guardsRead {
		kinds = append(kinds, recordGuard)
	}
	if !r.drainedRead {
		kinds = append(kinds, recordDrained)
	}
	if r.readsShared(now) {
		kinds = append(kinds, recordDecisions, recordHolds)
	}
	return kinds
}

// readsShared reports whether the next call also reads what other replicas change.
// Deletions wait for a call that stores what a guard lost, so that such a call reads
// nothing that is not due.
func (r *recordStore) readsShared(now time.Time) bool {
	if !r.drainedRead || !now.Before(r.sharedReadAt.Add(recordsEvery)) {
		return true
	}
	for name := range r.inFlight {
		if name.kind == recordDecisions || name.kind == recordHolds {
			return true
		}
	}
	return false
}

// problem returns why something is not stored that a restart has to know, or why what
// an earlier process stored is not known.
func (r *recordStore) problem() error {
	for _, list := range []map[recordName]pendingRecord{r.pending, r.inFlight} {
		for _, name := range slices.SortedFunc(maps.Keys(list), recordName.compare) {
			if err := list[name].lastErr; err != nil {
				return err
			}
		}
	}
	if !r.guardsRead {
		return r.err
	}
	return nil
}

// awaitRead returns until when additions wait for the records to be read. The wait begins with
// the first call, and again once the target is listed.
func (r *recordStore) awaitRead(now time.Time) time.Time {
	if r.additionsWaitUntil.IsZero() {
		r.additionsWaitUntil = now.Add(recordsAwaited)
	}
	return r.additionsWaitUntil
}

// startPending returns what is to be stored now.
func (r *recordStore) startPending() []pendingRecord {
	r.inFlight, r.pending = r.pending, make(map[recordName]pendingRecord)
	return slices.SortedFunc(maps.Values(r.inFlight), func(a, b pendingRecord) int { return a.compare(b.recordName) })
}

// callDone handles the result of a call. What could not be stored waits for the next
// one, unless a newer record took its place.
func (r *recordStore) callDone(o outcome, now time.Time) {
	r.inFlight = nil
	r.lastCallFailed = o.err != nil && !errors.Is(o.err, registry.ErrRefused)
	if slices.Contains(o.kinds, recordHolds) {
		r.sharedReadAt, r.err = now, o.err
	}
	if o.err != nil {
		r.err = o.err
	}
	for _, was := range o.consulted.records {
		was.reportAttempt(was.lastErr)
		if was.lastErr == nil {
			continue
		}
		next, newer := r.pending[was.recordName]
		if !newer {
			next = was
		}
		next.include(was)
		r.pending[was.recordName] = next
	}
}

// recordsResult is what came of a call. What could not be read is nil.
type recordsResult struct {
	records   []pendingRecord // that were to be stored, each with what came of it
	guards    map[string][]guard.Record
	drained   map[string][]drainRecord
	decisions map[string]decision
	holds     map[string]Hold
}

// syncRecords stores the records of a call and reads the kinds that it asks for. A kind
// that fails costs itself alone; the error is that of the first that was not merely
// refused.
func syncRecords(ctx context.Context, r registry.Recorder, asked call) (recordsResult, error) {
	c := recordsResult{records: asked.records}
	var all callErrors
	all.add(storeRecords(ctx, r, asked.records))
	for _, kind := range asked.kinds {
		var err error
		switch kind {
		case recordGuard:
			c.guards, err = readRecords[[]guard.Record](ctx, r, kind)
		case recordDrained:
			c.drained, err = readRecords[[]drainRecord](ctx, r, kind)
		case recordDecisions:
			c.decisions, err = readRecords[decision](ctx, r, kind)
		case recordHolds:
			c.holds, err = readRecords[Hold](ctx, r, kind)
		}
		all.add(err)
	}
	return c, all.worst()
}

// callErrors are the first failure and the first refusal of several calls.
type callErrors struct{ failed, refused error }

func (e *callErrors) add(err error) {
	if errors.Is(err, registry.ErrRefused) {
		e.refused = cmp.Or(e.refused, err)
	} else {
		e.failed = cmp.Or(e.failed, err)
	}
}

func (e *callErrors) worst() error {
	return cmp.Or(e.failed, e.refused)
}

// storeRecords stores records, those of a kind by one call, and sets what came of each.
func storeRecords(ctx context.Context, r registry.Recorder, list []pendingRecord) error {
	var all callErrors
	for first, last := 0, 0; first < len(list); first = last {
		texts := make(map[string]string)
		for ; last < len(list) && list[last].kind == list[first].kind; last++ {
			texts[list[last].name] = list[last].text
		}
		err := r.Record(ctx, list[first].kind, texts)
		all.add(err)
		var names registry.Refused
		some := errors.As(err, &names)
		for i := first; i < last; i++ {
			if list[i].lastErr = err; some {
				list[i].lastErr = names[list[i].name]
			}
		}
	}
	return all.worst()
}

// readRecords reads the records of a kind: as many as may be read, nil where that
// cannot be known. One that is none of ours is refused.
func readRecords[T any](ctx context.Context, r registry.Recorder, kind string) (map[string]T, error) {
	texts, err := r.Records(ctx, kind)
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return nil, err
	}
	all := make(map[string]T, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		var v T
		if bad := json.Unmarshal([]byte(texts[name]), &v); bad != nil {
			err = cmp.Or(err, fmt.Errorf("%w: decode record %s of kind %s: %w; delete it", registry.ErrRefused, name, kind, bad))
			continue
		}
		all[name] = v
	}
	return all, err
}

// recordOf returns in which record of its guard a group is.
func (b *scope) recordOf(group registry.Group) recordName {
	return recordName{recordGuard, fmt.Sprintf("%s-%02x", b.recordPrefix, hashOf(group)%buckets)}
}

// storeRecords has what the guard remembers of groups be stored before anything of
// them is deleted.
func (g *guards) storeRecords(b *scope, changed []guard.Record, now time.Time) {
	names := make(map[string]bool)
	for _, r := range changed {
		name := b.recordOf(r.Service).name
		all := g.state.records.guards[name]
		if all == nil {
			all = make(map[registry.Group]guard.Record)
			g.state.records.guards[name] = all
		}
		if all[r.Service] = r; r.Empty() {
			delete(all, r.Service)
		}
		names[name] = true
	}
	for name := range names {
		all := slices.SortedFunc(maps.Values(g.state.records.guards[name]), func(x, y guard.Record) int { return x.Service.Compare(y.Service) })
		if len(all) == 0 {
			g.state.records.storeSince(now, recordGuard, name, nil)
		} else {
			g.state.records.storeSince(now, recordGuard, name, all)
		}
	}
}

// loadRecords gives the guards what an earlier process recorded.
func (g *guards) loadRecords(guards map[string][]guard.Record, now time.Time) {
	g.state.records.guardsRead = true
	clear(g.state.records.guards)
	for name, list := range guards {
		g.state.records.guards[name] = make(map[registry.Group]guard.Record, len(list))
		for _, r := range list {
			g.state.records.guards[name][r.Service] = r
		}
	}
	for _, b := range g.scopes {
		g.restoreScope(b)
	}
	for _, it := range g.state.agenda.items {
		g.recountOrphans(it, now)
	}
}

// restoreScope gives the guard of a scope what was recorded of it.
func (g *guards) restoreScope(b *scope) {
	var all []guard.Record
	for name, list := range g.state.records.guards {
		for group, r := range list {
			if b.recordOf(group).name == name {
				all = append(all, r)
			}
		}
	}
	b.guard.Load(all)
	b.needsJudgement = true
}

// recordsSynced applies what the records say.
func (g *guards) recordsSynced(o outcome, now time.Time) {
	r := g.state.records
	if o.err != nil && r.err == nil {
		g.state.opts.Log.Warn("guard records cannot all be stored or read; a restart would forget them", "target", g.state.opts.Target, "err", o.err)
	}
	r.callDone(o, now)
	for _, it := range sortItems(maps.Keys(g.awaitingRecord)) {
		g.state.agenda.touch(it, now)
	}
	if o.consulted.drained != nil && !r.drainedRead {
		r.drainedRead = true
		g.state.drains.loadRecords(o.consulted.drained)
		for _, it := range g.state.agenda.sortedItems() {
			g.state.agenda.touch(it, now)
		}
	}
	if o.consulted.guards != nil {
		g.loadRecords(o.consulted.guards, now)
		g.state.drains.forgetUnclaimed()
	}
	if o.consulted.holds != nil {
		r.holds = o.consulted.holds
	}
	if o.consulted.decisions != nil {
		r.hasDecisions = len(o.consulted.decisions) > 0
		g.applyRecorded(o.consulted.decisions, now)
	}
}
