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

// The kinds of records that a loop stores in a target with Capabilities.Records.
const (
	recordDecisions = "decisions" // decision, by the id of its hold
	recordHolds     = "holds"     // Hold of the leader, by id
	recordGuard     = "guard"     // list of guard.Record, by bridge and bucket
	recordDrained   = "drained"   // list of drainRecord, by bucket
)

const (
	// recordsEvery is how often the shared records are read while there may be a hold, in
	// this or another replica. After a failure the next call waits as long.
	recordsEvery = 5 * time.Second

	// recordsAwaited is how long additions wait for the records of drained places, from the
	// first list of the target on.
	recordsAwaited = 5 * time.Second

	// recordsAgain is how long after a failure the records of drained places are read again.
	recordsAgain = time.Second

	// buckets is the number of records over which groups are spread.
	buckets = 64
)

// A recordName is the name of a record in the target.
type recordName struct{ kind, name string }

func (n recordName) compare(o recordName) int {
	return cmp.Or(cmp.Compare(n.kind, o.kind), cmp.Compare(n.name, o.name))
}

// A pendingRecord is a text that is to be stored; an empty text deletes the record.
type pendingRecord struct {
	recordName

	text         string
	firstChange  time.Time    // the first change that is not stored yet
	lastErr      error        // of the last attempt
	firstAttempt chan<- error // receives the result of the first attempt; nil: not requested
}

// reportAttempt reports how an attempt to store the record ended, if it was the first.
func (r *pendingRecord) reportAttempt(err error) {
	if r.firstAttempt != nil {
		r.firstAttempt <- err
		r.firstAttempt = nil
	}
}

// refused reports whether the target refused the record. It is tried again, but deletions do
// not wait for it.
func (r *pendingRecord) refused() bool { return errors.Is(r.lastErr, registry.ErrRefused) }

// A recordStore stores and reads the records of a loop in its target, in addition to
// entries. At most one call for records is in flight, next to the calls for groups.
type recordStore struct {
	canRead, canStore bool // the target keeps records, and this loop may change them; immutable

	// To be stored.
	pending        map[recordName]pendingRecord
	inFlight       map[recordName]pendingRecord // nil: no call is in flight
	lastCallFailed bool                         // by more than refusals
	err            error                        // of the last call that read shared records, or of a failure since

	// Read once, and again after the leadership changed. What the target refuses counts as read.
	guardsRead         bool
	drainedRead        bool
	additionsWaitUntil time.Time // for drainedRead; zero: not requested yet

	// Shared: other replicas change them, too.
	sharedReadAt     time.Time
	hasDecisions     bool                // there are decisions, whose records are to be deleted in time
	holds            map[string]Hold     // by id
	appliedDecisions map[string]decision // by the id of the hold

	guards map[string]map[registry.Group]guard.Record // the stored and pending guard records, by name
}

func newRecordStore(kept, dry bool) *recordStore {
	return &recordStore{
		canRead: kept, canStore: kept && !dry, guardsRead: !kept, drainedRead: !kept,
		pending:          make(map[recordName]pendingRecord),
		guards:           make(map[string]map[registry.Group]guard.Record),
		appliedDecisions: make(map[string]decision),
	}
}

// store enqueues a value to be stored; nil deletes the record.
func (r *recordStore) store(kind, name string, value any) {
	r.storeSince(time.Time{}, kind, name, value)
}

// storeSince enqueues a value that records a change at the given time: deletions because of
// it wait until it is stored.
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
			panic(err) // cannot happen: values have only texts, numbers and times
		}
		r.text = string(text)
	}
	return r
}

// errNoRecords says why a decision lasts only as long as the process.
var errNoRecords = errors.New("this target keeps no records, so a restart asks again")

var errReplaced = errors.New("a later decision replaced it")

// enqueue makes a record pending, instead of the one that was pending under its name.
func (r *recordStore) enqueue(next pendingRecord) {
	if before, pending := r.pending[next.recordName]; pending {
		before.reportAttempt(errReplaced)
		next.include(before)
	}
	r.pending[next.recordName] = next
}

// include makes a record also record the changes of an earlier one that was not stored.
func (r *pendingRecord) include(before pendingRecord) {
	if !before.refused() { // else no deletion waits for the changes
		r.firstChange = soonest(r.firstChange, before.firstChange)
	}
}

// isPending reports whether a change at or before the given time is not stored yet in a
// record that the target does not refuse.
func (r *recordStore) isPending(name recordName, then time.Time) bool {
	for _, list := range []map[recordName]pendingRecord{r.pending, r.inFlight} {
		if next, waits := list[name]; waits && !next.refused() && !next.firstChange.After(then) {
			return true
		}
	}
	return false
}

// allStored reports whether every record is stored that the target does not refuse.
func (r *recordStore) allStored() bool { return !anyUnrefused(r.pending) && !anyUnrefused(r.inFlight) }

// anyUnrefused reports whether the target does not refuse one of the records.
func anyUnrefused(list map[recordName]pendingRecord) bool {
	for _, next := range list {
		if !next.refused() {
			return true
		}
	}
	return false
}

