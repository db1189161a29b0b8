package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Needy is a Format whose entries are understood only with what stands
// elsewhere.
type Needy interface {
	Format

	// Needs names what has to be read beside the entries.
	Needs(entries []registry.Entry) []metadata.Ref

	// Places returns the paths at which it may lie, the first that is there
	// counts; none for what ZooKeeper does not store.
	Places(ref metadata.Ref) []string
}

// needGrace is how long what is missing in ZooKeeper counts as not known.
const needGrace = 30 * time.Second

var errNotStored = errors.New("is not stored yet")

// needed is what the entries of a folder need, as far as it is there.
type needed struct {
	texts   map[metadata.Ref]string
	missing map[metadata.Ref]time.Time // since when
	asked   error                      // why something that is not stored was not told
}

// extras returns what entries need. A revision never changes, so that nothing
// is asked for twice.
func (r *reading) extras(ctx context.Context, old, f *folder, entries []registry.Entry) ([]registry.Entry, error) {
	needy, ok := f.format.(Needy)
	if !ok {
		return nil, nil
	}
	var before needed
	if old != nil {
		before = old.needed
	}
	refs := needy.Needs(entries)
	f.needed = needed{texts: make(map[metadata.Ref]string, len(refs)), missing: make(map[metadata.Ref]time.Time)}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.opts.ReadAhead)
	for _, ref := range refs {
		if text, ok := before.texts[ref]; ok {
			f.needed.texts[ref] = text
			continue
		}
		group.Go(func() error {
			text, err := r.need(ctx, needy, ref)
			if err != nil && !errors.Is(err, errNotStored) && !errors.Is(err, errNotTold) {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.got(&f.needed, before, ref, answer{text, err})
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // each of them names its place
	}
	out := make([]registry.Entry, 0, len(refs))
	for ref, text := range f.needed.texts {
		out = append(out, registry.Entry{Group: ref.Group, Key: ref.Key, Value: text})
	}
	return out, nil
}

var errNotTold = errors.New("was not told")

// An answer is what became of one thing that entries need.
type answer struct {
	text string
	err  error
}

// got takes an answer in.
func (r *reading) got(n *needed, before needed, ref metadata.Ref, a answer) {
	switch {
	case a.err == nil:
		n.texts[ref] = a.text
	case errors.Is(a.err, errNotStored):
		since, known := before.missing[ref]
		if !known {
			since = time.Now()
		}
		n.missing[ref] = since
	default:
		r.opts.Log.Warn("a provider does not tell what it provides", "group", ref.Group.String(), "err", a.err)
		if !errors.Is(a.err, registry.ErrRefused) { // else it tells never
			n.asked = a.err
		}
	}
}

// need gets one thing that entries need.
func (r *reading) need(ctx context.Context, needy Needy, ref metadata.Ref) (string, error) {
	places := needy.Places(ref)
	for _, p := range places {
		data, err := r.client.watchFor(ctx, p)
		if err == nil {
			return string(data), nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return "", fmt.Errorf("%s: %w", p, err)
		}
	}
	if len(places) > 0 || r.opts.Ask == nil {
		return "", errNotStored
	}
	text, err := r.opts.Ask(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotTold, err)
	}
	return text, nil
}

// doubt returns why the services of a folder cannot be told for certain.
func (n *needed) doubt() error {
	if n.asked != nil {
		return n.asked
	}
	for _, since := range n.missing {
		if time.Since(since) < needGrace {
			return errNotStored
		}
	}
	return nil
}

// again reports whether something is worth another attempt.
func (n *needed) again() bool { return n.asked != nil || len(n.missing) > 0 }

// came reads the folders again of which something that was missing came.
func (r *reading) came(ctx context.Context, path string) error {
	return r.updateAll(ctx, func(f *folder) bool {
		needy, ok := f.format.(Needy)
		if !ok {
			return false
		}
		for ref := range f.needed.missing {
			if slices.Contains(needy.Places(ref), path) {
				return true
			}
		}
		return false
	})
}

func (r *reading) updateAll(ctx context.Context, which func(*folder) bool) error {
	for _, at := range slices.SortedFunc(maps.Keys(r.folders), place.compare) {
		if !which(r.folders[at]) {
			continue
		}
		if err := r.update(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// watchFor reads a node, or where it does not exist watches for it; the error
// is then zk.ErrNoNode.
func (c *Client) watchFor(ctx context.Context, p string) ([]byte, error) {
	return call(ctx, c, func(conn conn) ([]byte, error) {
		data, _, err := conn.Get(p)
		if !errors.Is(err, zk.ErrNoNode) {
			return data, err
		}
		exists, _, _, err := conn.ExistsW(p)
		if err != nil {
			return nil, err
		}
		if !exists {
			return nil, zk.ErrNoNode
		}
		data, _, err = conn.Get(p) // it came in between
		return data, err
	})
}
