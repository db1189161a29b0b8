package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

const (
	persistEvery        = 10 * time.Second // how long changes are gathered, where no host is new
	maxPushDelay        = 10 * time.Second // how long a push waits for the records of new hosts
	verifyEveryRounds   = 30               // rounds after which records are read back: whoever wiped a registry deleted them too
	finalPersistTimeout = 5 * time.Second  // for what is still to be kept at the end
)

// A persistence records what a target serves for the next process. One goroutine
// uses it: first the one that lists the groups, then run. Only storeBeforePush
// is for others.
type persistence struct {
	target         *Target
	stores         []*trackedStore
	refusedBuckets [buckets]bool // by bucket: its last record was refused
	loaded         bool
	urgent         chan urgentWrite // what a push waits for
	isBehind       atomic.Bool      // the last record was not written, or not in time

	mu           sync.Mutex
	bucketErrors [buckets]error // by bucket: why its last record was not written
}

// A trackedStore is a PersistentStore and what is known of its content.
type trackedStore struct {
	PersistentStore

	written      [buckets][sha256.Size]byte // of the texts that are there
	isListed     bool                       // its name is in the list
	previousName string                     // the name that it had before
}

// An urgentWrite is what a push waits for.
type urgentWrite struct {
	buckets map[int]bool
	done    chan struct{} // closed once they are written, or cannot be
}

func newPersistence(t *Target, stores []PersistentStore) *persistence {
	p := &persistence{target: t, urgent: make(chan urgentWrite)}
	for _, s := range stores {
		p.stores = append(p.stores, &trackedStore{PersistentStore: s})
	}
	return p
}

// load reads what was served before, to be judged like all that is held. It
// is not served before every source reported everything. A record that does
// not exist or is refused counts as empty; any other failure is an error,
// because nothing may be served before it is known.
func (p *persistence) load(ctx context.Context) error {
	if p.loaded {
		return nil
	}
	t := p.target
	from := make(map[registry.Group][]entry)
	var filled []*trackedStore
	for _, s := range p.stores {
		found, err := p.loadFromStore(ctx, s)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			filled = append(filled, s)
		}
		for g, entries := range found {
			if s.Has != nil || !anyStoreHas(filled, g) {
				from[g] = entries
			}
		}
	}
	if t.o.Predecessor != nil && t.o.Predecessor.Ready() == nil {
		from = t.o.Predecessor.allEntries()
	}
	for name, entries := range from {
		_ = t.set(name, entries) // what cannot be served is left out
	}
	p.loaded, t.o.Predecessor = true, nil
	return nil
}

// anyStoreHas reports whether the registry of a group is among stores that held any
// groups. Then these are all there were: a directory with others is older.
func anyStoreHas(filled []*trackedStore, g registry.Group) bool {
	return slices.ContainsFunc(filled, func(s *trackedStore) bool { return s.Has != nil && s.Has(g) })
}

// loadFromStore returns what a store keeps. If that is nothing it looks under the
// name that the store had before.
func (p *persistence) loadFromStore(ctx context.Context, s *trackedStore) (map[registry.Group][]entry, error) {
	found, err := p.loadByName(ctx, s, s.Name)
	if err != nil || len(found) > 0 || s.Index == "" {
		return found, err
	}
	former, err := s.findPreviousName(ctx)
	if err != nil || former == "" {
		return found, err
	}
	own := s.written
	found, err = p.loadByName(ctx, s, former)
	s.previousName, s.written = former, own
	return found, err
}

