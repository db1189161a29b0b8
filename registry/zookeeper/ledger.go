package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A ledger holds tags of our entries, by which they are recognised if another tool removes
// their marks. Each group with entries of this owner has a node
//
//	/xds-bridge/<owner>/ledger/<hash of the group>    the tags of our entries there, 8 bytes each
//
// which is written in the same transaction as the entries. Marks are valid without it: if
// it is missing or damaged, only an entry without a mark becomes foreign.
type ledger struct {
	home    *home
	parents *parentCache
	signer  *metadata.Signer
	log     *slog.Logger

	mu     sync.Mutex
	exists map[registry.Group]bool // whether a group has a node, if known; it may be out of date
	off    bool                    // there is no ledger, or it may not be written
}

func newLedger(h *home, parents *parentCache, opts TargetOptions) *ledger {
	return &ledger{
		home: h, parents: parents, signer: opts.Signer, log: opts.Log,
		exists: make(map[registry.Group]bool), off: opts.Unregistered,
	}
}

// path returns the node of a group. It is a hash, because the names of groups may have any
// length and any characters.
func (l *ledger) path(g registry.Group) string {
	name := strings.Join([]string{g.Kind, g.Namespace, g.Group, g.Name}, "\x00")
	return l.parent() + "/" + metadata.Fingerprint(name, 20)
}

func (l *ledger) parent() string { return l.home.node(ledgerNode) }

// contains reports whether tags contain a tag of an entry.
func (l *ledger) contains(tags []byte, e registry.Entry) bool {
	for _, tag := range l.signer.Tags(e) {
		for stored := range slices.Chunk(tags, metadata.TagLen) {
			if bytes.Equal(stored, tag[:]) {
				return true
			}
		}
	}
	return false
}

// expect notes that a group has a node, because one of our entries was found in it. It keeps
// what is already known.
func (l *ledger) expect(g registry.Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.exists[g]; !known {
		l.exists[g] = true
	}
}

func (l *ledger) set(g registry.Group, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exists[g] = exists
}

// operation returns the operation that stores the tags of entries in the node of a group; nil
// if the ledger is off.
func (l *ledger) operation(g registry.Group, entries []registry.Entry) any {
	l.mu.Lock()
	exists, off := l.exists[g], l.off
	l.mu.Unlock()
	path := l.path(g)
	switch {
	case off:
		return nil
	case len(entries) == 0:
		return &zk.DeleteRequest{Path: path, Version: -1}
	}
	data := make([]byte, 0, len(entries)*metadata.TagLen)
	for _, e := range entries {
		tag := l.signer.Tags(e)[0]
		data = append(data, tag[:]...)
	}
	if exists {
		return &zk.SetDataRequest{Path: path, Data: data, Version: -1}
	}
	return &zk.CreateRequest{Path: path, Data: data, Acl: l.home.acl}
}

// applied handles the success of an operation.
func (l *ledger) applied(g registry.Group, op any) {
	switch op.(type) {
	case *zk.DeleteRequest:
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.exists, g)
	case *zk.CreateRequest:
		l.parents.add(l.parent())
		l.set(g, true)
	}
}

// failed handles the failure of an operation, except for the deletion of a missing node. It
// returns nil if the transaction may succeed at another attempt.
func (l *ledger) failed(g registry.Group, op any, err error) error {
	_, isCreate := op.(*zk.CreateRequest)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		l.set(g, true)
	case errors.Is(err, zk.ErrNoNode) && isCreate:
		l.parents.remove(l.parent())
	case errors.Is(err, zk.ErrNoNode):
		l.set(g, false)
	default:
		return l.giveUp(err)
	}
	return nil
}

// giveUp continues without a ledger if it may not be written, because marks are valid
// without it. It returns any other error.
func (l *ledger) giveUp(err error) error {
	if !errors.Is(err, registry.ErrRefused) {
		return err
	}
	l.mu.Lock()
	before := l.off
	l.off = true
	l.mu.Unlock()
	if !before {
		l.log.Warn("ledger not written; entries whose marks another tool removes will become foreign", "err", err)
	}
	return nil
}

// claimUnmarked makes nodes without an owner ours if they equal our entries except for the
// mark. If another node of the same key has our mark, such a node is ours only if
// replacements overlap; otherwise somebody copied it.
func (r *reader) claimUnmarked(ctx context.Context, nodes []storedNode) error {
	unmarked, marked := r.splitMarked(nodes)
	if len(marked) > 0 {
		r.target.ledger.expect(r.group)
	}
	if len(unmarked) == 0 {
		return nil
	}
	tags, err := r.readLedger(ctx, unmarked)
	if err != nil {
		return err
	}
	for _, n := range unmarked {
		isCopy := marked[n.entry.Key] && r.layout.Replaces() != metadata.Overlapping
		if isCopy || !r.target.ledger.contains(tags, n.entry.Entry) {
			continue
		}
		if err := r.claim(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// splitMarked returns the nodes without an owner, and the keys of the nodes with our mark.
func (r *reader) splitMarked(nodes []storedNode) (unmarked []*storedNode, marked map[string]bool) {
	marked = make(map[string]bool)
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.gone:
		case n.entry.Owner == "":
			unmarked = append(unmarked, n)
		case n.entry.Owner == r.target.owner:
			marked[n.entry.Key] = true
		}
	}
	return unmarked, marked
}

// readLedger returns the tags of the group; none if it has no ledger or the ledger may not
// be read. It fails if a node may not be read either: the node may be ours, written with
// rights that this process lacks.
func (r *reader) readLedger(ctx context.Context, unmarked []*storedNode) ([]byte, error) {
	n, err := r.target.client.get(ctx, r.target.ledger.path(r.group))
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if !errors.Is(err, registry.ErrRefused) {
		return n.data, err
	}
	for _, n := range unmarked {
		if n.denied != nil {
			return nil, fmt.Errorf("%.80q, which may be ours: %w", n.name, n.denied)
		}
	}
	return nil, nil
}

// claim makes a node without a mark ours, unless another session holds it, which then
// registered it.
func (r *reader) claim(ctx context.Context, n *storedNode) error {
	stat, err := r.stat(ctx, n)
	if stat == nil || stat.EphemeralOwner != 0 && stat.EphemeralOwner != r.target.ephemerals.session() {
		return err
	}
	n.entry.Owner = r.target.owner
	n.ownName = r.hasOwnName(n)
	return nil
}
