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
	keepEvery  = 10 * time.Second // how long changes are gathered, where no host is new
	keepWithin = 10 * time.Second // how long a push waits for the records of new hosts
	checkEvery = 30               // rounds after which records are read back: whoever wiped a registry deleted them too
	keepLast   = 5 * time.Second  // for what is still to be kept at the end
)

// A recorder records what a target serves for the next process. One goroutine
// uses it: first the one that lists the groups, then run. Only storeBeforePush
// is for others.
type recorder struct {
	target  *Target
	stores  []*keptStore
	refused [buckets]bool // by bucket: its last record was refused
	loaded  bool
	urgent  chan urgentWrite // what a push waits for
	behind  atomic.Bool      // the last record was not written, or not in time

	mu     sync.Mutex
	failed [buckets]error // by bucket: why its last record was not written
}

// A keptStore is a Store and what is known of its content.
type keptStore struct {
	Store

	written  [buckets][sha256.Size]byte // of the texts that are there
	isListed bool                       // its name is in the list
	former   string                     // the name that it had before
}

// An urgentWrite is what a push waits for.
type urgentWrite struct {
	buckets map[int]bool
	done    chan struct{} // closed once they are written, or cannot be
}

func newRecorder(t *Target, stores []Store) *recorder {
	k := &recorder{target: t, urgent: make(chan urgentWrite)}
	for _, s := range stores {
		k.stores = append(k.stores, &keptStore{Store: s})
	}
	return k
}

// load reads what was served before, to be judged like all that is held. It
// is not served before every source reported everything. A record that does
// not exist or is refused counts as empty; any other failure is an error,
// because nothing may be served before it is known.
func (k *recorder) load(ctx context.Context) error {
	if k.loaded {
		return nil
	}
	t := k.target
	from := make(map[registry.Group][]entry)
	var filled []*keptStore
	for _, s := range k.stores {
		found, err := k.loadFrom(ctx, s)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			filled = append(filled, s)
		}
		for g, entries := range found {
			if s.Has != nil || !isKnown(filled, g) {
				from[g] = entries
			}
		}
	}
	if t.o.Predecessor != nil && t.o.Predecessor.Ready() == nil {
		from = t.o.Predecessor.all()
	}
	for name, entries := range from {
		_ = t.set(name, entries) // what cannot be served is left out
	}
	k.loaded, t.o.Predecessor = true, nil
	return nil
}

// isKnown reports whether the registry of a group is among stores that held any
// groups. Then these are all there were: a directory with others is older.
func isKnown(filled []*keptStore, g registry.Group) bool {
	return slices.ContainsFunc(filled, func(s *keptStore) bool { return s.Has != nil && s.Has(g) })
}

// loadFrom returns what a store keeps. If that is nothing it looks under the
// name that the store had before.
func (k *recorder) loadFrom(ctx context.Context, s *keptStore) (map[registry.Group][]entry, error) {
	found, err := k.loadAs(ctx, s, s.Name)
	if err != nil || len(found) > 0 || s.Index == "" {
		return found, err
	}
	former, err := s.formerName(ctx)
	if err != nil || former == "" {
		return found, err
	}
	own := s.written
	found, err = k.loadAs(ctx, s, former)
	s.former, s.written = former, own
	return found, err
}

// loadAs returns what a store keeps under a name.
func (k *recorder) loadAs(ctx context.Context, s *keptStore, name string) (map[registry.Group][]entry, error) {
	found := make(map[registry.Group][]entry)
	for b := range buckets {
		text, err := s.read(ctx, name, b)
		if err != nil && !errors.Is(err, registry.ErrRefused) {
			return nil, fmt.Errorf("read what was served before: %w", err)
		}
		s.written[b] = sha256.Sum256([]byte(text))
		var groups []keptGroup
		if err == nil {
			groups, err = groupsIn(text)
		}
		if err != nil {
			k.target.markDirty(b) // it is replaced
			k.observe(fmt.Errorf("what was served before is not used: %w", err))
		}
		for _, g := range groups {
			if g.Gone != 0 {
				k.target.wasGone(g.Group, time.Unix(g.Gone, 0))
			} else if bucketOf(g.Group) == b && s.keeps(g.Group) {
				slices.SortFunc(g.Entries, entry.compare)
				found[g.Group] = g.Entries
			}
		}
	}
	return found, nil
}

// observe reports a record that could not be read or written.
func (k *recorder) observe(err error) {
	k.target.o.Observe(Observation{Kind: ObservedState, Err: err})
}

// storeBeforePush has buckets written before a push that shows new hosts in
// them. A process that is killed right after a push without records leaves
// hosts that the next one does not know: it would delete them from the mesh if
// their registry does not show them then. No push waits longer than
// keepWithin, nor while the records are behind.
func (k *recorder) storeBeforePush(ctx context.Context, buckets map[int]bool) {
	if len(k.stores) == 0 || len(buckets) == 0 || k.behind.Load() {
		return
	}
	s := urgentWrite{buckets, make(chan struct{})}
	late := time.NewTimer(keepWithin)
	defer late.Stop()
	for urgent := k.urgent; ; urgent = nil {
		select {
		case urgent <- s:
		case <-s.done:
			return
		case <-ctx.Done():
			return
		case <-late.C:
			k.behind.Store(true)
			k.observe(fmt.Errorf("new hosts are served before they are kept: their records were not written within %s", keepWithin))
			return
		}
	}
}

