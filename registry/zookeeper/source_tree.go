package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// ErrRootGone means that the root of a format existed and no longer exists.
var ErrRootGone = errors.New("the root was deleted")

func errRootGone(root string) error {
	return fmt.Errorf("zookeeper: %s: %w: its services are kept until it exists again", root, ErrRootGone)
}

// isLocal reports whether an error concerns only a part of the tree, and not the connection.
func isLocal(err error) bool {
	return errors.Is(err, registry.ErrRefused) || errors.Is(err, ErrRootGone)
}

// A root is the part of the tree of one format. Several formats may have the same path.
type root struct {
	format  Format
	path    string // of the node above the parents
	suffix  string // of the paths of parents, after the part that differs
	scope   string // of the names of the services
	existed bool
	logged  bool  // the log has that the root does not exist
	err     error // why the parents cannot be listed
	retries retries
	parents map[string]*parentNode
	groups  map[registry.Group]*parentNode

	reported registry.Reported // whether the whole root is unknown
}

func newRoot(f Format) *root {
	p, suffix := splitPattern(f)
	return &root{
		format: f, path: p, suffix: suffix, scope: f.Place().Scope(),
		parents: make(map[string]*parentNode), groups: make(map[registry.Group]*parentNode),
	}
}

// splitPattern returns the path above the parents of a format, and the suffix of their paths
// after the part that differs.
func splitPattern(f Parents) (root, suffix string) {
	root, suffix, _ = strings.Cut(f.Parents(), "/*")
	return cmp.Or(root, "/"), suffix
}

// parent returns the parent at a path. It adds a parent that is not known.
func (r *root) parent(path string) *parentNode {
	if p := r.parents[path]; p != nil {
		return p
	}
	group, _ := r.format.Group(path)
	p := &parentNode{root: r, path: path, group: group}
	r.parents[path], r.groups[group] = p, p
	return p
}

func (r *root) pathOf(name string) string {
	return strings.TrimSuffix(r.path, "/") + "/" + name + r.suffix
}

func (r *root) nameOf(p *parentNode) string {
	return strings.TrimSuffix(strings.TrimPrefix(p.path, strings.TrimSuffix(r.path, "/")+"/"), r.suffix)
}

func (r *root) has(group registry.Group) bool {
	_, err := r.format.Parent(group)
	return err == nil
}

// A parentNode is the state of one group.
type parentNode struct {
	root  *root
	path  string
	group registry.Group
	content
	retries  retries
	reported registry.Reported
	lost     dependency.Lost
}

// entries returns the entries that nodes of the parent store, in order.
func (p *parentNode) entries(c *content, names []string) []registry.Entry {
	out := make([]registry.Entry, 0, len(names))
	for _, name := range names {
		e, exists := c.nodes[name]
		if !exists && p.root.format.HasData() {
			continue
		}
		if !exists {
			e, _ = p.root.format.Entry(p.group, name, nil)
		}
		out = append(out, e)
	}
	slices.SortFunc(out, registry.Entry.Compare)
	return out
}

// retries counts the attempts to read a root or a parent that is refused. An attempt is
// cheap, unless the answer exceeds the limit: the server sends all of it.
type retries struct {
	failures int // in a row, because of the limit
	next     time.Time
}

// due reports whether to read again after an error; nil: there was none.
func (r *retries) due(err error, now time.Time) bool {
	switch {
	case !errors.Is(err, errOversized):
		*r = retries{}
		return err != nil
	case now.Before(r.next):
		return false
	}
	r.failures++
	r.next = now.Add(registry.Backoff{Min: retryInterval, Max: oversizedInterval}.After(r.failures))
	return true
}

