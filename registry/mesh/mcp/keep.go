package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A recordKeeper is what a target knows of its stores. One goroutine uses it: first
// whoever lists the groups, then keep.
type recordKeeper struct {
	written     [][buckets][sha256.Size]byte // by store: of the texts that are there
	refused     [buckets]bool                // was refused last
	rounds      int
	loaded      bool
	listed      []bool   // by store: its name is in the list
	formerNames []string // by store: the name that it had before
}

// load takes in what was served before, to be judged like all that is held. It
// is not served before every source reported everything: a set that is old is
// not the whole truth. A record that does not exist or cannot be read, now or
// ever, is nothing; one that may be read later is an error, because nothing
// may be served before it is known.
func (t *Target) load(ctx context.Context) error {
	if t.recorder.loaded {
		return nil
	}
	from := make(map[registry.Group][]entry)
	loaded := make([]bool, len(t.o.Keep))
	for i, s := range t.o.Keep {
		found, err := t.loadFrom(ctx, i)
		if err != nil {
			return err
		}
		loaded[i] = len(found) > 0
		for g, entries := range found {
			if s.Has != nil || !t.isKnown(g, loaded) {
				from[g] = entries
			}
		}
	}
	if t.o.Predecessor != nil && t.o.Predecessor.isComplete() {
		from = t.o.Predecessor.all()
	}
	for name, entries := range from {
		_ = t.set(name, entries) // what cannot be served is left out
	}
	t.recorder.loaded, t.o.Predecessor = true, nil
	return nil
}

// all returns everything that is held.
func (t *Target) all() map[registry.Group][]entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[registry.Group][]entry, len(t.groups))
	for name, g := range t.groups {
		out[name] = g.entries
	}
	return out
}

// isKnown reports whether the registry that keeps a group gave back any groups.
// Then these are all there were: a directory that has others is older.
func (t *Target) isKnown(g registry.Group, loaded []bool) bool {
	for i, s := range t.o.Keep {
		if s.Has != nil && loaded[i] && s.Has(g) {
			return true
		}
	}
	return false
}

// loadFrom returns what a store keeps. Where that is nothing it looks for the
// name that it had before.
func (t *Target) loadFrom(ctx context.Context, i int) (map[registry.Group][]entry, error) {
	s := t.o.Keep[i]
	found, err := t.loadAs(ctx, i, s)
	if err != nil || len(found) > 0 || s.Index == "" {
		return found, err
	}
	if s.Name, err = s.formerName(ctx); err != nil || s.Name == "" {
		return found, err
	}
	own := t.recorder.written[i]
	found, err = t.loadAs(ctx, i, s)
	t.recorder.formerNames[i], t.recorder.written[i] = s.Name, own
	return found, err
}

// loadAs returns what is kept under the name of a store.
func (t *Target) loadAs(ctx context.Context, i int, s Store) (map[registry.Group][]entry, error) {
	found := make(map[registry.Group][]entry)
	for b := range buckets {
		text, err := s.read(ctx, b)
		if err != nil && !errors.Is(err, registry.ErrRefused) {
			return nil, fmt.Errorf("read what was served before: %w", err)
		}
		t.recorder.written[i][b] = sha256.Sum256([]byte(text))
		groups, err := decoded(text, err)
		if err != nil {
			t.markDirty(b) // it is replaced
			t.o.Observe(Observation{Kind: ObservedState, Err: fmt.Errorf("what was served before is not used: %w", err)})
		}
		for _, g := range groups {
			if g.Gone != 0 {
				t.wasGone(g.Group, time.Unix(g.Gone, 0))
			} else if bucketOf(g.Group) == b && (s.Has == nil || s.Has(g.Group)) {
				slices.SortFunc(g.Entries, entry.compare) // as whoever writes them has them
				found[g.Group] = g.Entries
			}
		}
	}
	return found, nil
}

// wasGone takes in that a host went, whose address others get later. A time
// that is yet to come is of a clock that was ahead: it is now, and kept so.
func (t *Target) wasGone(name registry.Group, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, back := t.groups[name]; back {
		return
	}
	if now := time.Now(); since.After(now) {
		since = now
		t.dirty[bucketOf(name)] = true
	}
	t.vips.add(name)
	t.reserveAddresses(name, since)
}

func decoded(text string, err error) ([]kept, error) {
	if err != nil || text == "" {
		return nil, err
	}
	return decodeRecord(text)
}

const (
	keepEvery  = 10 * time.Second // how long changes are gathered, where no host is new
	keepWithin = 10 * time.Second // how long a push waits for the records of hosts that are new
	checkEvery = 30               // rounds after which records are read back, as whoever wiped a registry took them along
	keepLast   = 5 * time.Second  // for what is still to be kept at the end
)

// An urgentWrite is what a push waits for.
type urgentWrite struct {
	buckets map[int]bool
	done    chan struct{} // closed once they are written, or cannot be
}

// storeBeforePush has buckets written before a push that shows hosts that are new
// in them. If a process were killed right after a push without records, the next
// one would not know these hosts: it would take them from the mesh if their
// registry does not show them then. No push waits longer than keepWithin, nor
// while the records are behind.
func (t *Target) storeBeforePush(ctx context.Context, buckets map[int]bool) {
	if len(t.o.Keep) == 0 || len(buckets) == 0 || t.isBehind() {
		return
	}
	s := urgentWrite{buckets, make(chan struct{})}
	late := time.NewTimer(keepWithin)
	defer late.Stop()
	for urgent := t.urgent; ; urgent = nil {
		select {
		case urgent <- s:
		case <-s.done:
			return
		case <-ctx.Done():
			return
		case <-late.C:
			t.setBehind(true)
			t.o.Observe(Observation{Kind: ObservedState, Err: fmt.Errorf("new hosts are served before they are kept: their records were not written within %s", keepWithin)})
			return
		}
	}
}