// nextCallAt returns when the next call may be made, if there is a reason for one. For a
// record that was not refused that is at once, unless the last call failed.
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
// read yet, and the shared ones if they are due.
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

// readsShared reports whether the next call reads the shared records. They are due every
// recordsEvery and when the call changes them. A call that only stores losses does not read
// them, because deletions wait for it.
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

// problem returns why a restart would not know everything: a record could not be stored, or
// the guard records of earlier processes could not be read. It returns nil if neither is so.
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

// awaitRead returns until when additions wait for the records of drained places. The wait
// begins with the first request, and again with the first list of the target.
func (r *recordStore) awaitRead(now time.Time) time.Time {
	if r.additionsWaitUntil.IsZero() {
		r.additionsWaitUntil = now.Add(recordsAwaited)
	}
	return r.additionsWaitUntil
}

// startPending returns the pending records, in order of their names, which are then in
// flight.
func (r *recordStore) startPending() []pendingRecord {
	r.inFlight, r.pending = r.pending, make(map[recordName]pendingRecord)
	byName := func(a, b pendingRecord) int { return a.compare(b.recordName) }
	return slices.SortedFunc(maps.Values(r.inFlight), byName)
}

// callDone handles the result of a call. Records that could not be stored are pending again,
// unless newer ones replace them.
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

// A recordsResult is the result of a call for records. A kind that was not read, or could
// not be, is nil.
type recordsResult struct {
	records   []pendingRecord // those of the call, each with the result of the attempt
	guards    map[string][]guard.Record
	drained   map[string][]drainRecord
	decisions map[string]decision
	holds     map[string]Hold
}

// syncRecords stores the records of a call, and then reads its kinds of records. A kind that
// fails affects only itself. The error is that of the first failure or, if nothing failed,
// of the first refusal.
func syncRecords(ctx context.Context, r registry.Recorder, requested call) (recordsResult, error) {
	c := recordsResult{records: requested.records}
	var all callErrors
	all.add(storeRecords(ctx, r, requested.records))
	for _, kind := range requested.kinds {
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

// callErrors has the first failure and the first refusal of several calls.
type callErrors struct{ failed, refused error }

func (e *callErrors) add(err error) {
	if errors.Is(err, registry.ErrRefused) {
		e.refused = cmp.Or(e.refused, err)
	} else {
		e.failed = cmp.Or(e.failed, err)
	}
}

// worst returns the failure or, if there is none, the refusal.
func (e *callErrors) worst() error {
	return cmp.Or(e.failed, e.refused)
}

// storeRecords stores records in order of their names, with one call for each kind, and sets
// the error of each record.
func storeRecords(ctx context.Context, r registry.Recorder, list []pendingRecord) error {
	var all callErrors
	for first, last := 0, 0; first < len(list); first = last {
		texts := make(map[string]string)
		for ; last < len(list) && list[last].kind == list[first].kind; last++ {
			texts[list[last].name] = list[last].text
		}
		err := r.Record(ctx, list[first].kind, texts)
		all.add(err)
		var refused registry.Refused
		named := errors.As(err, &refused)
		for i := first; i < last; i++ {
			if list[i].lastErr = err; named {
				list[i].lastErr = refused[list[i].name]
			}
		}
	}
	return all.worst()
}

// readRecords reads the records of a kind by name. If some are refused, or cannot be
// decoded, it returns the others and an error that is registry.ErrRefused. After any other
// error it returns nil.
func readRecords[T any](ctx context.Context, r registry.Recorder, kind string) (map[string]T, error) {
	texts, err := r.Records(ctx, kind)
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return nil, err
	}
	all := make(map[string]T, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		var v T
		if bad := json.Unmarshal([]byte(texts[name]), &v); bad != nil {
			bad = fmt.Errorf("%w: decode record %s of kind %s: %w; delete it", registry.ErrRefused, name, kind, bad)
			err = cmp.Or(err, bad)
			continue
		}
		all[name] = v
	}
	return all, err
}

// recordOf returns the name of the record that has a group.
func (b *scope) recordOf(group registry.Group) recordName {
	return recordName{recordGuard, fmt.Sprintf("%s-%02x", b.recordPrefix, hashOf(group)%buckets)}
}

// storeRecords enqueues the changed records of a guard. Deletions that lose something wait
// until they are stored.
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
		byService := func(x, y guard.Record) int { return x.Service.Compare(y.Service) }
		all := slices.SortedFunc(maps.Values(g.state.records.guards[name]), byService)
		if len(all) == 0 {
			g.state.records.storeSince(now, recordGuard, name, nil)
		} else {
			g.state.records.storeSince(now, recordGuard, name, all)
		}
	}
}

// loadRecords gives the guards the records of earlier processes.
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

// restoreScope gives the guard of a scope its records.
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

// recordsCallDone handles the outcome of a call for records, and applies what it read.
func (g *guards) recordsCallDone(o outcome, now time.Time) {
	r := g.state.records
	if o.err != nil && r.err == nil {
		g.state.opts.Log.Warn("guard records cannot all be stored or read; a restart would forget them",
			"target", g.state.opts.Target, "err", o.err)
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
