package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrRootGone says that the root of a format was there and no longer is.
var ErrRootGone = errors.New("the root has gone")

func rootGone(root string) error {
	return fmt.Errorf("zookeeper: %s: %w: what it held stays as it was last seen until it is back", root, ErrRootGone)
}

// local reports whether an error says something of a part of the tree alone,
// and nothing of the connection.
func local(err error) bool { return errors.Is(err, registry.ErrRefused) || errors.Is(err, ErrRootGone) }

// A root is what one format has in the tree. Several formats may have theirs at
// one node.
type root struct {
	format  Format
	path    string // of the node above the parents
	after   string // what comes after the part of their paths that differs
	scope   string // of the names of the services
	there   bool   // it existed once
	absent  bool   // it never did, and the log says so
	err     error  // why the parents could not be listed
	again   retries
	parents map[string]*parentNode
	groups  map[registry.Group]*parentNode
}

// A parentNode is what is known of one group.
type parentNode struct {
	root  *root
	path  string
	group registry.Group
	content
	again     retries
	published published
}

// retries are the attempts to read what may not be read. One costs little, but
// of what is larger than an answer may be: the server sends all of it.
type retries struct {
	failures int // for that reason, in a row
	at       time.Time
}

// due reports whether to try what fails for a reason again; nil: it does not fail.
func (r *retries) due(err error, now time.Time) bool {
	switch {
	case !errors.Is(err, errOversized):
		*r = retries{}
		return err != nil
	case now.Before(r.at):
		return false
	}
	r.failures++
	r.at = now.Add(registry.Backoff{Min: failedAgain, Max: oversizedAgain}.After(r.failures))
	return true
}

func newRoot(f Format) *root {
	at, after := parts(f)
	r := &root{format: f, path: at, after: after, parents: make(map[string]*parentNode), groups: make(map[registry.Group]*parentNode)}
	group, _ := f.Group(strings.Replace(f.Parents(), "*", "any", 1))
	group.Name = "*"
	r.scope = group.String()
	return r
}

// parts returns the parent above those of a format, and what of their paths
// comes after the part that differs.
func parts(f Parents) (root, after string) {
	root, after, _ = strings.Cut(f.Parents(), "/*")
	return cmp.Or(root, "/"), after
}

// parent returns the parent at a path, a new one where it is not known.
func (r *root) parent(p string) *parentNode {
	if f := r.parents[p]; f != nil {
		return f
	}
	group, _ := r.format.Group(p)
	f := &parentNode{root: r, path: p, group: group}
	r.parents[p], r.groups[group] = f, f
	return f
}

// pathOf returns the path of the parent that a name is of.
func (r *root) pathOf(name string) string {
	return strings.TrimSuffix(r.path, "/") + "/" + name + r.after
}

// nameOf returns the name that stands for a parent.
func (r *root) nameOf(f *parentNode) string {
	return strings.TrimSuffix(strings.TrimPrefix(f.path, strings.TrimSuffix(r.path, "/")+"/"), r.after)
}

// content is what was read of a parent. It is never changed once made.
type content struct {
	err    error                     // why the parent could not be listed; the rest is then as it was
	nodes  map[string]registry.Entry // by name, of formats whose nodes have data
	failed map[string]error          // why nodes could not be read, by name; they are as they were
	count  int                       // nodes

	// What the nodes say, of formats without dependencies.
	services []*registry.Service
	invalid  []metadata.DecodeError
}

// failure returns why a parent, or the first of its nodes, could not be read.
func (c *content) failure() error {
	if c.err != nil || len(c.failed) == 0 {
		return c.err
	}
	name := slices.Min(slices.Collect(maps.Keys(c.failed)))
	return fmt.Errorf("node %.80q: %w", name, c.failed[name])
}

// known returns the names of the nodes that the last list reported.
func (c *content) known() []string {
	names := slices.Collect(maps.Keys(c.nodes))
	for name := range c.failed {
		if _, there := c.nodes[name]; !there {
			names = append(names, name)
		}
	}
	return names
}

// entries returns what the nodes of a parent store, in their order.
func (c *content) entries(f *parentNode, names []string) []registry.Entry {
	out := make([]registry.Entry, 0, len(names))
	for _, name := range names {
		e, there := c.nodes[name]
		switch {
		case there:
			out = append(out, e)
		case !f.root.format.HasData():
			e, _ = f.root.format.Entry(f.group, name, nil)
			out = append(out, e)
		}
	}
	slices.SortFunc(out, registry.Entry.Compare)
	return out
}

// A job is a reading of a parent.
type job struct {
	parent *parentNode
	list   bool     // what is new in it is read
	full   bool     // all of it is
	only   []string // these nodes are

	content
	rootGone bool
}

