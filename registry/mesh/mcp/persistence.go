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
	// persistEvery is how long changes without new hosts are gathered.
	persistEvery = 10 * time.Second

	// maxPushDelay is how long a push waits until its new hosts are persisted.
	maxPushDelay = 10 * time.Second

	// verifyEveryRounds is the number of persistEvery after which buckets are read back. If
	// a registry was wiped, they were deleted with it.
	verifyEveryRounds = 30

	// finalPersistTimeout bounds the last write after the context of run has ended.
	finalPersistTimeout = 5 * time.Second
)

// A persistence writes what a target serves to its stores, so that the next process knows
// it. It divides the groups into buckets, and writes each bucket that changed.
type persistence struct {
	// Immutable.
	target *Target
	stores []*trackedStore

	// Only the goroutine of Target.Groups touches these, and after it that of run.
	loaded         bool
	refusedBuckets [buckets]bool // by bucket: the registry refused its last write

	// For any goroutine.
	urgent   chan urgentWrite // buckets that a push waits for
	isBehind atomic.Bool      // the last write failed or took longer than maxPushDelay

	// Guarded by mu.
	mu           sync.Mutex
	bucketErrors [buckets]error // by bucket: error of its last write
}

// A trackedStore is a PersistentStore and what the persistence knows about its content.
// Only the goroutine that uses the persistence touches it.
type trackedStore struct {
	PersistentStore

	written      [buckets][sha256.Size]byte // hash of each bucket's text in the store
	isListed     bool                       // Name is in the list of names
	previousName string                     // name under which content was found; empty: Name
}

// An urgentWrite is a request of a push to write buckets.
type urgentWrite struct {
	buckets map[int]bool
	done    chan struct{} // closed once the buckets are written, or their write failed
}

func newPersistence(t *Target, stores []PersistentStore) *persistence {
	p := &persistence{target: t, urgent: make(chan urgentWrite)}
	for _, s := range stores {
		p.stores = append(p.stores, &trackedStore{PersistentStore: s})
	}
	return p
}

// load puts what the last process served into the target, so that the guard judges it
// like all stored entries. It is not served before SourcesComplete. A bucket that does
// not exist or is refused counts as empty. Any other failure is an error, because nothing
// may be served while the earlier entries are unknown.
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
		_ = t.setEntries(name, entries) // on an error, the group cannot be served and is left out
	}
	p.loaded, t.o.Predecessor = true, nil
	return nil
}

// anyStoreHas reports whether a group belongs to the registry of one of the filled stores.
// The content of that store is complete, so that the group is not in use if only a
// directory has it: the directory is older.
func anyStoreHas(filled []*trackedStore, g registry.Group) bool {
	return slices.ContainsFunc(filled, func(s *trackedStore) bool { return s.Has != nil && s.Has(g) })
}

// loadFromStore returns the groups in a store. If there are none under its name, it
// returns those under its previous name.
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

// loadByName returns the groups that a store has under a name. Buckets that cannot be
// decoded, or that the store refuses to read, are reported and left out.
func (p *persistence) loadByName(
	ctx context.Context, s *trackedStore, name string,
) (map[registry.Group][]entry, error) {
	found := make(map[registry.Group][]entry)
	for b := range buckets {
		text, err := s.readBucket(ctx, name, b)
		if err != nil && !errors.Is(err, registry.ErrRefused) {
			return nil, fmt.Errorf("read what was served before the restart: %w", err)
		}
		s.written[b] = sha256.Sum256([]byte(text))
		var groups []persistedGroup
		if err == nil {
			groups, err = decodeOptionalBucket(text)
		}
		if err != nil {
			p.target.markDirty(b) // so that the bucket is replaced
			p.reportError(fmt.Errorf("ignoring a part of what was served before the restart: %w", err))
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

// reportError observes that a bucket could not be read or written.
func (p *persistence) reportError(err error) {
	p.target.o.Observe(Observation{Kind: ObservedPersistence, Err: err})
}

// persistBeforePush waits until buckets are written that have new hosts in the next push.
// If the process were killed between that push and the write, the next process would not
// know the hosts. It would delete them from the mesh if their registry does not report them
// then. A push waits at most maxPushDelay, and not at all while writes are behind.
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
			p.reportError(fmt.Errorf("new hosts are served before they are persisted: not written within %s", maxPushDelay))
			return
		}
	}
}

