package zookeeper

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

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

// claimBare makes ours, among the nodes without an owner, those that are what
// we wrote but for the mark. One that is beside the one with the mark is
// the old of a replacement where these overlap, and a copy of somebody's
// elsewhere. Another session's ephemeral node is not: who holds it registered it.
func (t *Target) claimBare(ctx context.Context, group registry.Group, layout Layout, nodes []found) error {
	bare, marked := t.divide(nodes)
	if len(marked) > 0 {
		t.ledger.guess(group)
	}
	if len(bare) == 0 {
		return nil
	}
	ledger, err := t.readLedger(ctx, group, bare)
	if err != nil {
		return err
	}
	for _, f := range bare {
		if marked[f.held.Key] && layout.Replaces() != metadata.Overlapping || !t.tagged(ledger, f.held.Entry) {
			continue
		}
		if err := t.claim(ctx, layout, group, f); err != nil {
			return err
		}
	}
	return nil
}

// divide returns the nodes without an owner, and the keys of those with our
// mark.
func (t *Target) divide(nodes []found) (bare []*found, marked map[string]bool) {
	marked = make(map[string]bool)
	for i := range nodes {
		switch f := &nodes[i]; {
		case f.gone:
		case f.held.Owner == "":
			bare = append(bare, f)
		case f.held.Owner == t.owner:
			marked[f.held.Key] = true
		}
	}
	return bare, marked
}

// readLedger returns the tags of a group, none where it has no ledger or this
// may not be read. Then nodes that are denied too may be ours, and it fails: we
// have not the rights that they were written with.
func (t *Target) readLedger(ctx context.Context, group registry.Group, bare []*found) ([]byte, error) {
	n, err := t.client.get(ctx, t.ledgerPath(group))
	if !errors.Is(err, registry.ErrRefused) {
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return n.data, err
	}
	for _, f := range bare {
		if f.denied != nil {
			return nil, fmt.Errorf("%.80q, which may be ours: %w", f.name, f.denied)
		}
	}
	return nil, nil
}

// tagged reports whether the data of a ledger hold a tag of an entry.
func (t *Target) tagged(data []byte, e registry.Entry) bool {
	for _, tag := range t.opts.Signer.Tags(e) {
		for rest := data; len(rest) >= metadata.TagLen; rest = rest[metadata.TagLen:] {
			if bytes.Equal(rest[:metadata.TagLen], tag[:]) {
				return true
			}
		}
	}
	return false
}

// claim makes a node without a mark ours, unless another session holds it.
func (t *Target) claim(ctx context.Context, layout Layout, group registry.Group, f *found) error {
	stat := f.node.stat
	if stat == nil {
		_, parent, err := t.place(group)
		if err != nil {
			return err
		}
		if stat, err = t.client.exists(ctx, at(parent, f.name)); err != nil {
			return err
		}
		if stat == nil {
			f.gone = true
			return nil
		}
	}
	if stat.EphemeralOwner != 0 && stat.EphemeralOwner != t.ephemeralOwner() {
		return nil
	}
	f.held.Owner = t.owner
	name, _, err := layout.Node(f.held.Entry)
	f.same = err == nil && name == f.name
	return nil
}

// spare makes nodes that a living session holds nobody's to take over: their
// provider would lose them.
func (t *Target) spare(ctx context.Context, parent string, nodes []found) error {
	if t.opts.Adopts == nil {
		return nil
	}
	return t.each(ctx, nodes, func(ctx context.Context, f *found) error {
		if f.held.Owner == t.owner || !t.opts.Adopts(f.held.Owner) {
			return nil
		}
		stat, err := t.client.exists(ctx, parent+"/"+f.name)
		if err != nil {
			return err
		}
		if stat == nil {
			f.gone = true
		} else if stat.EphemeralOwner != 0 {
			f.held.Owner += " (held by a session)"
		}
		return nil
	})
}

// By the ledger an entry of ours is recognised whose mark another tool took off. Of each
// group in which we hold anything there is a node
//
//	/xds-bridge/<owner>/ledger/<hash of the group>    the tags of our entries there, 8 bytes each
//
// that is written in the same transaction as the entries. It only ever adds
// to what the marks say: where it is missing or damaged an entry without a
// mark is nobody's, as it would be without a ledger.
const ledgerParent = "/ledger"