// content is the content of a parent as last read. It is immutable.
type content struct {
	err    error                     // why the parent could not be listed; the nodes are then those of an earlier read
	nodes  map[string]registry.Entry // by name, for formats whose nodes have data
	failed map[string]error          // by name, why a node could not be read; its entry is that of an earlier read
	count  int                       // number of nodes

	// Decoded, for formats without dependencies.
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

// names returns the names of the nodes that the last list reported.
func (c *content) names() []string {
	names := slices.Collect(maps.Keys(c.nodes))
	for name := range c.failed {
		if _, known := c.nodes[name]; !known {
			names = append(names, name)
		}
	}
	return names
}

// A job is a read of a parent.
type job struct {
	parent    *parentNode
	list      bool     // list the parent, and read new nodes
	full      bool     // read all nodes
	nodeNames []string // read these nodes

	content
	rootGone bool
}

// A treeReader reads the tree over one connection, and watches what it reads.
type treeReader struct {
	*watcher
	opts *SourceOptions
}

// parents returns the paths of the parents of a root, and watches for changes of the list.
// With an Interest it returns the paths of its names, whether the parents exist or not.
func (t *treeReader) parents(ctx context.Context, root *root) ([]string, error) {
	names, err := t.names(ctx, root)
	switch {
	case errors.Is(err, zk.ErrNoNode) && root.existed:
		return nil, errRootGone(root.path)
	case errors.Is(err, zk.ErrNoNode):
		if !root.logged {
			root.logged = true
			t.opts.Log.Warn("root does not exist; nothing is read there until a provider registers", "root", root.path)
		}
		return nil, nil
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

// names returns the names of the parents of a root. It fails with zk.ErrNoNode if the root
// does not exist and there is no Interest, or no longer exists.
func (t *treeReader) names(ctx context.Context, root *root) ([]string, error) {
	if t.opts.Interest != nil {
		names := t.opts.Interest.Names() // before the query: if the root cannot be read, they are unknown
		n, err := t.query(ctx, query{path: root.path})
		if err != nil {
			return nil, err
		}
		if n.stat == nil && root.existed {
			return nil, zk.ErrNoNode
		}
		root.existed = n.stat != nil
		return names, nil
	}
	n, err := t.await(ctx, query{path: root.path, kind: ofChildren}, t.query)
	root.existed = root.existed || err == nil
	return n.children, err
}

// read reads a parent. Nodes that may not be read are kept as they were.
func (t *treeReader) read(ctx context.Context, j *job, slots chan struct{}) error {
	p := j.parent
	j.content = p.content
	names := p.names()
	if j.list {
		var err error
		if names, err = t.list(ctx, p); isLocal(err) {
			j.err, j.rootGone = err, errors.Is(err, ErrRootGone)
			return nil
		} else if err != nil {
			return err
		}
		j.err = nil
	}
	if len(names) == 0 && p.count > 0 { // the watch of a deleted root may fire later
		if gone, err := t.isGone(ctx, p.root); gone || err != nil {
			j.rootGone = gone
			return err
		}
	}
	if err := t.load(ctx, j, names, slots); err != nil {
		return err
	}
	if _, dependent := p.root.format.(HasDependencies); !dependent {
		j.services, j.invalid = p.root.format.Decode(p.entries(&j.content, names), nil)
	}
	return nil
}

// list lists a parent and watches it, or watches for its creation if it does not exist.
// Without an Interest, the list of the root reports a parent that is created with the node
// above it.
func (t *treeReader) list(ctx context.Context, p *parentNode) ([]string, error) {
	for {
		n, err := t.query(ctx, query{path: p.path, kind: ofChildren})
		if !errors.Is(err, zk.ErrNoNode) {
			return n.children, err
		}
		above, err := t.client.exists(ctx, parentOf(p.path))
		if err != nil {
			return nil, err
		}
		if above == nil {
			if gone, err := t.isGone(ctx, p.root); gone {
				return nil, errRootGone(p.root.path)
			} else if err != nil {
				return nil, err
			}
		}
		if t.opts.Interest == nil && (above == nil || p.root.suffix == "") {
			return nil, nil
		}
		if created, err := t.query(ctx, query{path: p.path}); created.stat == nil {
			return nil, err
		}
	}
}

// isGone reports whether a root that existed was deleted. Then no provider deregistered
// what was deleted with it.
func (t *treeReader) isGone(ctx context.Context, root *root) (bool, error) {
	stat, err := t.client.exists(ctx, root.path)
	return err == nil && stat == nil && root.existed, err
}

// load sets the content of a job, and reads its nodes if they have data.
func (t *treeReader) load(ctx context.Context, j *job, names []string, slots chan struct{}) error {
	p, format := j.parent, j.parent.root.format
	if j.count = len(names); !format.HasData() {
		return nil
	}
	own, others := ownNames(format, names)
	j.nodes, j.failed = make(map[string]registry.Entry, len(names)), make(map[string]error)
	for _, name := range others {
		j.nodes[name], _ = format.Entry(p.group, name, nil)
	}
	var toRead []string
	for _, name := range own {
		before, known := p.nodes[name]
		if known {
			j.nodes[name] = before
		}
		if !known || j.full || p.failed[name] != nil || slices.Contains(j.nodeNames, name) {
			toRead = append(toRead, name)
		}
	}
	err := t.loadNodes(ctx, j, toRead, slots)
	j.count = len(j.nodes)
	return err
}

func (t *treeReader) loadNodes(ctx context.Context, j *job, names []string, slots chan struct{}) error {
	p := j.parent
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cap(slots))
	for _, name := range names {
		group.Go(func() error {
			slots <- struct{}{}
			n, err := t.query(ctx, query{path: p.path + "/" + name, kind: ofData})
			<-slots
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, zk.ErrNoNode): // the watch of the parent fires, and the next list omits it
				if j.list {
					delete(j.nodes, name)
				}
			case isLocal(err):
				j.failed[name] = err
			case err != nil:
				return err
			default:
				j.nodes[name], _ = p.root.format.Entry(p.group, name, n.data)
			}
			return nil
		})
	}
	return group.Wait()
}

// ownNames splits the nodes of a parent into those that a format reads and others. If no
// node is of the format, there are no others.
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
