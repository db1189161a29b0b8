package zookeeper

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// rawKey begins the key of an entry that is identified by the name of its node: if several
// nodes have the same key, or if the layout gives the node another name. No key of a layout
// begins with it.
const rawKey = "/"

// identify decodes the entry of a node, and finds its owner by the mark.
func (r *reader) identify(n *storedNode) {
	entry, mark := r.layout.Entry(r.group, n.name, n.node.data)
	entry.Group = r.group
	n.entry = registry.Stored{Entry: entry, Owner: r.target.opts.Signer.Owner(entry, mark, r.target.owner), Live: true}
	n.entry.Leaving = mark.Leaving && n.entry.Owner != r.target.owner
	if n.node.stat != nil {
		n.entry.Version = n.node.stat.Mzxid
	}
	n.ownName = n.entry.Owner != r.target.owner || r.hasOwnName(n) // names matter only for our nodes
}

// hasOwnName reports whether the layout gives the entry's node exactly the node's name.
func (r *reader) hasOwnName(n *storedNode) bool {
	name, _, err := r.layout.Node(n.entry.Entry)
	return err == nil && name == n.name
}

// stat returns the stat of a node, by a request if its data was not read. It marks a node
// that no longer exists as gone.
func (r *reader) stat(ctx context.Context, n *storedNode) (*zk.Stat, error) {
	if n.node.stat != nil {
		return n.node.stat, nil
	}
	stat, err := r.target.client.exists(ctx, r.path(n.name))
	n.gone = err == nil && stat == nil
	return stat, err
}

// checkSession marks one of our nodes as not live if another session holds it. It keeps the
// node of a live session from being adopted, because its provider would lose it.
func (r *reader) checkSession(ctx context.Context, n *storedNode) error {
	ours := n.entry.Owner == r.target.owner
	if !ours && !r.target.opts.adopts(n.entry.Owner) {
		return nil
	}
	stat, err := r.stat(ctx, n)
	switch {
	case stat == nil:
	case ours:
		n.entry.Live = stat.EphemeralOwner == r.target.ephemerals.session()
	case stat.EphemeralOwner != 0:
		n.entry.Owner += " (held by a session)"
	}
	return err
}

// assignKeys returns the entries of nodes in order. Each of our entries has its own key,
// unless one of them replaces the other. A foreign entry may have the same key: the planner
// decides which of the two yields.
func (r *reader) assignKeys(nodes []storedNode) []registry.Stored {
	overlapping := r.layout.Replaces() == metadata.Overlapping
	if overlapping {
		spreadLeaving(nodes)
	}
	slices.SortFunc(nodes, func(a, b storedNode) int {
		return cmp.Or(strings.Compare(a.entry.Key, b.entry.Key), r.rank(a)-r.rank(b), strings.Compare(a.name, b.name))
	})
	stored := make([]registry.Stored, 0, len(nodes))
	lastKey := map[bool]string{true: rawKey, false: rawKey} // of our nodes, and of others
	for _, n := range nodes {
		if n.gone {
			continue
		}
		ours := n.entry.Owner == r.target.owner
		switch again := n.entry.Key == lastKey[ours]; {
		case !n.ownName, again && (!ours || !overlapping), strings.HasPrefix(n.entry.Key, rawKey):
			n.entry.Key = rawKey + n.name
		default:
			lastKey[ours] = n.entry.Key
		}
		stored = append(stored, n.entry)
	}
	slices.SortFunc(stored, func(a, b registry.Stored) int { return a.Compare(b.Entry) })
	return stored
}

// rank orders the nodes of one key. A foreign node that stays comes first.
func (r *reader) rank(n storedNode) int {
	switch {
	case n.entry.Leaving:
		return 1
	case n.entry.Owner != r.target.owner:
		return 0
	case !n.ownName:
		return 4
	case !n.entry.Live:
		return 3
	default:
		return 2
	}
}

// spreadLeaving marks all nodes of an owner under a key as leaving if one of them is: that
// node may exist next to the node that it replaces.
func spreadLeaving(nodes []storedNode) {
	type place struct{ key, owner string }
	leaving := make(map[place]bool)
	for _, n := range nodes {
		if n.entry.Leaving {
			leaving[place{n.entry.Key, n.entry.Owner}] = true
		}
	}
	for i := range nodes {
		h := &nodes[i].entry
		h.Leaving = leaving[place{h.Key, h.Owner}]
	}
}
