package registry

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Table holds the services of one source. One source writes it, and any number of
// readers drain it. A write never waits for a reader. Several changes of one service
// between two drains are one.
//
// A service is known while the table is synced and not stale, and no unknown scope
// covers it. Otherwise its row is the last known one, and its absence means nothing.
type Table struct {
	mu      sync.Mutex
	rows    map[Name]*Service
	skipped map[string]Omission
	defects int // of skipped
	unknown map[string]error
	first   string // scope of unknown in order; empty: to be looked for
	synced  bool
	stale   error
	outages int // how often it went stale
	epoch   int
	renewed bool // the rows are of an earlier source
	dialed  bool // since the last full read
	dials   int
	readers map[*Reader]struct{}

	limits Limits
	load   load              // of the rows and of what the source keeps beside them
	beside int64             // bytes that the source keeps
	over   map[Name]struct{} // services that did not fit
	again  func()            // requests a full read
	asked  load              // at the last request
}

// NewTable returns an empty table that is not synced yet.
func NewTable() *Table {
	return &Table{
		rows:    make(map[Name]*Service),
		skipped: make(map[string]Omission),
		unknown: make(map[string]error),
		readers: make(map[*Reader]struct{}),
	}
}

// Put adds a service or replaces the one of the same name.
func (t *Table) Put(s *Service) { t.Apply([]*Service{s}, nil) }

// Delete removes a service that its registry removed.
func (t *Table) Delete(name Name) { t.Apply(nil, []Name{name}) }

// Apply adds or replaces services and removes others atomically: a reader drains all of
// it or nothing, so that it sees a mass removal whole.
func (t *Table) Apply(put []*Service, gone []Name) {
	defer t.retry()
	t.mu.Lock()
	defer t.mu.Unlock()
	found, changed, over := t.staleReason() != nil, false, len(t.over)
	for _, s := range put {
		changed = t.put(s, found) || changed
	}
	for _, name := range gone {
		changed = t.delete(name, found) || changed
	}
	for _, s := range put { // that may fit by now
		if _, over := t.over[s.Name]; over {
			changed = t.put(s, found) || changed
		}
	}
	if changed || len(t.over) != over {
		t.signal()
	}
}

// Replace sets all services after a full read, and marks the table synced and not
// stale. Services that are missing were not reported as removed, which is less certain:
// Row.Found distinguishes them.
func (t *Table) Replace(services iter.Seq[*Service]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := make(map[Name]*Service, len(t.rows))
	var added []*Service
	for s := range services {
		if _, known := t.rows[s.Name]; !known {
			added = append(added, s)
		}
		seen[s.Name] = s
	}
	clear(t.over)
	for name := range t.rows { // first, to make room
		if seen[name] == nil {
			t.delete(name, true)
		}
	}
	for name := range t.rows {
		t.put(seen[name], true)
	}
	for _, s := range added {
		t.put(s, true)
	}
	t.synced, t.stale, t.renewed = true, nil, false
	t.epoch++
	if t.dialed {
		t.dialed = false
		t.dials++
	}
	t.signal()
}

// Dialed reports that the source has a new connection, so that the next full read
// counts in Certainty.Dials.
func (t *Table) Dialed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dialed = true
}

// Stale reports why the rows may be out of date; nil: they are not any more.
func (t *Table) Stale(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.stale == nil {
		t.outages++
	}
	t.stale = err
	t.signal()
}

// Renew prepares the table for another source of the same registry. The rows are kept,
// stale for the given reason until the new source has reported everything. Unknown
// scopes and skipped inputs of the old one are forgotten.
func (t *Table) Renew(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale, t.renewed = err, true
	for scope := range t.unknown {
		t.markScope(scope)
	}
	clear(t.unknown)
	t.first = ""
	clear(t.skipped)
	t.defects = 0
	t.signal()
}

