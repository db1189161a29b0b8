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

// Groups implements registry.Target. It names every parent there may be: one
// that holds nothing, or may not be read, is named as well. One request is
// made for each layout.
func (t *Target) Groups(ctx context.Context) ([]registry.Group, error) {
	var groups []registry.Group
	for _, l := range t.opts.Layouts {
		found, err := t.groups(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", l.Parents(), err)
		}
		groups = append(groups, found...)
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return slices.Compact(groups), nil
}

func (t *Target) groups(ctx context.Context, l Layout) ([]registry.Group, error) {
	before, after, _ := strings.Cut(l.Parents(), "*")
	root := parentOf(before)
	names, err := t.client.children(ctx, root)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	t.parents.know(root)
	var groups []registry.Group
	for _, name := range names {
		if g, ok := l.Group(before + name + after); ok {
			t.parents.know(before + name)
			groups = append(groups, g)
		}
	}
	return groups, nil
}

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

func listSize(names []string) int {
	n := listOverhead
	for _, name := range names {
		n += listed(name)
	}
	return n
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

// beside returns the paths of our nodes in the other parents of a group. Those
// of others are not even read: there may be many, and nothing of them matters.
func (t *Target) beside(ctx context.Context, layout Layout, group registry.Group, from lists) ([]string, error) {
	wide, ok := layout.(MultiPath)
	if !ok {
		return nil, nil
	}
	var paths []string
	for _, parent := range wide.Beside(group) {
		names, err := from.children(ctx, parent)
		if errors.Is(err, zk.ErrNoNode) {
			t.parents.forget(parent)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", parent, err)
		}
		t.parents.know(parent)
		for _, name := range names {
			if _, mark := layout.Entry(group, parent+"/"+name, nil); mark.Owner == t.owner {
				paths = append(paths, parent+"/"+name)
			}
		}
	}
	return paths, nil
}

// withElements adds the elements that come with entries of ours, as far as they are
// in their lists.
func (t *Target) withElements(ctx context.Context, layout Layout, held []registry.Held, from lists) ([]registry.Held, error) {
	wide, ok := layout.(MultiPath)
	if !ok {
		return held, nil
	}
	seen := make(map[string]bool)
	for _, h := range slices.Clone(held) {
		if h.Owner != t.owner {
			continue
		}
		for _, e := range wide.Elements(h.Entry) {
			if seen[e.Key] {
				continue
			}
			seen[e.Key] = true
			path, element := wide.Element(e)
			list, err := splitElements(ctx, from, path)
			if errors.Is(err, registry.ErrRefused) {
				continue // to add the element is refused, and costs that alone
			}
			if err != nil {
				return nil, err
			}
			if slices.Contains(list.elements, element) {
				held = append(held, registry.Held{Entry: e, Owner: t.owner, Live: true})
			}
		}
	}
	slices.SortFunc(held, func(a, b registry.Held) int { return a.Compare(b.Entry) })
	return held, nil
}

// An elementList is a node with elements of many, separated by commas.
type elementList struct {
	there    bool
	data     string
	elements []string
	version  int32
}

func splitElements(ctx context.Context, from lists, path string) (elementList, error) {
	n, err := from.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return elementList{}, nil
	}
	if err != nil {
		return elementList{}, fmt.Errorf("%s: %w", path, err)
	}
	list := elementList{there: true, data: string(n.data), version: n.stat.Version}
	for element := range strings.SplitSeq(list.data, ",") {
		list.elements = append(list.elements, strings.TrimSpace(element))
	}
	return list, nil
}

// foreignEntries remembers which nodes were in the parents of exclusive layouts when
// they were last looked at, and which of them are of another format.
type foreignEntries struct {
	mu   sync.Mutex
	seen map[registry.Group]map[string]error // by the node's name; nil: it does no harm
}

// observe takes in what a parent holds.
func (a *foreignEntries) observe(layout Layout, group registry.Group, nodes []found) {
	exclusive, ok := layout.(Exclusive)
	if !ok {
		return
	}
	seen := make(map[string]error, len(nodes))
	for _, f := range nodes {
		switch {
		case f.gone, strings.HasPrefix(f.name, "/"):
		case f.denied != nil:
			seen[f.name] = nil // its format is unknown
		default:
			seen[f.name] = exclusive.Foreign(f.name, f.node.data)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = make(map[registry.Group]map[string]error)
	}
	a.seen[group] = seen
}

func (a *foreignEntries) of(group registry.Group) map[string]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[group]
}