func (t *Target) isBehind() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.behind
}

func (t *Target) setBehind(behind bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.behind = behind
}

// keep writes down what is served, beside the pushes, until ctx ends, and
// then once more.
func (t *Target) keep(ctx context.Context) {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepLast)
			defer cancel()
			t.store(last)
			t.list(last)
			return
		case s := <-t.urgent:
			t.storeThese(ctx, s)
		case <-ticker.C:
			if t.recorder.rounds++; t.recorder.rounds%checkEvery == 0 {
				t.check(ctx)
			}
			t.store(ctx)
		}
		t.list(ctx)
	}
}

// check reads the records back, so that those that are gone are written once
// more, and has what was refused tried again: we may have the right by now.
func (t *Target) check(ctx context.Context) {
	if !t.isComplete() {
		return
	}
	for b, refused := range t.recorder.refused {
		if refused {
			t.markDirty(b)
		}
	}
	for i, s := range t.o.Keep {
		for b := range buckets {
			text, err := s.read(ctx, b)
			if sum := sha256.Sum256([]byte(text)); err == nil && sum != t.recorder.written[i][b] {
				t.recorder.written[i][b] = sum
				t.agree(text)
				t.markDirty(b)
			}
		}
	}
}

// agree takes over when hosts went from a record that another replica wrote,
// where that is earlier: else each would write its own time for ever.
func (t *Target) agree(text string) {
	groups, err := decoded(text, nil)
	if err != nil {
		return // it is replaced
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range groups {
		if since, gone := t.gone[g.Group]; gone && g.Gone != 0 && g.Gone < since.Unix() {
			t.gone[g.Group] = time.Unix(g.Gone, 0)
		}
	}
}

// store writes the records of what changed, those that a push waits for first.
// What cannot be written now is tried again.
func (t *Target) store(ctx context.Context) {
	for b := range buckets {
		select {
		case s := <-t.urgent:
			t.storeThese(ctx, s)
		default:
		}
		t.storeBucket(ctx, b)
	}
}

// storeThese writes what a push waits for.
func (t *Target) storeThese(ctx context.Context, s urgentWrite) {
	defer close(s.done)
	for b := range s.buckets {
		t.storeBucket(ctx, b)
	}
}

// storeBucket writes the record of a bucket, where anything changed in it.
func (t *Target) storeBucket(ctx context.Context, b int) {
	if ctx.Err() != nil {
		return
	}
	groups, changed := t.takeDirty(b)
	if !changed {
		return
	}
	var failed error
	for i, s := range t.o.Keep {
		failed = cmp.Or(failed, t.storeIn(ctx, i, s, b, groups))
	}
	t.noteKept(b, failed)
}

// noteKept takes in whether a bucket was kept. A refusal is reported once.
func (t *Target) noteKept(b int, failed error) {
	before, refused := t.recorder.refused[b], errors.Is(failed, registry.ErrRefused)
	t.recorder.refused[b] = refused
	t.setBehind(failed != nil && !refused)
	if failed != nil && !refused {
		t.markDirty(b)
	}
	if failed != nil && (!before || !refused) {
		t.o.Observe(Observation{Kind: ObservedState, Err: fmt.Errorf("what is served is not kept: %w", failed)})
	}
}

func (t *Target) storeIn(ctx context.Context, i int, s Store, b int, groups []kept) error {
	var mine []kept
	for _, g := range groups {
		if s.Has == nil || s.Has(g.Group) {
			mine = append(mine, g)
		}
	}
	text, err := encodeRecord(mine)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(text))
	if sum == t.recorder.written[i][b] {
		return nil
	}
	if err := s.Recorder.Record(ctx, s.kind(b), recordName, text); err != nil {
		return fmt.Errorf("record %s: %w", s.kind(b), err)
	}
	t.recorder.written[i][b] = sum
	return nil
}

// takeDirty returns what is held in a bucket and takes its mark off, if anything
// changed in it since the last call; nothing before the set is complete.
func (t *Target) takeDirty(bucket int) (groups []kept, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete || !t.dirty[bucket] {
		return nil, false
	}
	delete(t.dirty, bucket)
	for name, g := range t.groups {
		if g.bucket == bucket && len(g.entries) > 0 {
			groups = append(groups, kept{Group: name, Entries: g.entries}) // which are never written again
		}
	}
	for name, since := range t.gone {
		if bucketOf(name) == bucket {
			groups = append(groups, kept{Group: name, Gone: since.Unix()})
		}
	}
	return groups, true
}

func (t *Target) markDirty(bucket int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty[bucket] = true
}

func (t *Target) isComplete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sourcesComplete
}

// list puts the names of stores into the lists once everything was written. The
// name that one had before goes from there, with what was kept under it.
func (t *Target) list(ctx context.Context) {
	for i, s := range t.o.Keep {
		if s.Index == "" || t.recorder.listed[i] || !t.isStored() {
			continue
		}
		err := s.relist(ctx, t.recorder.formerNames[i])
		if t.recorder.listed[i] = err == nil || errors.Is(err, registry.ErrRefused); err != nil {
			t.o.Observe(Observation{Kind: ObservedState, Err: fmt.Errorf("a change of listen would not be noticed: %w", err)})
		}
	}
}

// isStored reports whether everything that is served is kept.
func (t *Target) isStored() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sourcesComplete && len(t.dirty) == 0 && !slices.Contains(t.recorder.refused[:], true)
}
