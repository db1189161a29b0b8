package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// readAhead is how many requests for the nodes of one parent are under way at
// a time.
const readAhead = 64

// rawKey begins the key of an entry that stands for a node by its name: one
// of several nodes with the same key, or one that the layout would not have
// named so. No layout's key begins with it.
const rawKey = "/"

// found is one node of a parent.
type found struct {
	name string
	node node // zero where it was not asked for, or is denied
	gone bool // since the parent was listed
	held registry.Held
	same bool // the layout names the entry's node exactly so

	denied error // why it may not be read: it is somebody's, and its name is taken
}

// unread reports whether nothing can be said of what a node holds.
func (f *found) unread() bool { return f.gone || f.denied != nil }

// Read implements registry.Target: one request lists the parent, and one more
// for each node is made only where the layout keeps data, or where nodes of
// ours may be ephemeral.
//
// Of several nodes with one key, a foreign one has it, and the others are
// reported by their names: ours among them are left over. Of a layout whose
// replacements overlap all of ours have it.
func (t *Target) Read(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	t.client.watching.end(group)
	return t.readBy(ctx, group, t.client)
}

// lists are read of a group: the nodes of its parents, and the words of nodes.
type lists interface {
	children(ctx context.Context, path string) ([]string, error)
	get(ctx context.Context, path string) (node, error)
}

func (t *Target) readBy(ctx context.Context, group registry.Group, from lists) ([]registry.Held, error) {
	held, err := t.read(ctx, group, from)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	return held, nil
}