// list returns the paths of the parents of a root, and watches for others. Of
// what is asked for each is one, whether it exists or not.
func (r *reading) list(ctx context.Context, root *root) ([]string, error) {
	names, err := r.names(ctx, root)
	switch {
	case errors.Is(err, zk.ErrNoNode) && root.there:
		return nil, rootGone(root.path)
	case errors.Is(err, zk.ErrNoNode):
		if !root.absent {
			root.absent = true
			r.opts.Log.Warn("root does not exist; nothing is read there until somebody registers, or root is mended", "root", root.path)
		}
		return nil, nil // nobody has registered anything yet
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", root.path, err)
	}
	var out []string
	for _, name := range names {
		p := root.pathOf(name)
		if _, ok := root.format.Group(p); ok {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (r *reading) names(ctx context.Context, root *root) ([]string, error) {
	if r.opts.Interest != nil {
		there, err := r.exists(ctx, root.path)
		if err != nil {
			return nil, err
		}
		if !there && root.there {
			return nil, zk.ErrNoNode
		}
		root.there = there
		return r.opts.Interest.Names(), nil
	}
	names, err := r.children(ctx, root.path)
	if errors.Is(err, zk.ErrNoNode) {
		there, again := r.exists(ctx, root.path)
		switch {
		case again != nil:
			err = again
		case there: // it came in between
			names, err = r.children(ctx, root.path)
		}
	}
	root.there = root.there || err == nil
	return names, err
}

// read does readings of parents of a root, and keeps what came of them.
func (r *reading) read(ctx context.Context, root *root, jobs []*job) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.opts.ReadAhead)
	slots := make(chan struct{}, r.opts.ReadAhead)
	for _, j := range jobs {
		group.Go(func() error {
			if err := r.look(ctx, j, slots); err != nil {
				return fmt.Errorf("read %s: %w", j.parent.path, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err //nolint:wrapcheck // each of them names its path
	}
	for _, j := range jobs {
		if j.rootGone {
			r.failed(root, rootGone(root.path))
			continue
		}
		j.parent.content = j.content
		root.there = root.there || j.count > 0 // what has an entry has a root
		r.requireDocuments(j.parent)
	}
	return nil
}

// look reads a parent. What may not be read of it stays as it was.
func (r *reading) look(ctx context.Context, j *job, slots chan struct{}) error {
	f := j.parent
	j.content = f.content
	names := f.known()
	if j.list {
		var err error
		if names, err = r.nodes(ctx, f); local(err) {
			j.err, j.rootGone = err, errors.Is(err, ErrRootGone)
			return nil
		} else if err != nil {
			return err
		}
		j.err = nil
	}
	if len(names) == 0 && f.count > 0 { // no watch of the root reports first whether all of it vanished
		if gone, err := r.gone(ctx, f.root); gone || err != nil {
			j.rootGone = gone
			return err
		}
	}
	if err := r.load(ctx, j, names, slots); err != nil {
		return err
	}
	if _, dependent := f.root.format.(HasDependencies); !dependent {
		j.services, j.invalid = f.root.format.Decode(j.entries(f, names), nil)
	}
	return nil
}

// nodes lists a parent and watches it, or for it where it does not exist and so
// holds nothing. Where all parents are listed, the list reports one that comes
// with the node above it.
func (r *reading) nodes(ctx context.Context, f *parentNode) ([]string, error) {
	for {
		names, err := r.children(ctx, f.path)
		if !errors.Is(err, zk.ErrNoNode) {
			return names, err
		}
		above, err := r.client.exists(ctx, path.Dir(f.path))
		if err != nil {
			return nil, err
		}
		if above == nil {
			if gone, err := r.gone(ctx, f.root); gone {
				return nil, rootGone(f.root.path)
			} else if err != nil {
				return nil, err
			}
		}
		if r.opts.Interest == nil && (above == nil || f.root.after == "") {
			return nil, nil
		}
		if came, err := r.exists(ctx, f.path); !came {
			return nil, err
		}
	}
}

// gone reports whether a root that was there is no more: then a parent that went
// with it is no word of its providers.
func (r *reading) gone(ctx context.Context, root *root) (bool, error) {
	stat, err := r.client.exists(ctx, root.path)
	return err == nil && stat == nil && root.there, err
}

// load makes the content of a parent of what its nodes hold. Where nodes have no
// data there is nothing to be read of them.
func (r *reading) load(ctx context.Context, j *job, names []string, slots chan struct{}) error {
	f, format := j.parent, j.parent.root.format
	if j.count = len(names); !format.HasData() {
		return nil
	}
	own, others := ownNames(format, names)
	j.nodes, j.failed = make(map[string]registry.Entry, len(names)), make(map[string]error)
	for _, name := range others {
		j.nodes[name], _ = format.Entry(f.group, name, nil)
	}
	var due []string
	for _, name := range own {
		before, known := f.nodes[name]
		if known {
			j.nodes[name] = before
		}
		if !known || j.full || f.failed[name] != nil || slices.Contains(j.only, name) {
			due = append(due, name)
		}
	}
	err := j.data(ctx, r, due, slots)
	j.count = len(j.nodes)
	return err
}

// data reads nodes of a parent.
func (j *job) data(ctx context.Context, r *reading, names []string, slots chan struct{}) error {
	f := j.parent
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cap(slots))
	for _, name := range names {
		group.Go(func() error {
			slots <- struct{}{}
			n, err := r.get(ctx, f.path+"/"+name)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, zk.ErrNoNode): // the next list is without it, for which the parent's watch fires
				if j.list {
					delete(j.nodes, name)
				}
			case local(err):
				j.failed[name] = err
			case err != nil:
				return err
			default:
				j.nodes[name], _ = f.root.format.Entry(f.group, name, n.data)
			}
			return nil
		})
	}
	return group.Wait() //nolint:wrapcheck // it says what was tried
}

// ownNames parts the nodes of a parent that a format reads from those that it
// cannot. In a parent without one of its own nothing is of the format.
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
