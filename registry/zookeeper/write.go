package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A unit is the operations for one entry, which belong to one transaction.
type unit struct {
	key     string
	ops     []any
	bytes   int  // size of the operations in a request
	grows   int  // by this number of bytes the list of the parent grows
	creates bool // an entry that did not exist
	deletes bool // an entry without storing another one

	// deleteOld deletes the replaced node, which stays next to its replacement if the
	// parent has room for both; nil: there is none.
	deleteOld any
}

func newUnit(key string, grows int, ops ...any) unit {
	u := unit{key: key, ops: ops, grows: grows}
	for _, op := range ops {
		u.bytes += operationSize(op)
	}
	return u
}

// Write implements registry.Target. A change is one transaction, or several if it is large.
// Entries are stored before others are deleted. An entry and the node that it replaces are
// in one transaction. Missing parents are created, and parents are never deleted.
//
// An entry that exceeds a limit of ZooKeeper or its clients is refused without a request.
// An entry is also refused if the server refuses one of its operations.
func (t *Target) Write(ctx context.Context, change registry.Change) error {
	if err := t.write(ctx, change); err != nil {
		return fmt.Errorf("write %s: %w", change.Group, err)
	}
	return nil
}

func (t *Target) write(ctx context.Context, change registry.Change) error {
	at, err := locate(t.opts.Layouts, change.Group)
	if err != nil {
		return err
	}
	if change.Empty() {
		return nil
	}
	if err := t.checkOwners(change); err != nil {
		return err
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	w := &writer{location: at, target: t, change: change, newLists: make(map[string]bool), refused: make(registry.Refused)}
	if w.fenceCheck, err = t.fence.check(ctx); err != nil {
		return err
	}
	if w.versions, err = w.readVersions(ctx); err != nil {
		return err
	}
	units, err := w.plan(ctx)
	if err != nil {
		return err
	}
	w.units = w.fitParent(w.remaining(units))
	parts := splitUnits(w.units)
	for i, part := range parts {
		if err := w.apply(ctx, part, i, len(parts)); err != nil {
			return err
		}
	}
	return w.refused.Err()
}

// checkOwners returns an error if a change deletes or replaces an entry that this owner may
// not change.
func (t *Target) checkOwners(change registry.Change) error {
	for i, h := range change.Replaced() {
		if h.Owner != t.owner && (i < len(change.Delete) || !h.Leaving && !t.opts.adopts(h.Owner)) {
			return fmt.Errorf("%w: entry %q: owned by %q, not by us", registry.ErrRefused, h.Key, h.Owner)
		}
	}
	return nil
}

// prepare waits for admission, and writes the nodes of the home before the first entry of a
// session.
func (t *Target) prepare(ctx context.Context) error {
	if t.opts.Unregistered {
		return nil
	}
	if err := t.admit(ctx); err != nil {
		return err
	}
	session := t.client.State().Session
	if prepared, _ := t.prepared.get(session); prepared {
		return nil
	}
	for _, step := range []func(context.Context) error{t.restrictHome, t.ephemerals.mark, t.storeBridges} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	t.prepared.set(session, true)
	return nil
}

// A writer applies one change.
type writer struct {
	location
	target     *Target
	change     registry.Change
	versions   map[string]int32 // of nodes by name; none if nodes have no data
	newLists   map[string]bool  // paths of element lists that the change creates
	fenceCheck []any            // first operations of each transaction
	units      []unit
	refused    registry.Refused
	noLedger   bool // the group has no node in the ledger to be deleted
}

// readVersions returns, by name, the versions of the nodes that the change replaces or
// deletes. It fails if one of them has changed. Nodes without data cannot change, and are
// left out.
func (w *writer) readVersions(ctx context.Context) (map[string]int32, error) {
	if !w.layout.HasData() {
		return map[string]int32{}, nil
	}
	var olds []storedNode
	for _, h := range w.change.Replaced() {
		if w.isElement(h.Entry) {
			continue
		}
		if name, err := w.nodeName(h); err == nil { // otherwise it is refused later
			olds = append(olds, storedNode{name: name, entry: h})
		}
	}
	err := forEachNode(ctx, olds, func(ctx context.Context, n *storedNode) (err error) {
		n.node, err = w.target.client.get(ctx, w.path(n.name))
		return err
	})
	if err != nil {
		return nil, err
	}
	versions := make(map[string]int32, len(olds))
	for _, n := range olds {
		if n.gone || !w.unchanged(n) {
			return nil, fmt.Errorf("%w: entry %q", registry.ErrConflict, n.entry.Key)
		}
		versions[n.name] = n.node.stat.Version
	}
	return versions, nil
}

// unchanged reports whether a node still stores the entry that the change replaces or
// deletes. An entry that was written and not read since has no version: then its content is
// compared.
func (w *writer) unchanged(n storedNode) bool {
	if n.entry.Version != 0 {
		return n.node.stat.Mzxid == n.entry.Version
	}
	now, _ := w.layout.Entry(n.entry.Group, n.name, n.node.data)
	return now.Value == n.entry.Value
}

// plan returns the operations of the change in the order in which they are applied.
func (w *writer) plan(ctx context.Context) ([]unit, error) {
	var units []unit
	foreign, err := w.foreignNode(ctx)
	if err != nil {
		return nil, err
	}
	for _, put := range w.change.Put {
		u, err := w.store(ctx, put, foreign)
		switch {
		case errors.Is(err, registry.ErrRefused):
			w.refused[put.New.Key] = err
		case err != nil:
			return nil, err
		case len(u.ops) > 0:
			units = append(units, u)
		}
	}
	for _, h := range slices.Backward(w.change.Delete) {
		if w.isElement(h.Entry) {
			continue // an element stays, because others may refer to it
		}
		u, err := w.remove(h)
		if err != nil {
			w.refused[h.Key] = err
			continue
		}
		u = newUnit(h.Key, u.grows, append(w.checkSuccessors(h), u.ops...)...)
		u.deletes = true
		units = append(units, u)
	}
	return units, nil
}

// store returns the unit that stores an entry. Foreign is why no new entry may be stored;
// nil if new entries may be stored.
func (w *writer) store(ctx context.Context, put registry.Write, foreign error) (u unit, err error) {
	switch {
	case foreign != nil && put.Adds():
		return unit{}, foreign
	case w.isElement(put.New):
		u, err = w.addElement(ctx, put.New)
	default:
		u, err = w.put(put)
	}
	for _, op := range u.ops {
		if err := checkSize(op); err != nil {
			return unit{}, err
		}
	}
	return u, err
}

// replacesNothing reports whether an entry replaces no node: there is none, or it belongs to
// another owner, which will delete it.
func (w *writer) replacesNothing(put registry.Write) bool {
	return put.Old == nil || put.Old.Leaving && w.layout.Replaces() == metadata.Overlapping
}

// put returns the unit that stores an entry in its own node.
func (w *writer) put(put registry.Write) (unit, error) {
	name, data, err := w.layout.Node(put.New)
	if err != nil {
		return unit{}, fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	if err := w.checkName(name); err != nil {
		return unit{}, err
	}
	key, path := put.New.Key, w.path(name)
	create := w.create(path, data)
	if w.replacesNothing(put) {
		u := newUnit(key, listedSize(name), create...)
		u.creates = true
		return u, nil
	}
	old, err := w.remove(*put.Old)
	if err != nil {
		return unit{}, err
	}
	switch oldPath := old.ops[0].(*zk.DeleteRequest).Path; {
	case oldPath != path && put.KeepOld:
		u := newUnit(key, listedSize(name), create...)
		u.deleteOld = old.ops[0]
		return u, nil
	case oldPath != path:
		return newUnit(key, listedSize(name)+old.grows, append(create, old.ops[0])...), nil
	case !put.Old.Live, w.layout.Replaces() == metadata.Recreated:
		return newUnit(key, 0, append(old.ops, create...)...), nil
	case !w.layout.HasData():
		return unit{}, nil // the name is the whole entry, and exists
	default:
		return newUnit(key, 0, &zk.SetDataRequest{Path: path, Data: data, Version: w.version(name)}), nil
	}
}

// create returns the operations that create a node. A node with data is created empty and
// then set, so that its version differs from that of a node that another process has just
// created in its place. Later operations name the version, so that they change only ours.
func (w *writer) create(path string, data []byte) []any {
	ops := []any{&zk.CreateRequest{Path: path, Acl: w.target.home.acl, Flags: w.target.ephemerals.flags()}}
	if w.layout.HasData() {
		ops = append(ops, &zk.SetDataRequest{Path: path, Data: data})
	}
	return ops
}

// created returns the data of the node that a unit creates, and the unit's other operations.
func (w *writer) created(u unit) (data []byte, others []any) {
	if !w.layout.HasData() {
		return nil, u.ops[1:]
	}
	return u.ops[1].(*zk.SetDataRequest).Data, u.ops[2:] //nolint:forcetypeassert // by create
}

// remove returns the unit that deletes the node of an entry.
func (w *writer) remove(h registry.Stored) (unit, error) {
	name, err := w.nodeName(h)
	if err != nil {
		return unit{}, err
	}
	return newUnit(h.Key, -listedSize(name), &zk.DeleteRequest{Path: w.path(name), Version: w.version(name)}), nil
}

// checkSuccessors returns operations that check whether the replacements of a deleted entry
// exist, if replacements overlap.
func (w *writer) checkSuccessors(h registry.Stored) []any {
	if w.layout.Replaces() != metadata.Overlapping {
		return nil
	}
	var ops []any
	want := w.change.Want
	i, _ := slices.BinarySearchFunc(want, h.Entry, registry.Entry.Compare)
	for ; i < len(want) && want[i].Key == h.Key; i++ {
		if name, _, err := w.layout.Node(want[i]); err == nil {
			ops = append(ops, &zk.CheckVersionRequest{Path: w.path(name), Version: -1})
		}
	}
	return ops
}

// version returns the expected version of a node; -1 for any.
func (w *writer) version(name string) int32 {
	if v, ok := w.versions[name]; ok {
		return v
	}
	return -1
}
