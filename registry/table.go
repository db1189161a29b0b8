package registry

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Table holds the services of one source. One source writes it and any
// number of readers drain it, each at its own pace; a write never waits for a
// reader, and several changes of one service between two drains are one.
//
// Knowledge has three values here. A service is known while the table is
// synced, not stale and no scope that covers it is unknown; what is not known
// stays as it was last seen, and nobody may conclude from it that anything
// has gone.
type Table struct {
	mu      sync.Mutex
	rows    map[Name]*Service
	skipped map[string]string
	unknown map[string]error
	first   string // scope of unknown by name; empty: it is to be looked for
	synced  bool
	stale   error
	outages int // how often that began
	epoch   int
	renewed bool // the rows are those of an earlier source
	dialed  bool // since the last full reading
	dials   int
	readers map[*Reader]struct{}

	limits Limits
	load   load              // of the rows and what is kept beside them
	beside int64             // bytes of that
	over   map[Name]struct{} // services that did not fit
	again  func()            // asks for a full reading
	asked  load              // what the rows were when it was asked for last
}

// NewTable returns an empty table that is not synced yet.
func NewTable() *Table {
	return &Table{
		rows:    make(map[Name]*Service),
		skipped: make(map[string]string),
		unknown: make(map[string]error),
		readers: make(map[*Reader]struct{}),
	}
}

// Put adds a service or replaces the one of the same name.
func (t *Table) Put(s *Service) {
	defer t.retry()
	t.mu.Lock()
	defer t.mu.Unlock()
	over := len(t.over)
	if t.put(s, t.held() != nil) || len(t.over) != over {
		t.signal()
	}
}

// Delete removes a service that its registry took back.
func (t *Table) Delete(name Name) {
	defer t.retry()
	t.mu.Lock()
	defer t.mu.Unlock()
	over := len(t.over)
	if t.delete(name, t.held() != nil) || len(t.over) != over {
		t.signal()
	}
}

// Apply adds or replaces services and removes others as one: a reader drains
// all of it or nothing. What one message of a registry reported belongs together,
// so that a mass removal is seen whole.
func (t *Table) Apply(put []*Service, gone []Name) {
	defer t.retry()
	t.mu.Lock()
	defer t.mu.Unlock()
	found, changed, over := t.held() != nil, false, len(t.over)
	for _, s := range put {
		changed = t.put(s, found) || changed
	}
	for _, name := range gone {
		changed = t.delete(name, found) || changed
	}
	for _, s := range put { // there may be room by now
		if _, over := t.over[s.Name]; over {
			changed = t.put(s, found) || changed
		}
	}
	if changed || len(t.over) != over {
		t.signal()
	}
}

// Replace makes the table hold exactly these services, marks it synced and no
// longer stale. What is gone by it was found missing, which is weaker than
// having been withdrawn: Row.Found distinguishes them.
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
	for name := range t.rows { // first, so that there is room
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

// Dialed reports that the source reads over a new connection from now on, so
// that the next full reading reports what no earlier connection could have kept:
// it counts in Knowledge.Dials.
func (t *Table) Dialed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dialed = true
}

// Stale reports that the rows may be out of date, and why; nil takes that back.
func (t *Table) Stale(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.stale == nil {
		t.outages++
	}
	t.stale = err
	t.signal()
}

// Renew makes the table ready for another source of the same registry: the
// rows stay, out of date for the given reason until the new source has reported
// everything, and what the old one could not report or left out is forgotten.
func (t *Table) Renew(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale, t.renewed = err, true
	for scope := range t.unknown {
		t.move(scope)
	}
	clear(t.unknown)
	t.first = ""
	clear(t.skipped)
	t.signal()
}

// Current waits until the rows are those of the present source: after Renew, until
// that has reported everything. The error is that of ctx.
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

// Unknown reports that the services within a scope cannot be known, and why,
// while all others can; nil takes that back. A scope is the name of a service
// or, with a trailing *, the beginning of names.
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
		return // a source that reads thousands of services says so of each
	}
	t.move(scope)
	t.signal()
}

// move makes a scope be reported to every reader.
func (t *Table) move(scope string) {
	for r := range t.readers {
		r.moved[scope] = struct{}{}
	}
}

// Skip records that an input was left out on purpose and why, so that status
// can show it; an empty reason takes that back. The key is the name the input
// has in its registry.
func (t *Table) Skip(key, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reason == "" {
		delete(t.skipped, key)
	} else {
		t.skipped[key] = reason
	}
}

// Skipped returns the inputs that were left out, each with its reason.
func (t *Table) Skipped() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.skipped)
}

// Get returns the service of a name, nil where there is none.
func (t *Table) Get(name Name) *Service {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[name]
}

// Snapshot returns everything the table holds; the caller owns the map.
func (t *Table) Snapshot() (map[Name]*Service, Certainty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.rows), t.certainty(maps.Clone(t.unknown))
}

// Certainty returns how far the rows may be relied on; the caller owns its map.
func (t *Table) Certainty() Certainty {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.certainty(maps.Clone(t.unknown))
}

// Summary is what a table holds and how far that may be relied on, counted.
type Summary struct {
	Synced    bool
	Stale     error
	Services  int
	Endpoints Endpoints // of the services
	Unknown   int       // scopes that cannot be known
	Scope     string    // the first of them by name
	Why       error     // that one cannot be known
	Skipped   int       // inputs that were left out
}

