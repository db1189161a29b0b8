package mcp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Store keeps what is served where the next process finds it: in the
// registry that it comes from, or in a directory.
type Store struct {
	Recorder registry.Recorder
	Name     string                    // of the kinds of its records: a word of letters, digits and hyphens
	Has      func(registry.Group) bool // which groups are kept there; nil: all that no store before it gave back

	// Index is the kind of the list of those Names under which a mesh is kept,
	// and Names are all of them now. One that replaces another
	// finds what that one kept. Empty: there is no list.
	Index string
	Names []string
}

func (s Store) kind(bucket int) string { return fmt.Sprintf("%s-%02d", s.Name, bucket) }

// recordName is the name of the one record of a kind: a registry may keep all
// records of a kind as one text.
const recordName = "set"

const (
	keepEvery  = 10 * time.Second // how long changes are gathered, where no host is new
	keepWithin = 10 * time.Second // how long a push waits for the records of hosts that are new
	checkEvery = 30               // rounds after which records are read back, as whoever wiped a registry took them along
	keepLast   = 5 * time.Second  // for what is still to be kept at the end
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

// formerName returns the name that a store had: the one that is listed and not in
// use any more, if the only one that is in use and not listed is that of now.
func (s Store) formerName(ctx context.Context) (string, error) {
	listed, err := s.Recorder.Records(ctx, s.Index)
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return "", fmt.Errorf("read which addresses were served: %w", err)
	}
	fresh := slices.DeleteFunc(slices.Clone(s.Names), func(name string) bool { return listed[name] != "" })
	for _, name := range s.Names {
		delete(listed, name)
	}
	if len(listed) != 1 || len(fresh) != 1 || fresh[0] != s.Name {
		return "", nil
	}
	return slices.Collect(maps.Keys(listed))[0], nil
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

// relist lists the name of a store, and forgets the one that it had before. Once
// all names are listed it forgets those that are not in use any more.
func (s Store) relist(ctx context.Context, old string) error {
	if err := s.Recorder.Record(ctx, s.Index, s.Name, "listed"); err != nil {
		return fmt.Errorf("record %s: %w", s.Index, err)
	}
	for b := range buckets {
		if old == "" {
			break
		}
		if err := s.Recorder.Record(ctx, Store{Name: old}.kind(b), recordName, ""); err != nil {
			return fmt.Errorf("forget %s: %w", old, err)
		}
	}
	listed, err := s.Recorder.Records(ctx, s.Index)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Index, err)
	}
	whole := !slices.ContainsFunc(s.Names, func(name string) bool { return listed[name] == "" })
	for name := range listed {
		if slices.Contains(s.Names, name) || !whole && name != old {
			continue
		}
		if err := s.Recorder.Record(ctx, s.Index, name, ""); err != nil {
			return fmt.Errorf("forget %s: %w", name, err)
		}
	}
	return nil
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

func (s Store) read(ctx context.Context, bucket int) (string, error) {
	all, err := s.Recorder.Records(ctx, s.kind(bucket))
	return all[recordName], err //nolint:wrapcheck // load and check name it
}
