package mcp

import (
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