// run writes changed buckets until ctx ends, and then once more.
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

// verify reads all buckets back, and marks those that were changed or deleted to be
// written again. Refused buckets are marked too, because the right may have been granted.
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

// persistDirty writes the changed buckets, those that a push waits for first. A bucket whose
// write fails stays marked.
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

// persistUrgent writes the buckets that a push waits for.
func (p *persistence) persistUrgent(ctx context.Context, s urgentWrite) {
	defer close(s.done)
	for b := range s.buckets {
		p.persistBucket(ctx, b)
	}
}

// persistBucket writes a bucket if it changed. It reports a refusal once per bucket.
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
		p.reportError(fmt.Errorf("persist what is served: %w", failed))
	}
}

// PersistenceError returns the error of a bucket whose last write failed, or nil if there
// is none.
func (t *Target) PersistenceError() error {
	p := t.persistence
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.bucketErrors[:]...)
}

// writeBucket writes the groups of a bucket that the store accepts, unless the store
// already has them.
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

// listNames replaces the previous name of each store by its name in the store's list. It
// waits until everything is written.
func (p *persistence) listNames(ctx context.Context) {
	for _, s := range p.stores {
		if s.Index == "" || s.isListed || slices.Contains(p.refusedBuckets[:], true) || !p.target.isPersisted() {
			continue
		}
		err := s.listName(ctx, s.previousName)
		if s.isListed = err == nil || errors.Is(err, registry.ErrRefused); err != nil {
			p.reportError(fmt.Errorf("after a change of listen, what was served could not be found: %w", err))
		}
	}
}

// takeDirtyBucket returns the groups of a bucket and true if the bucket changed since the
// last call. It returns false before the set is complete.
func (t *Target) takeDirtyBucket(bucket int) (groups []persistedGroup, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete || !t.dirtyBuckets[bucket] {
		return nil, false
	}
	delete(t.dirtyBuckets, bucket)
	for name, g := range t.groups {
		if g.bucket == bucket && len(g.entries) > 0 {
			groups = append(groups, persistedGroup{Group: name, Entries: g.entries}) // immutable
		}
	}
	for name, since := range t.vips.removedAt {
		if bucketOf(name) == bucket {
			groups = append(groups, persistedGroup{Group: name, RemovedAt: since.Unix()})
		}
	}
	return groups, true
}

// markDirty marks a bucket to be written.
func (t *Target) markDirty(bucket int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirtyBuckets[bucket] = true
}

// isPersisted reports whether the set is complete and no bucket has to be written.
func (t *Target) isPersisted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sourcesComplete && len(t.dirtyBuckets) == 0
}

// allEntries returns the entries of all groups.
func (t *Target) allEntries() map[registry.Group][]entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[registry.Group][]entry, len(t.groups))
	for name, g := range t.groups {
		out[name] = g.entries
	}
	return out
}

// restoreReservation reserves the address of a host that the last process removed. A time
// in the future comes from a clock that was ahead. It is replaced by now, also in the store.
func (t *Target) restoreReservation(name registry.Group, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, exists := t.groups[name]; exists {
		return
	}
	if now := time.Now(); since.After(now) {
		since = now
		t.dirtyBuckets[bucketOf(name)] = true
	}
	t.vips.addHost(name)
	t.vips.reserveAddresses(name, since)
}

// adoptEarlierRemovals adopts the time at which another replica removed a host, if it is
// earlier. Otherwise each replica would overwrite the other's time again and again.
func (t *Target) adoptEarlierRemovals(groups []persistedGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range groups {
		if since, gone := t.vips.removedAt[g.Group]; gone && g.RemovedAt != 0 && g.RemovedAt < since.Unix() {
			t.vips.removedAt[g.Group] = time.Unix(g.RemovedAt, 0)
		}
	}
}