// Current waits after Renew until the new source has reported everything. The error is
// that of ctx.
func (t *Table) Current(ctx context.Context) error {
	r := t.Reader()
	defer r.Close()
	for t.isRenewed() {
		select {
		case <-r.Wake():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (t *Table) isRenewed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renewed
}

// Unknown reports why the services within a scope are unknown; nil: they are known
// again. A scope is the name of a service or, with a trailing *, a prefix of names.
func (t *Table) Unknown(scope string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, was := t.unknown[scope]
	switch {
	case err != nil:
		t.unknown[scope] = err
		t.first = min(t.first, scope)
	case was:
		delete(t.unknown, scope)
		if scope == t.first {
			t.first = ""
		}
	default:
		return // as for most of thousands of services
	}
	t.markScope(scope)
	t.signal()
}

func (t *Table) markScope(scope string) {
	for r := range t.readers {
		r.markScope(scope)
	}
}

// An Omission is why an input is left out. The zero value says that it is not.
type Omission struct {
	Reason string
	Cause  OmissionCause
}

// OmissionCause says what an omission means to a person.
type OmissionCause int

// The causes.
const (
	Defect  OmissionCause = iota // something is wrong with the input
	Unasked                      // nothing asks for it, such as for a host without a service key
	Chosen                       // the configuration leaves it out
)

// Skip records for the status why an input with a defect is left out; empty: it is not
// any more. The key is the input's name in its registry.
func (t *Table) Skip(key, reason string) { t.Omit(key, Omission{Reason: reason}) }

// Omit records for the status why an input is left out, as Skip does.
func (t *Table) Omit(key string, o Omission) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, known := t.skipped[key]; known && before.Cause == Defect {
		t.defects--
	}
	if o.Reason == "" {
		delete(t.skipped, key)
		return
	}
	t.skipped[key] = o
	if o.Cause == Defect {
		t.defects++
	}
}

// Skipped returns the inputs that are left out, with their reasons, but for those that
// the configuration leaves out.
func (t *Table) Skipped() map[string]string {
	all := make(map[string]string)
	for key, o := range t.Omitted() {
		if o.Cause != Chosen {
			all[key] = o.Reason
		}
	}
	return all
}

// Omitted returns all inputs that are left out.
func (t *Table) Omitted() map[string]Omission {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.skipped)
}

// SkipReason returns why an input is left out; empty: it is not.
func (t *Table) SkipReason(key string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.skipped[key].Reason
}

// Get returns the service of a name; nil if there is none.
func (t *Table) Get(name Name) *Service {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[name]
}

// Snapshot returns all rows; the caller owns the map.
func (t *Table) Snapshot() (map[Name]*Service, Certainty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.rows), t.certainty(maps.Clone(t.unknown))
}

// Certainty returns the certainty of the rows; the caller owns its map.
func (t *Table) Certainty() Certainty {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.certainty(maps.Clone(t.unknown))
}

// Summary is the numbers of a table and its certainty.
type Summary struct {
	Synced    bool
	Stale     error
	Services  int
	Endpoints Endpoints // of the services
	Unknown   int       // number of unknown scopes
	Scope     string    // the first of them in order
	Why       error     // it is unknown
	Defects   int       // number of inputs that are left out because of a defect
}

// Summary returns the summary in constant time, except once after the first unknown
// scope is known again.
func (t *Table) Summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == "" && len(t.unknown) > 0 { // the first is known again
		t.first = slices.Min(slices.Collect(maps.Keys(t.unknown)))
	}
	return Summary{
		Scope: t.first, Why: t.unknown[t.first],
		Synced: t.synced, Stale: t.staleReason(), Services: len(t.rows), Endpoints: t.load.health,
		Unknown: len(t.unknown), Defects: t.defects,
	}
}

// Reader returns a new reader, which drains every row first.
func (t *Table) Reader() *Reader { return t.ReaderOn(make(chan struct{}, 1)) }

// ReaderOn returns a new reader with a given channel of capacity 1 as its Wake, so that
// one goroutine can wait for several tables. Outside its part the reader sees neither
// services nor unknown scopes.
func (t *Table) ReaderOn(wake chan struct{}, part ...Place) *Reader {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &Reader{
		table: t, wake: wake, part: part, dirty: make(map[Name]bool, len(t.rows)),
		scopes: make(map[string]struct{}, len(t.unknown)), unknown: make(map[string]error, len(t.unknown)),
	}
	for name := range t.rows {
		r.markRow(name, false)
	}
	t.readers[r] = struct{}{}
	for scope := range t.unknown {
		r.markScope(scope)
	}
	r.signal()
	return r
}

