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
// readers drain it. A write never waits for a reader. A reader drains several changes
// of one service as one.
//
// A service is known while the table is synced and not stale, and no unknown scope
// covers it. Otherwise its row is the last known one, and a missing row means nothing.
type Table struct {
	mu      sync.Mutex // guards all fields
	rows    map[Name]*Service
	readers map[*Reader]struct{}

	skipped map[string]Omission
	defects int // number of skipped inputs with a defect

	// The certainty of the rows.
	unknown      map[string]error
	firstUnknown string // the first scope of unknown in order; empty if it must be determined
	synced       bool
	stale        error
	outages      int // how often the table became stale
	epoch        int
	renewed      bool // the rows are those of an earlier source
	dialed       bool // there is a new connection since the last full read
	dials        int

	// The limits.
	limits        Limits
	load          load              // of the rows and the reserved bytes
	reserved      int64             // bytes that the source keeps in addition to the rows
	notFitting    map[Name]struct{} // services that did not fit
	readAll       func()            // requests a full read
	loadAtReadAll load              // the load at the last request
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

// Apply adds or replaces services and removes others atomically. A reader drains all of
// these changes or none, so that it sees a mass removal as a whole.
func (t *Table) Apply(put []*Service, removed []Name) {
	defer t.readAllIfRoom()
	t.mu.Lock()
	defer t.mu.Unlock()
	found, changed, notFitting := t.staleReason() != nil, false, len(t.notFitting)
	for _, s := range put {
		changed = t.put(s, found) || changed
	}
	for _, name := range removed {
		changed = t.delete(name, found) || changed
	}
	for _, s := range put { // after the removals there may be room
		if _, again := t.notFitting[s.Name]; again {
			changed = t.put(s, found) || changed
		}
	}
	if changed || len(t.notFitting) != notFitting {
		t.signal()
	}
}

// Replace sets all services after a full read, and marks the table synced and not
// stale. The removal of a missing service was not reported, and so is less certain:
// Row.Found is then true.
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
	clear(t.notFitting)
	for name := range t.rows { // deletions first, to make room
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

// Dialed reports that the source has a new connection. The next full read counts in
// Certainty.Dials.
func (t *Table) Dialed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dialed = true
}

// Stale reports why the rows may be out of date. Nil means that they are current again.
func (t *Table) Stale(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.stale == nil {
		t.outages++
	}
	t.stale = err
	t.signal()
}

// Renew prepares the table for another source of the same registry. The rows are kept.
// They are stale for the given reason until the new source has reported everything.
// Unknown scopes and skipped inputs of the old source are forgotten.
func (t *Table) Renew(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale, t.renewed = err, true
	for scope := range t.unknown {
		t.markScope(scope)
	}
	clear(t.unknown)
	t.firstUnknown = ""
	clear(t.skipped)
	t.defects = 0
	t.signal()
}

// Current waits after Renew until the new source has reported everything. It fails only
// with the error of ctx.
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

// Unknown reports why the services within a scope are unknown. Nil means that they are
// known again. A scope is the name of a service or, with a trailing *, a prefix of names.
func (t *Table) Unknown(scope string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, was := t.unknown[scope]
	switch {
	case err != nil:
		t.unknown[scope] = err
		t.firstUnknown = min(t.firstUnknown, scope)
	case was:
		delete(t.unknown, scope)
		if scope == t.firstUnknown {
			t.firstUnknown = ""
		}
	default:
		return // the scope was known, which is the case for nearly all services
	}
	t.markScope(scope)
	t.signal()
}

func (t *Table) markScope(scope string) {
	for r := range t.readers {
		r.markScope(scope)
	}
}

// An Omission is the reason why an input is left out. The zero value means that it is
// not left out.
type Omission struct {
	Reason string
	Cause  OmissionCause
}

// OmissionCause says what an omission means to an operator.
type OmissionCause int

// The causes.
const (
	Defect  OmissionCause = iota // the input has a defect
	Unasked                      // nothing requests it, such as a host without a service key
	Chosen                       // the configuration leaves it out
)

// Skip records for the status why an input with a defect is left out. An empty reason
// means that it is not left out any more. The key is the name of the input in its
// registry.
func (t *Table) Skip(key, reason string) { t.Omit(key, Omission{Reason: reason}) }

// Omit records for the status why an input is left out, like Skip.
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

// Skipped returns the inputs that are left out, with their reasons, except for those
// that the configuration leaves out.
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

// SkipReason returns why an input is left out; it is empty if the input is not.
func (t *Table) SkipReason(key string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.skipped[key].Reason
}

// Get returns the service of a name, or nil if there is none.
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
	Scope     string    // the first unknown scope in order
	Why       error     // why Scope is unknown
	Defects   int       // number of inputs that are left out because of a defect
}