// run writes records of what is served, beside the pushes, until ctx ends, and
// then once more.
func (k *recorder) run(ctx context.Context) {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	rounds := 0
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepLast)
			defer cancel()
			k.store(last)
			k.list(last)
			return
		case s := <-k.urgent:
			k.storeThese(ctx, s)
		case <-ticker.C:
			if rounds++; rounds%checkEvery == 0 {
				k.check(ctx)
			}
			k.store(ctx)
		}
		k.list(ctx)
	}
}

// check reads the records back, so that those that are gone are written once
// more. What was refused is tried again: the right may be there by now.
func (k *recorder) check(ctx context.Context) {
	if k.target.Ready() != nil {
		return
	}
	for b, refused := range k.refused {
		if refused {
			k.target.markDirty(b)
		}
	}
	for _, s := range k.stores {
		for b := range buckets {
			text, err := s.read(ctx, s.Name, b)
			if sum := sha256.Sum256([]byte(text)); err == nil && sum != s.written[b] {
				s.written[b] = sum
				if groups, err := groupsIn(text); err == nil {
					k.target.agree(groups)
				}
				k.target.markDirty(b)
			}
		}
	}
}

// store writes the records of what changed, those that a push waits for first.
// What cannot be written now is tried again.
func (k *recorder) store(ctx context.Context) {
	for b := range buckets {
		select {
		case s := <-k.urgent:
			k.storeThese(ctx, s)
		default:
		}
		k.storeBucket(ctx, b)
	}
}

func (k *recorder) storeThese(ctx context.Context, s urgentWrite) {
	defer close(s.done)
	for b := range s.buckets {
		k.storeBucket(ctx, b)
	}
}

// storeBucket writes the record of a bucket if anything changed in it. A
// refusal is reported once.
func (k *recorder) storeBucket(ctx context.Context, b int) {
	if ctx.Err() != nil {
		return
	}
	groups, changed := k.target.drainDirty(b)
	if !changed {
		return
	}
	var failed error
	for _, s := range k.stores {
		failed = cmp.Or(failed, s.write(ctx, b, groups))
	}
	k.mu.Lock()
	k.failed[b] = failed
	k.mu.Unlock()
	before, refused := k.refused[b], errors.Is(failed, registry.ErrRefused)
	k.refused[b] = refused
	k.behind.Store(failed != nil && !refused)
	if failed != nil && !refused {
		k.target.markDirty(b)
	}
	if failed != nil && (!before || !refused) {
		k.observe(fmt.Errorf("what is served is not kept: %w", failed))
	}
}

// Unrecorded returns why a part of what is served is not kept for the next process;
// nil: all of it is.
func (t *Target) Unrecorded() error {
	k := t.recorder
	k.mu.Lock()
	defer k.mu.Unlock()
	return cmp.Or(k.failed[:]...)
}

// write writes the record of a bucket if the store has another.
func (s *keptStore) write(ctx context.Context, b int, groups []keptGroup) error {
	own := slices.DeleteFunc(slices.Clone(groups), func(g keptGroup) bool { return !s.keeps(g.Group) })
	text, err := encodeRecord(own)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(text))
	if sum == s.written[b] {
		return nil
	}
	if err := s.Recorder.Record(ctx, kindOf(s.Name, b), map[string]string{recordName: text}); err != nil {
		return fmt.Errorf("record %s: %w", kindOf(s.Name, b), err)
	}
	s.written[b] = sum
	return nil
}

// list puts the names of stores into the lists once everything was written,
// in place of the names that they had before.
func (k *recorder) list(ctx context.Context) {
	for _, s := range k.stores {
		if s.Index == "" || s.isListed || slices.Contains(k.refused[:], true) || !k.target.isClean() {
			continue
		}
		err := s.relist(ctx, s.former)
		if s.isListed = err == nil || errors.Is(err, registry.ErrRefused); err != nil {
			k.observe(fmt.Errorf("a change of listen would not be noticed: %w", err))
		}
	}
}

// drainDirty returns what is held in a bucket, and true if anything changed in
// it since the last call. It returns nothing before the set is complete.
func (t *Target) drainDirty(bucket int) (groups []keptGroup, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete || !t.dirty[bucket] {
		return nil, false
	}
	delete(t.dirty, bucket)
	for name, g := range t.groups {
		if g.bucket == bucket && len(g.entries) > 0 {
			groups = append(groups, keptGroup{Group: name, Entries: g.entries}) // which are never written again
		}
	}
	for name, since := range t.vips.gone {
		if bucketOf(name) == bucket {
			groups = append(groups, keptGroup{Group: name, Gone: since.Unix()})
		}
	}
	return groups, true
}

func (t *Target) markDirty(bucket int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty[bucket] = true
}

// isClean reports whether the records have everything that is served.
func (t *Target) isClean() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sourcesComplete && len(t.dirty) == 0
}

func (t *Target) all() map[registry.Group][]entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[registry.Group][]entry, len(t.groups))
	for name, g := range t.groups {
		out[name] = g.entries
	}
	return out
}

// wasGone records that a host went, whose address others get later. A time in
// the future is of a clock that was ahead: it is set to now, and is kept so.
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
	t.vips.reserve(name, since)
}

// agree adopts when hosts went from a record of another replica, if that is earlier.
// Else each replica would write its own time for ever.
func (t *Target) agree(groups []keptGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range groups {
		if since, gone := t.vips.gone[g.Group]; gone && g.Gone != 0 && g.Gone < since.Unix() {
			t.vips.gone[g.Group] = time.Unix(g.Gone, 0)
		}
	}
}