func (t *Table) put(s *Service, found bool) bool {
	old := t.rows[s.Name]
	if s.Equal(old) {
		delete(t.over, s.Name)
		return false
	}
	if !t.fits(s, old) {
		return false
	}
	t.rows[s.Name] = s
	t.markRow(s.Name, found)
	return true
}

func (t *Table) delete(name Name, found bool) bool {
	delete(t.over, name)
	old, ok := t.rows[name]
	if !ok {
		return false
	}
	t.load = t.load.sub(loadOf(old))
	delete(t.rows, name)
	t.markRow(name, found)
	return true
}

func (t *Table) markRow(name Name, found bool) {
	for r := range t.readers {
		r.markRow(name, found)
	}
}

func (t *Table) signal() {
	for r := range t.readers {
		r.signal()
	}
}

func (t *Table) certainty(unknown map[string]error) Certainty {
	return Certainty{Synced: t.synced, Stale: t.staleReason(), Unknown: unknown, Epoch: t.epoch, Dials: t.dials, Outages: t.outages}
}

// Certainty says which rows of a table are known.
type Certainty struct {
	Synced  bool             // the source reported everything at least once
	Stale   error            // why the rows may be out of date; nil: they are not
	Unknown map[string]error // scopes, see Table.Unknown
	Epoch   int              // number of full reads
	Dials   int              // number of full reads that were the first of a connection
	Outages int              // how often the table went stale
}

// Of returns why the service of a name is unknown; nil if it is known.
func (k Certainty) Of(name Name) error {
	if k.Stale != nil {
		return k.Stale
	}
	err, _ := Covering(k.Unknown, name)
	return err
}

// Covering returns the value of a scope that covers a name: the name itself or, with a
// trailing *, a prefix. The time is bounded by the length of the name.
func Covering[V any](scopes map[string]V, name Name) (V, bool) {
	if v, ok := scopes[string(name)]; ok {
		return v, true
	}
	var none V
	if len(scopes) <= len(name) {
		for scope, v := range scopes {
			if prefix, ok := strings.CutSuffix(scope, "*"); ok && strings.HasPrefix(string(name), prefix) {
				return v, true
			}
		}
		return none, false
	}
	scope := make([]byte, 0, 128)
	for i := range len(name) + 1 {
		scope = append(append(scope[:0], name[:i]...), '*')
		if v, ok := scopes[string(scope)]; ok {
			return v, true
		}
	}
	return none, false
}

// A Reader drains the changes of a table. One goroutine uses it.
type Reader struct {
	table  *Table
	wake   chan struct{}
	part   Part
	dirty  map[Name]bool       // whether the change was found; guarded by table.mu
	scopes map[string]struct{} // changed scopes; guarded by table.mu

	unknown map[string]error // as of the last drain
}

// Wake is ready after a write that was not drained.
func (r *Reader) Wake() <-chan struct{} { return r.wake }

// Row is a changed service.
type Row struct {
	Service *Service // nil: it was removed
	Found   bool     // found by a full read or while stale, not reported by an event
}

// Delta is the changes of a table since a reader's last drain.
type Delta struct {
	Rows      map[Name]Row
	Scopes    map[string]struct{} // that changed between known and unknown, or changed their reason
	Certainty                     // its Unknown belongs to the reader, until the next drain
}

// Drain returns the changes since the last call.
func (r *Reader) Drain() Delta {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for scope := range r.scopes {
		if err := t.unknown[scope]; err != nil {
			r.unknown[scope] = err
		} else {
			delete(r.unknown, scope)
		}
	}
	d := Delta{Rows: make(map[Name]Row, len(r.dirty)), Scopes: r.scopes, Certainty: t.certainty(r.unknown)}
	r.scopes = make(map[string]struct{})
	for name, found := range r.dirty {
		d.Rows[name] = Row{Service: t.rows[name], Found: found}
	}
	clear(r.dirty)
	return d
}

// markRow makes a row dirty. If several changes are drained as one, and one of them was
// found, it is found.
func (r *Reader) markRow(name Name, found bool) {
	if r.part.Has(name) {
		r.dirty[name] = r.dirty[name] || found
	}
}

func (r *Reader) markScope(scope string) {
	if r.part.meets(scope) {
		r.scopes[scope] = struct{}{}
	}
}

// Close ends the reader.
func (r *Reader) Close() {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	delete(r.table.readers, r)
}

func (r *Reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
