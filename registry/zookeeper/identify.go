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

// rawKey begins the key of an entry that is identified by its node's name: one
// of several nodes with the same key, or one that the layout would not have
// named so. No layout's key begins with it.
const rawKey = "/"

// identify decodes the entry of a node, and finds its owner by its mark.
func (r *reader) identify(n *storedNode) {
	entry, mark := r.layout.Entry(r.group, n.name, n.node.data)
	entry.Group = r.group
	n.entry = registry.Stored{Entry: entry, Owner: r.target.opts.Signer.Owner(entry, mark, r.target.owner), Live: true}
	n.entry.Leaving = mark.Leaving && n.entry.Owner != r.target.owner
	if n.node.stat != nil {
		n.entry.Version = n.node.stat.Mzxid
	}
	n.ownName = n.entry.Owner != r.target.owner || r.hasOwnName(n) // the names of others do not matter
}

func (r *reader) hasOwnName(n *storedNode) bool {
	name, _, err := r.layout.Node(n.entry.Entry)
	return err == nil && name == n.name
}

// stat returns the stat of a node, by a request if its data was not read. A node that
// does not exist any more is recorded as gone.
func (r *reader) stat(ctx context.Context, n *storedNode) (*zk.Stat, error) {
	if n.node.stat != nil {
		return n.node.stat, nil
	}
	stat, err := r.target.client.exists(ctx, r.path(n.name))
	n.gone = err == nil && stat == nil
	return stat, err
}

// checkSession finds out whether a node of ours lives as long as it should, and keeps one
// of a living session from being adopted: its provider would lose it.
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

// assignKeys returns the entries of nodes in their order, each of ours under a key
// of its own, unless one of them replaces the other. A foreign one may have the
// same: the planner decides which of the two yields.
func (r *reader) assignKeys(nodes []storedNode) []registry.Stored {
	overlapping := r.layout.Replaces() == metadata.Overlapping
	if overlapping {
		spreadLeaving(nodes)
	}
	slices.SortFunc(nodes, func(a, b storedNode) int {
		return cmp.Or(strings.Compare(a.entry.Key, b.entry.Key), r.rank(a)-r.rank(b), strings.Compare(a.name, b.name))
	})
	held := make([]registry.Stored, 0, len(nodes))
	last := map[bool]string{true: rawKey, false: rawKey} // by whether it is ours
	for _, n := range nodes {
		if n.gone {
			continue
		}
		ours := n.entry.Owner == r.target.owner
		switch again := n.entry.Key == last[ours]; {
		case !n.ownName, again && (!ours || !overlapping), strings.HasPrefix(n.entry.Key, rawKey):
			n.entry.Key = rawKey + n.name
		default:
			last[ours] = n.entry.Key
		}
		held = append(held, n.entry)
	}
	slices.SortFunc(held, func(a, b registry.Stored) int { return a.Compare(b.Entry) })
	return held
}

// rank orders nodes of one key: a foreign one that stays before all.
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

// spreadLeaving has all nodes of an owner that leaves a key be leaving: the node that says
// so is beside the one before it.
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
