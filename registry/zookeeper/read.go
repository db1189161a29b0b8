package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/registry"
)

// readAhead is the number of requests for nodes that are in flight at a time.
const readAhead = 64

// Groups implements registry.Target. It returns every parent, including those that are empty
// or may not be read. It makes one request for each layout, and one for the names of owners.
func (t *Target) Groups(ctx context.Context) ([]registry.Group, error) {
	var groups []registry.Group
	for _, l := range t.opts.Layouts {
		ofLayout, err := t.layoutGroups(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", l.Parents(), err)
		}
		groups = append(groups, ofLayout...)
	}
	if !t.opts.Unregistered {
		t.names.refresh(ctx)
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return slices.Compact(groups), nil
}

func (t *Target) layoutGroups(ctx context.Context, l Layout) ([]registry.Group, error) {
	before, after, _ := strings.Cut(l.Parents(), "*")
	root := parentOf(before)
	names, err := t.children(ctx, root, t.client.query)
	if err != nil {
		return nil, err
	}
	var groups []registry.Group
	for _, name := range names {
		if g, ok := l.Group(before + name + after); ok {
			t.parents.add(before + name)
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// children lists the nodes of a parent; none if it does not exist. It updates the cache of
// parents.
func (t *Target) children(ctx context.Context, parent string, by queryFunc) ([]string, error) {
	n, err := by(ctx, query{path: parent, kind: ofChildren})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		t.parents.remove(parent)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", parent, err)
	}
	t.parents.add(parent)
	return n.children, nil
}

// A queryFunc makes a query, and may watch for changes of the answer.
type queryFunc func(context.Context, query) (node, error)

// A storedNode is one node of a group.
type storedNode struct {
	name    string
	node    node // zero if it was not read, or is denied
	entry   registry.Stored
	ownName bool  // the layout gives the entry's node exactly this name
	gone    bool  // it was deleted after the list
	denied  error // why it may not be read: it is foreign, and its name is in use
}

// Read implements registry.Target. One request lists the parent. A request for each node
// follows only if the layout keeps data, or if our nodes may be ephemeral.
//
// If several nodes have one key, a foreign node keeps the key, and the others are returned
// by their names: our nodes among them are orphans. If replacements of the layout overlap,
// all our nodes keep the key.
func (t *Target) Read(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	t.client.watches.remove(group)
	return t.readBy(ctx, group, t.client.query)
}

func (t *Target) readBy(ctx context.Context, group registry.Group, by queryFunc) ([]registry.Stored, error) {
	at, err := locate(t.opts.Layouts, group)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	r := reader{location: at, target: t, query: by}
	stored, err := r.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	return stored, nil
}

// A reader reads one group.
type reader struct {
	location
	target *Target
	query  queryFunc // for lists and watchData; other data is read without a watch
}

func (r *reader) read(ctx context.Context) ([]registry.Stored, error) {
	ephemeral, err := r.target.ephemerals.possible(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.target.fence.raise(ctx); err != nil {
		return nil, err
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return nil, err
	}
	r.target.foreign.observe(r.location, nodes)
	for i := range nodes {
		r.identify(&nodes[i])
	}
	if err := forEachNode(ctx, nodes, r.watchData); err != nil {
		return nil, err
	}
	if err := r.claimUnmarked(ctx, nodes); err != nil {
		return nil, err
	}
	if ephemeral || r.target.opts.Adopts != nil {
		if err := forEachNode(ctx, nodes, r.checkSession); err != nil {
			return nil, err
		}
	}
	return r.addElements(ctx, r.assignKeys(nodes))
}

// watchData reads the data of a foreign owner's node again with a watch, because its owner
// may mark it as leaving: a list does not show that.
func (r *reader) watchData(ctx context.Context, n *storedNode) (err error) {
	if n.entry.Owner == "" || n.entry.Owner == r.target.owner || !r.layout.HasData() || n.node.stat == nil {
		return nil
	}
	if n.node, err = r.query(ctx, query{path: r.path(n.name), kind: ofData}); err == nil {
		r.identify(n)
	}
	return err
}

// nodes returns the nodes of the group, with their data if the layout keeps any.
func (r *reader) nodes(ctx context.Context) ([]storedNode, error) {
	names, err := r.target.children(ctx, r.parent, r.query)
	if err != nil {
		return nil, err
	}
	size := listOverhead
	for _, name := range names {
		size += listedSize(name)
	}
	r.target.sizes.set(r.group, size)
	further, err := r.furtherNodes(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]storedNode, 0, len(names)+len(further))
	for _, name := range append(names, further...) {
		nodes = append(nodes, storedNode{name: name})
	}
	return nodes, r.load(ctx, r.target.client, nodes)
}

// furtherNodes returns the paths of our nodes in the further parents of the group. Foreign
// nodes there may be many, and do not matter.
func (r *reader) furtherNodes(ctx context.Context) ([]string, error) {
	multi, ok := r.layout.(MultiPath)
	if !ok {
		return nil, nil
	}
	var paths []string
	for _, parent := range multi.OtherParents(r.group) {
		names, err := r.target.children(ctx, parent, r.query)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if _, mark := r.layout.Entry(r.group, parent+"/"+name, nil); mark.Owner == r.target.owner {
				paths = append(paths, parent+"/"+name)
			}
		}
	}
	return paths, nil
}

// load reads the data of nodes if the layout keeps any.
func (l location) load(ctx context.Context, client *Client, nodes []storedNode) error {
	if !l.layout.HasData() {
		return nil
	}
	named, _ := l.layout.(Named)
	return forEachNode(ctx, nodes, func(ctx context.Context, n *storedNode) error {
		if named != nil && !named.Named(n.name) {
			return nil
		}
		return l.loadNode(ctx, client, n)
	})
}

// loadNode reads the data of a node. A node in the group's parent that may not be read is
// denied. Nodes in further parents are ours, so that a refusal is an error.
func (l location) loadNode(ctx context.Context, client *Client, n *storedNode) (err error) {
	n.node, err = client.get(ctx, l.path(n.name))
	if errors.Is(err, registry.ErrRefused) && !inFurtherParent(n.name) {
		n.denied, err = err, nil
	}
	return err
}

// forEachNode makes a request for every node that is not gone. It marks a node as gone if
// the request finds that it does not exist.
func forEachNode(ctx context.Context, nodes []storedNode, request func(context.Context, *storedNode) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for i := range nodes {
		n := &nodes[i]
		if n.gone {
			continue
		}
		g.Go(func() error {
			err := request(ctx, n)
			if errors.Is(err, zk.ErrNoNode) {
				n.gone = true
				return nil
			}
			if err != nil {
				return fmt.Errorf("%.80q: %w", n.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}