// Summary returns what the table holds, at a price that does not depend on how
// much that is, but for once after the first unknown scope could be reported again.
func (t *Table) Summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == "" && len(t.unknown) > 0 { // since the first went
		t.first = slices.Min(slices.Collect(maps.Keys(t.unknown)))
	}
	return Summary{
		Scope: t.first, Why: t.unknown[t.first],
		Synced: t.synced, Stale: t.held(), Services: len(t.rows), Endpoints: t.load.health,
		Unknown: len(t.unknown), Skipped: len(t.skipped),
	}
}

// Reader returns a new reader, for which every row is still to be drained.
func (t *Table) Reader() *Reader { return t.ReaderOn(make(chan struct{}, 1)) }

// ReaderOn returns a new reader whose Wake is a given channel of capacity 1, so that
// one goroutine waits for several tables.
func (t *Table) ReaderOn(wake chan struct{}) *Reader {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &Reader{
		table: t, wake: wake, dirty: make(map[Name]bool, len(t.rows)),
		moved: make(map[string]struct{}, len(t.unknown)), unknown: make(map[string]error, len(t.unknown)),
	}
	for name := range t.rows {
		r.dirty[name] = false
	}
	t.readers[r] = struct{}{}
	for scope := range t.unknown {
		r.moved[scope] = struct{}{}
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
	t.mark(s.Name, found)
	return true
}

func (t *Table) delete(name Name, found bool) bool {
	delete(t.over, name)
	old, ok := t.rows[name]
	if !ok {
		return false
	}
	t.load = t.load.sub(weigh(old))
	delete(t.rows, name)
	t.mark(name, found)
	return true
}

// mark makes a row dirty for every reader. Once found, a row stays so until
// it is drained: the weaker kind of knowledge wins.
func (t *Table) mark(name Name, found bool) {
	for r := range t.readers {
		r.dirty[name] = r.dirty[name] || found
	}
}

func (t *Table) signal() {
	for r := range t.readers {
		r.signal()
	}
}

func (t *Table) certainty(unknown map[string]error) Certainty {
	return Certainty{Synced: t.synced, Stale: t.held(), Unknown: unknown, Epoch: t.epoch, Dials: t.dials, Outages: t.outages}
}

// Certainty is how far the rows of a table may be relied on.
type Certainty struct {
	Synced  bool             // the source reported everything at least once
	Stale   error            // why the rows may be out of date; nil where they are not
	Unknown map[string]error // scopes that cannot be known, by Table.Unknown
	Epoch   int              // how often the source reported everything anew
	Dials   int              // how many of those readings were the first of a new connection
	Outages int              // how often the rows began to be out of date
}

// Of returns why the service of a name may not be concluded from, nil where
// it may.
func (k Certainty) Of(name Name) error {
	if k.Stale != nil {
		return k.Stale
	}
	err, _ := Covering(k.Unknown, name)
	return err
}

// Covering returns what a scope says that covers a name, and whether there is
// one: the name itself or, with a trailing *, a beginning of it. It takes no
// longer where there are more scopes than the name has letters.
func Covering[V any](scopes map[string]V, name Name) (V, bool) {
	if v, ok := scopes[string(name)]; ok {
		return v, true
	}
	if len(scopes) <= len(name) {
		for scope, v := range scopes {
			if prefix, ok := strings.CutSuffix(scope, "*"); ok && strings.HasPrefix(string(name), prefix) {
				return v, true
			}
		}
		var none V
		return none, false
	}
	scope := make([]byte, 0, 128)
	for i := range len(name) + 1 {
		scope = append(append(scope[:0], name[:i]...), '*')
		if v, ok := scopes[string(scope)]; ok {
			return v, true
		}
	}
	var none V
	return none, false
}

// A Reader is one reader's view of what changed in a table. It is safe for
// use by one goroutine.
type Reader struct {
	table *Table
	wake  chan struct{}
	dirty map[Name]bool       // whether the change was found; guarded by table.mu
	moved map[string]struct{} // scopes that changed; guarded by table.mu

	unknown map[string]error // as of the last drain
}

// Wake is ready after a write that has not been drained.
func (r *Reader) Wake() <-chan struct{} { return r.wake }

// Row is a changed service.
type Row struct {
	Service *Service // nil where it is gone
	Found   bool     // found by a full reading or while stale, not reported by an event
}

// Delta is what happened to a table since a reader's last drain.
type Delta struct {
	Rows      map[Name]Row
	Scopes    map[string]struct{} // that are unknown or are not any more, or for another reason
	Certainty                     // whose Unknown is the reader's own, until its next drain
}

// Drain returns the changes since the last call and forgets them.
func (r *Reader) Drain() Delta {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for scope := range r.moved {
		if err := t.unknown[scope]; err != nil {
			r.unknown[scope] = err
		} else {
			delete(r.unknown, scope)
		}
	}
	d := Delta{Rows: make(map[Name]Row, len(r.dirty)), Scopes: r.moved, Certainty: t.certainty(r.unknown)}
	r.moved = make(map[string]struct{})
	for name, found := range r.dirty {
		d.Rows[name] = Row{Service: t.rows[name], Found: found}
	}
	clear(r.dirty)
	return d
}

// Close ends the reader; the table forgets it.
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