func (t *Target) read(ctx context.Context, group registry.Group, from lists) ([]registry.Held, error) {
	layout, parent, err := t.place(group)
	if err != nil {
		return nil, err
	}
	ephemeral, err := t.mayBeEphemeral(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.raise(ctx); err != nil {
		return nil, err
	}
	nodes, err := t.nodes(ctx, layout, group, parent, from)
	if err != nil {
		return nil, err
	}
	t.foreign.observe(layout, group, nodes)
	for i := range nodes {
		t.identify(layout, group, &nodes[i])
	}
	if err := t.claimBare(ctx, group, layout, nodes); err != nil {
		return nil, err
	}
	if err := t.spare(ctx, parent, nodes); err != nil {
		return nil, err
	}
	if ephemeral {
		err = t.each(ctx, nodes, func(ctx context.Context, f *found) error { return t.inspect(ctx, parent, f) })
	}
	if err != nil {
		return nil, err
	}
	held := t.assemble(layout, nodes)
	return t.withElements(ctx, layout, held, from)
}

// nodes returns the nodes of a group with what they hold, as far as its layout
// looks at that.
func (t *Target) nodes(ctx context.Context, layout Layout, group registry.Group, parent string, from lists) ([]found, error) {
	names, err := t.list(ctx, group, parent, from)
	if err != nil {
		return nil, err
	}
	beside, err := t.beside(ctx, layout, group, from)
	if err != nil {
		return nil, err
	}
	names = append(names, beside...)
	nodes := make([]found, len(names))
	for i, name := range names {
		nodes[i].name = name
	}
	return nodes, t.load(ctx, layout, parent, nodes)
}

// list returns the names of the nodes in the parent of a group.
func (t *Target) list(ctx context.Context, group registry.Group, parent string, from lists) ([]string, error) {
	names, err := from.children(ctx, parent)
	if errors.Is(err, zk.ErrNoNode) {
		t.parents.forget(parent)
		t.sizes.set(group, listOverhead)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", parent, err)
	}
	t.parents.know(parent)
	t.sizes.set(group, listSize(names))
	return names, nil
}

// load reads the data of the nodes, where the layout has them have any.
func (t *Target) load(ctx context.Context, layout Layout, parent string, nodes []found) error {
	if !layout.HasData() {
		return nil
	}
	named, _ := layout.(Named)
	return t.each(ctx, nodes, func(ctx context.Context, f *found) (err error) {
		if named == nil || named.Named(f.name) {
			err = t.get(ctx, parent, f)
		}
		return err
	})
}

// get reads a node of a parent. One that may not be read costs itself alone;
// what lies beside the parent is ours.
func (t *Target) get(ctx context.Context, parent string, f *found) (err error) {
	f.node, err = t.client.get(ctx, at(parent, f.name))
	if errors.Is(err, registry.ErrRefused) && !strings.HasPrefix(f.name, "/") {
		f.denied, err = err, nil
	}
	return err
}

func listSize(names []string) int {
	n := listOverhead
	for _, name := range names {
		n += listed(name)
	}
	return n
}

// each asks for something about every node that is not gone; one that is gone
// by now is marked so.
func (*Target) each(ctx context.Context, nodes []found, ask func(context.Context, *found) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for i := range nodes {
		f := &nodes[i]
		if f.gone {
			continue
		}
		g.Go(func() error {
			err := ask(ctx, f)
			if errors.Is(err, zk.ErrNoNode) {
				f.gone = true
				return nil
			}
			if err != nil {
				return fmt.Errorf("%.80q: %w", f.name, err)
			}
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // each error is wrapped above
}

// identify reports what a node stores, and whose it is.
func (t *Target) identify(layout Layout, group registry.Group, f *found) {
	entry, mark := layout.Entry(group, f.name, f.node.data)
	entry.Group = group
	f.held = registry.Held{Entry: entry, Owner: t.opts.Signer.Owner(entry, mark, t.owner), Live: true}
	if f.node.stat != nil {
		f.held.Version = f.node.stat.Mzxid
	}
	if f.held.Owner != t.owner {
		f.same = true // never written by us, so its name does not matter
		return
	}
	name, _, err := layout.Node(entry)
	f.same = err == nil && name == f.name
}

// inspect finds out whether a node of ours lives as long as it should.
func (t *Target) inspect(ctx context.Context, parent string, f *found) error {
	if f.held.Owner != t.owner {
		return nil
	}
	stat := f.node.stat
	if stat == nil {
		var err error
		if stat, err = t.client.exists(ctx, at(parent, f.name)); err != nil {
			return err
		}
		if stat == nil {
			f.gone = true
			return nil
		}
	}
	f.held.Live = stat.EphemeralOwner == t.ephemeralOwner()
	return nil
}

// ephemeralOwner returns the session that holds what the target writes now; 0
// where none does.
func (t *Target) ephemeralOwner() int64 {
	if t.opts.Lifetime == Persistent {
		return 0
	}
	return t.client.State().Session
}

// assemble returns what the nodes hold in their order, each of ours under a key
// of its own, unless one of them replaces the other. A foreign one may have the
// same: which of the two has to yield is for the planner to say.
func (t *Target) assemble(layout Layout, nodes []found) []registry.Held {
	overlapping := layout.Replaces() == metadata.Overlapping
	slices.SortFunc(nodes, func(a, b found) int {
		return cmp.Or(strings.Compare(a.held.Key, b.held.Key), t.rank(a)-t.rank(b), strings.Compare(a.name, b.name))
	})
	held := make([]registry.Held, 0, len(nodes))
	last := map[bool]string{true: rawKey, false: rawKey} // by whether it is ours
	for _, f := range nodes {
		if f.gone {
			continue
		}
		ours := f.held.Owner == t.owner
		switch again := f.held.Key == last[ours]; {
		case !f.same, again && (!ours || !overlapping), strings.HasPrefix(f.held.Key, rawKey):
			f.held.Key = rawKey + f.name
		default:
			last[ours] = f.held.Key
		}
		held = append(held, f.held)
	}
	slices.SortFunc(held, func(a, b registry.Held) int { return a.Compare(b.Entry) })
	return held
}

// rank orders nodes of one key: a foreign one before all.
func (t *Target) rank(f found) int {
	switch {
	case f.held.Owner != t.owner:
		return 0
	case !f.same:
		return 3
	case !f.held.Live:
		return 2
	default:
		return 1
	}
}