// ledger remembers what is known of the ledger's nodes, so that writing need
// not ask. It may be wrong: the server is the one to say.
type ledger struct {
	mu    sync.Mutex
	nodes map[registry.Group]bool // whether they exist, as far as it is known
	off   bool                    // we may not write it
}

func (l *ledger) has(g registry.Group) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes[g]
}

func (l *ledger) set(g registry.Group, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil {
		l.nodes = make(map[registry.Group]bool)
	}
	l.nodes[g] = exists
}

// guess takes it that a group has a node in which something of ours was found.
func (l *ledger) guess(g registry.Group) {
	l.mu.Lock()
	_, known := l.nodes[g]
	l.mu.Unlock()
	if !known {
		l.set(g, true)
	}
}

// forget drops what is known of a group that holds nothing of ours.
func (l *ledger) forget(g registry.Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, g)
}

// refuse gives the ledger up and reports whether it was kept until then.
func (l *ledger) refuse() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := !l.off
	l.off = true
	return was
}

func (l *ledger) isOff() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.off
}

// ledgerPath returns the node of a group. Names of groups have any length and
// any signs, so that a hash of them stands for them.
func (t *Target) ledgerPath(g registry.Group) string {
	name := strings.Join([]string{g.Kind, g.Namespace, g.Group, g.Name}, "\x00")
	return t.home() + ledgerParent + "/" + metadata.Fingerprint(name, 20)
}

// setAccount says what the ledger has to report with a part of a change: with the
// last one all that is ours from then on, and before that also what still is.
func (w *writing) setAccount(index, parts int) {
	change := w.change.Except(w.refused)
	switch index {
	case parts - 1:
		w.account = append([]registry.Entry{}, change.Want...)
	case 0:
		w.account = slices.Clone(change.Want)
		for _, h := range replaced(change) {
			w.account = append(w.account, h.Entry)
		}
	default:
		w.account = nil
	}
}

// ledgerOp returns the operation that makes the ledger of the group hold what
// it has to; nil where there is nothing to do.
func (w *writing) ledgerOp() any {
	t := w.target
	path, has := t.ledgerPath(w.change.Group), t.ledger.has(w.change.Group)
	switch {
	case w.account == nil, t.ledger.isOff(), len(w.account) == 0 && w.noLedger:
		return nil
	case len(w.account) == 0:
		return &zk.DeleteRequest{Path: path, Version: -1}
	}
	data := make([]byte, 0, len(w.account)*metadata.TagLen)
	for _, e := range w.account {
		tag := t.opts.Signer.Tags(e)[0]
		data = append(data, tag[:]...)
	}
	if has {
		return &zk.SetDataRequest{Path: path, Data: data, Version: -1}
	}
	return &zk.CreateRequest{Path: path, Data: data, Acl: t.acl()}
}

// kept takes note of an operation on the ledger that was done.
func (w *writing) kept(op any) {
	if op == nil {
		return
	}
	switch op.(type) {
	case *zk.DeleteRequest:
		w.target.ledger.forget(w.change.Group)
	case *zk.CreateRequest:
		w.target.parents.know(w.target.home() + ledgerParent)
		w.target.ledger.set(w.change.Group, true)
	}
}

// mendLedger takes note of why an operation on the ledger could not be done,
// nil where the transaction is worth another attempt.
func (w *writing) mendLedger(op any, err error) error {
	t := w.target
	_, isDelete := op.(*zk.DeleteRequest)
	_, isCreate := op.(*zk.CreateRequest)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		t.ledger.set(w.change.Group, true)
		return nil
	case errors.Is(err, zk.ErrNoNode) && isDelete:
		w.noLedger = true
		return nil
	case errors.Is(err, zk.ErrNoNode) && isCreate:
		t.parents.forget(t.home() + ledgerParent)
		return nil
	case errors.Is(err, zk.ErrNoNode):
		t.ledger.set(w.change.Group, false)
		return nil
	}
	return t.giveUpLedger(err)
}

// giveUpLedger continues without a ledger where we may not write it: it only
// adds to what the marks say. It returns any other error.
func (t *Target) giveUpLedger(err error) error {
	if !errors.Is(err, registry.ErrRefused) {
		return err
	}
	if t.ledger.refuse() {
		t.opts.Log.Warn("no ledger is kept: entries whose marks other tools take off will not be known again", "err", err)
	}
	return nil
}
