package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrRootGone says that the root of a format was there and no longer is.
var ErrRootGone = errors.New("the root has gone")

// list returns the folders of a format, and watches for others.
func (r *reading) list(ctx context.Context, f Format) ([]string, error) {
	root, rest := parts(f)
	names, err := r.names(ctx, root)
	switch {
	case errors.Is(err, zk.ErrNoNode) && r.rooted[root]:
		return nil, rootGone(root)
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil // nobody has registered anything yet
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", root, err)
	}
	var out []string
	for _, name := range names {
		p := strings.TrimSuffix(root, "/") + "/" + name + rest
		if _, ok := f.Group(p); ok {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out, nil
}

// names returns what lies in a root and watches for more, or what is wanted of
// it whether it exists or not: each folder is watched by itself, also while there
// is no root yet.
func (r *reading) names(ctx context.Context, root string) ([]string, error) {
	if r.opts.Interest == nil {
		names, err := r.client.watchChildren(ctx, root)
		r.rooted[root] = r.rooted[root] || err == nil
		return names, err
	}
	stat, err := r.client.exists(ctx, root)
	if err != nil {
		return nil, err
	}
	if stat == nil && r.rooted[root] {
		return nil, zk.ErrNoNode
	}
	r.rooted[root] = stat != nil
	return r.opts.Interest.Names(), nil
}

// read reads folders and watches them. What it read is in r.folders after it,
// unless it fails.
func (r *reading) read(ctx context.Context, f Format, paths []string) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.opts.ReadAhead)
	for _, p := range paths {
		group.Go(func() error {
			entries, err := r.entries(ctx, f, p)
			if err != nil && !errors.Is(err, registry.ErrRefused) {
				return fmt.Errorf("read %s: %w", p, err)
			}
			g, _ := f.Group(p)
			next := &folder{format: f, group: g, denied: err}
			at := place{f, p}
			mu.Lock()
			old := r.known[at]
			mu.Unlock()
			if err == nil {
				extras, err := r.extras(ctx, old, next, entries)
				if err != nil {
					return fmt.Errorf("read what %s needs: %w", p, err)
				}
				r.decode(next, entries, extras)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil && old != nil {
				next.services = old.services
			}
			r.folders[at] = next
			r.unknown(next)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err //nolint:wrapcheck // each of them names its folder
	}
	root, _ := parts(f)
	for _, p := range paths { // what has an entry has a root
		r.rooted[root] = r.rooted[root] || len(r.folders[place{f, p}].services) > 0
	}
	return nil
}

// unknown tells the table whether a folder could be read: of its group, so
// that nothing is concluded from what was never seen of it, and of the
// services that were.
func (r *reading) unknown(f *folder) {
	r.table.Unknown(f.group.String(), f.denied)
	if _, ok := f.format.(Needy); ok {
		r.table.Unknown(f.group.String()+"/*", f.needed.doubt())
	}
	for _, s := range f.services {
		r.table.Unknown(string(s.Name), f.denied)
	}
}

// decode makes services of entries. What cannot be read is skipped with its
// reason.
func (r *reading) decode(f *folder, entries, extras []registry.Entry) {
	services, faults := f.format.Decode(entries, extras)
	f.services = services
	for _, fault := range faults {
		key := f.group.String() + " " + fault.Entry.Key
		f.skipped = append(f.skipped, key)
		r.table.Skip(key, fault.Err.Error())
	}
}

// rootThere says whether the root of a format went: then a folder that went
// with it is no word of its providers.
func (r *reading) rootThere(ctx context.Context, f Format) error {
	root, _, _ := strings.Cut(f.Folders(), "/*")
	if _, err := r.client.children(ctx, root); errors.Is(err, zk.ErrNoNode) && r.rooted[root] {
		return rootGone(root)
	} else if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("list %s: %w", root, err)
	}
	return nil
}

func rootGone(root string) error {
	return fmt.Errorf("zookeeper: %s: %w: everything stays as it was last seen until it is back", root, ErrRootGone)
}

// entries returns what a folder holds and watches it. A folder that does not
// exist holds nothing.
func (r *reading) entries(ctx context.Context, f Format, p string) ([]registry.Entry, error) {
	names, err := r.client.watchChildren(ctx, p)
	if err != nil {
		if errors.Is(err, zk.ErrNoNode) {
			return nil, r.rootThere(ctx, f)
		}
		return nil, err
	}
	g, _ := f.Group(p)
	out := make([]registry.Entry, 0, len(names))
	own, others := ownNames(f, names)
	for _, name := range others {
		e, _ := f.Entry(g, name, nil)
		out = append(out, e)
	}
	for _, name := range own {
		var data []byte
		if f.HasData() {
			data, err = r.client.watchData(ctx, p+"/"+name)
			if errors.Is(err, zk.ErrNoNode) {
				continue // it went since the folder was listed, and the watch tells of it
			}
			if err != nil {
				return nil, err
			}
		}
		e, _ := f.Entry(g, name, data)
		out = append(out, e)
	}
	slices.SortFunc(out, registry.Entry.Compare)
	return out, nil
}

// ownNames parts the nodes of a folder that a format reads from those that it
// cannot. In a folder without one of its own nothing is of the format.
func ownNames(f Format, names []string) (own, others []string) {
	named, ok := f.(Named)
	if !ok {
		return names, nil
	}
	for _, name := range names {
		if named.Named(name) {
			own = append(own, name)
		} else {
			others = append(others, name)
		}
	}
	if len(own) == 0 {
		others = nil
	}
	return own, others
}

// watchChildren lists a node and watches its children, or where it does not
// exist its creation; the error is then zk.ErrNoNode.
func (c *Client) watchChildren(ctx context.Context, p string) ([]string, error) {
	return call(ctx, c, func(conn conn) ([]string, error) {
		names, _, _, err := conn.ChildrenW(p)
		if !errors.Is(err, zk.ErrNoNode) {
			return names, err
		}
		exists, _, _, err := conn.ExistsW(p)
		if err != nil {
			return nil, err
		}
		if !exists {
			return nil, zk.ErrNoNode
		}
		names, _, _, err = conn.ChildrenW(p) // it came in between
		return names, err
	})
}

func (c *Client) watchData(ctx context.Context, p string) ([]byte, error) {
	return call(ctx, c, func(conn conn) ([]byte, error) {
		data, _, _, err := conn.GetW(p)
		return data, err
	})
}
