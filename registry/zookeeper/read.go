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

// readAhead is how many requests for nodes are in flight at a time.
const readAhead = 64

// Groups implements registry.Target. It returns every parent, those that are empty
// or may not be read included, by one request for each layout, and one for the names of
// owners.
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

// children lists the nodes of a parent, none if it does not exist, and records whether it does.
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

// A queryFunc makes queries, and may watch for changes of the answers.
type queryFunc func(context.Context, query) (node, error)

// A storedNode is one node of a group.
type storedNode struct {
	name    string
	node    node // zero if it was not read, or is denied
	entry   registry.Stored
	ownName bool  // the layout gives the entry's node exactly this name
	gone    bool  // since the parent was listed
	denied  error // why it may not be read: it is foreign, and its name is in use
}

// Read implements registry.Target: one request lists the parent. One more for each
// node follows only if the layout keeps data, or if nodes of ours may be ephemeral.
//
// Of several nodes with one key, a foreign one has it, and the others are
// reported by their names: ours among them are orphans. If replacements of the
// layout overlap, all of ours have the key.
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
	held, err := r.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	return held, nil
}

// A reader reads one group.
type reader struct {
	location
	target *Target
	query  queryFunc // of lists; data of nodes is read without a watch, but for watchData
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
	if err := each(ctx, nodes, r.watchData); err != nil {
		return nil, err
	}
	if err := r.claimUnmarked(ctx, nodes); err != nil {
		return nil, err
	}
	if ephemeral || r.target.opts.Adopts != nil {
		if err := each(ctx, nodes, r.checkSession); err != nil {
			return nil, err
		}
	}
	return r.addElements(ctx, r.assignKeys(nodes))
}

// watchData reads once more, with a watch, the data of a node by which another owner says
// that it leaves: no list shows that.
func (r *reader) watchData(ctx context.Context, n *storedNode) (err error) {
	if n.entry.Owner == "" || n.entry.Owner == r.target.owner || !r.layout.HasData() || n.node.stat == nil {
		return nil
	}
	if n.node, err = r.query(ctx, query{path: r.path(n.name), kind: ofData}); err == nil {
		r.identify(n)
	}
	return err
}

// nodes returns the nodes of the group, with their data if the layout has any.
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

// furtherNodes returns the paths of our nodes in the further parents of the group.
// Foreign ones are not read: there may be many, and nothing of them matters.
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

// load reads the data of nodes, if the layout keeps any.
func (l location) load(ctx context.Context, client *Client, nodes []storedNode) error {
	if !l.layout.HasData() {
		return nil
	}
	named, _ := l.layout.(Named)
	return each(ctx, nodes, func(ctx context.Context, n *storedNode) error {
		if named != nil && !named.Named(n.name) {
			return nil
		}
		return l.loadNode(ctx, client, n)
	})
}

// loadNode reads a node. One in the group's parent that may not be read fails nothing
// else; those in further parents are ours.
func (l location) loadNode(ctx context.Context, client *Client, n *storedNode) (err error) {
	n.node, err = client.get(ctx, l.path(n.name))
	if errors.Is(err, registry.ErrRefused) && !inFurtherParent(n.name) {
		n.denied, err = err, nil
	}
	return err
}

// each makes a request about every node that is not gone. A node that does not
// exist any more is recorded as gone.
func each(ctx context.Context, nodes []storedNode, request func(context.Context, *storedNode) error) error {
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