// loadByName returns what a store keeps under a name.
func (p *persistence) loadByName(ctx context.Context, s *trackedStore, name string) (map[registry.Group][]entry, error) {
	found := make(map[registry.Group][]entry)
	for b := range buckets {
		text, err := s.readBucket(ctx, name, b)
		if err != nil && !errors.Is(err, registry.ErrRefused) {
			return nil, fmt.Errorf("read what was served before: %w", err)
		}
		s.written[b] = sha256.Sum256([]byte(text))
		var groups []persistedGroup
		if err == nil {
			groups, err = decodeOptionalBucket(text)
		}
		if err != nil {
			p.target.markDirty(b) // it is replaced
			p.reportError(fmt.Errorf("what was served before is not used: %w", err))
		}
		for _, g := range groups {
			if g.RemovedAt != 0 {
				p.target.restoreReservation(g.Group, time.Unix(g.RemovedAt, 0))
			} else if bucketOf(g.Group) == b && s.accepts(g.Group) {
				slices.SortFunc(g.Entries, entry.compare)
				found[g.Group] = g.Entries
			}
		}
	}
	return found, nil
}

// reportError reports a record that could not be read or written.
func (p *persistence) reportError(err error) {
	p.target.o.Observe(Observation{Kind: ObservedPersistence, Err: err})
}

// persistBeforePush has buckets written before a push that shows new hosts in
// them. A process that is killed right after a push without records leaves
// hosts that the next one does not know: it would delete them from the mesh if
// their registry does not show them then. No push waits longer than
// keepWithin, nor while the records are behind.
func (p *persistence) persistBeforePush(ctx context.Context, buckets map[int]bool) {
	if len(p.stores) == 0 || len(buckets) == 0 || p.isBehind.Load() {
		return
	}
	s := urgentWrite{buckets, make(chan struct{})}
	late := time.NewTimer(maxPushDelay)
	defer late.Stop()
	for urgent := p.urgent; ; urgent = nil {
		select {
		case urgent <- s:
		case <-s.done:
			return
		case <-ctx.Done():
			return
		case <-late.C:
			p.isBehind.Store(true)
			p.reportError(fmt.Errorf("new hosts are served before they are kept: their records were not written within %s", maxPushDelay))
			return
		}
	}
}

// run writes records of what is served, beside the pushes, until ctx ends, and
// then once more.
func (p *persistence) run(ctx context.Context) {
	ticker := time.NewTicker(persistEvery)
	defer ticker.Stop()
	rounds := 0
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalPersistTimeout)
			defer cancel()
			p.persistDirty(last)
			p.listNames(last)
			return
		case s := <-p.urgent:
			p.persistUrgent(ctx, s)
		case <-ticker.C:
			if rounds++; rounds%verifyEveryRounds == 0 {
				p.verify(ctx)
			}
			p.persistDirty(ctx)
		}
		p.listNames(ctx)
	}
}

// verify reads the records back, so that those that are gone are written once
// more. What was refused is tried again: the right may be there by now.
func (p *persistence) verify(ctx context.Context) {
	if p.target.Ready() != nil {
		return
	}
	for b, refused := range p.refusedBuckets {
		if refused {
			p.target.markDirty(b)
		}
	}
	for _, s := range p.stores {
		for b := range buckets {
			text, err := s.readBucket(ctx, s.Name, b)
			if sum := sha256.Sum256([]byte(text)); err == nil && sum != s.written[b] {
				s.written[b] = sum
				if groups, err := decodeOptionalBucket(text); err == nil {
					p.target.adoptEarlierRemovals(groups)
				}
				p.target.markDirty(b)
			}
		}
	}
}

// persistDirty writes the records of what changed, those that a push waits for first.
// What cannot be written now is tried again.
func (p *persistence) persistDirty(ctx context.Context) {
	for b := range buckets {
		select {
		case s := <-p.urgent:
			p.persistUrgent(ctx, s)
		default:
		}
		p.persistBucket(ctx, b)
	}
}

func (p *persistence) persistUrgent(ctx context.Context, s urgentWrite) {
	defer close(s.done)
	for b := range s.buckets {
		p.persistBucket(ctx, b)
	}
}