// Summary returns the summary. It takes constant time, except once after the first
// unknown scope became known.
func (t *Table) Summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.firstUnknown == "" && len(t.unknown) > 0 { // the previous first one became known
		t.firstUnknown = slices.Min(slices.Collect(maps.Keys(t.unknown)))
	}
	return Summary{
		Scope: t.firstUnknown, Why: t.unknown[t.firstUnknown],
		Synced: t.synced, Stale: t.staleReason(), Services: len(t.rows), Endpoints: t.load.health,
		Unknown: len(t.unknown), Defects: t.defects,
	}
}

// Reader returns a new reader. Its first drain has every row.
func (t *Table) Reader() *Reader { return t.ReaderOn(make(chan struct{}, 1)) }

// ReaderOn returns a new reader whose Wake is a given channel of capacity 1, so that one
// goroutine can wait for several tables. The reader sees only services and unknown
// scopes of its part.
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
		delete(t.notFitting, s.Name)
		return false
	}
	if !t.countIfFits(s, old) {
		return false
	}
	t.rows[s.Name] = s
	t.markRow(s.Name, found)
	return true
}

func (t *Table) delete(name Name, found bool) bool {
	delete(t.notFitting, name)
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
	return Certainty{
		Synced: t.synced, Stale: t.staleReason(), Unknown: unknown, Epoch: t.epoch, Dials: t.dials, Outages: t.outages,
	}
}

// Certainty says which rows of a table are known.
type Certainty struct {
	Synced  bool             // the source reported everything at least once
	Stale   error            // why the rows may be out of date; nil if they are current
	Unknown map[string]error // the unknown scopes, see Table.Unknown
	Epoch   int              // number of full reads
	Dials   int              // number of full reads that were the first of a connection
	Outages int              // how often the table became stale
}

// Of returns why the service of a name is unknown, or nil if it is known.
func (k Certainty) Of(name Name) error {
	if k.Stale != nil {
		return k.Stale
	}
	err, _ := Covering(k.Unknown, name)
	return err
}

// Covering returns the value of a scope that covers a name: the name itself or, with a
// trailing *, a prefix of it. Its time is bounded by the length of the name.
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

// A Reader drains the changes of a table. Only one goroutine may use it.
type Reader struct {
	table *Table
	wake  chan struct{}
	part  Part

	// Guarded by table.mu.
	dirty  map[Name]bool       // the changed rows, and whether the change was found
	scopes map[string]struct{} // the changed scopes

	// Owned by the goroutine that drains.
	unknown map[string]error // at the last drain
}

// Wake is ready after a write that is not drained yet.
func (r *Reader) Wake() <-chan struct{} { return r.wake }

// Row is a changed service.
type Row struct {
	Service *Service // nil if it was removed
	Found   bool     // whether the change was found by a full read or while stale, and not reported by an event
}

// Delta is the changes of a table since a reader's last drain.
type Delta struct {
	Rows   map[Name]Row
	Scopes map[string]struct{} // became known or unknown, or changed their reason
	Certainty
}

// Drain returns the changes since the last call. Certainty.Unknown is valid until the
// next call.
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

// markRow makes a row dirty. Several changes that are drained as one count as found if
// one of them was found.
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