// persistBucket writes the record of a bucket if anything changed in it. A
// refusal is reported once.
func (p *persistence) persistBucket(ctx context.Context, b int) {
	if ctx.Err() != nil {
		return
	}
	groups, changed := p.target.takeDirtyBucket(b)
	if !changed {
		return
	}
	var failed error
	for _, s := range p.stores {
		failed = cmp.Or(failed, s.writeBucket(ctx, b, groups))
	}
	p.mu.Lock()
	p.bucketErrors[b] = failed
	p.mu.Unlock()
	before, refused := p.refusedBuckets[b], errors.Is(failed, registry.ErrRefused)
	p.refusedBuckets[b] = refused
	p.isBehind.Store(failed != nil && !refused)
	if failed != nil && !refused {
		p.target.markDirty(b)
	}
	if failed != nil && (!before || !refused) {
		p.reportError(fmt.Errorf("what is served is not kept: %w", failed))
	}
}

// PersistenceError returns why a part of what is served is not kept for the next process;
// nil: all of it is.
func (t *Target) PersistenceError() error {
	p := t.persistence
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.bucketErrors[:]...)
}

// writeBucket writes the record of a bucket if the store has another.
func (s *trackedStore) writeBucket(ctx context.Context, b int, groups []persistedGroup) error {
	own := slices.DeleteFunc(slices.Clone(groups), func(g persistedGroup) bool { return !s.accepts(g.Group) })
	text, err := encodeBucket(own)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(text))
	if sum == s.written[b] {
		return nil
	}
	if err := s.Recorder.Record(ctx, recordKind(s.Name, b), map[string]string{recordName: text}); err != nil {
		return fmt.Errorf("record %s: %w", recordKind(s.Name, b), err)
	}
	s.written[b] = sum
	return nil
}

// listNames puts the names of stores into the lists once everything was written,
// in place of the names that they had before.
func (p *persistence) listNames(ctx context.Context) {
	for _, s := range p.stores {
		if s.Index == "" || s.isListed || slices.Contains(p.refusedBuckets[:], true) || !p.target.isPersisted() {
			continue
		}
		err := s.listName(ctx, s.previousName)
		if s.isListed = err == nil || errors.Is(err, registry.ErrRefused); err != nil {
			p.reportError(fmt.Errorf("a change of listen would not be noticed: %w", err))
		}
	}
}

// takeDirtyBucket returns what is held in a bucket, and true if anything changed in
// it since the last call. It returns nothing before the set is complete.
func (t *Target) takeDirtyBucket(bucket int) (groups []persistedGroup, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete || !t.dirty[bucket] {
		return nil, false
	}
	delete(t.dirty, bucket)
	for name, g := range t.groups {
		if g.bucket == bucket && len(g.entries) > 0 {
			groups = append(groups, persistedGroup{Group: name, Entries: g.entries}) // which are never written again
		}
	}
	for name, since := range t.vips.gone {
		if bucketOf(name) == bucket {
			groups = append(groups, persistedGroup{Group: name, RemovedAt: since.Unix()})
		}
	}
	return groups, true
}

func (t *Target) markDirty(bucket int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty[bucket] = true
}

// isPersisted reports whether the records have everything that is served.
func (t *Target) isPersisted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sourcesComplete && len(t.dirty) == 0
}

func (t *Target) allEntries() map[registry.Group][]entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[registry.Group][]entry, len(t.groups))
	for name, g := range t.groups {
		out[name] = g.entries
	}
	return out
}

// restoreReservation records that a host went, whose address others get later. A time in
// the future is of a clock that was ahead: it is set to now, and is kept so.
func (t *Target) restoreReservation(name registry.Group, since time.Time) {
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
	t.vips.reserve(name, since)
}

// adoptEarlierRemovals adopts when hosts went from a record of another replica, if that is earlier.
// Else each replica would write its own time for ever.
func (t *Target) adoptEarlierRemovals(groups []persistedGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range groups {
		if since, gone := t.vips.gone[g.Group]; gone && g.RemovedAt != 0 && g.RemovedAt < since.Unix() {
			t.vips.gone[g.Group] = time.Unix(g.RemovedAt, 0)
		}
	}
}
