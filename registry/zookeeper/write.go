package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// unit is a part of a change that must not be torn apart: the operations for
// one entry.
type unit struct {
	key     string
	ops     []any
	bytes   int  // that the operations take in a request
	grows   int  // how many bytes longer the list of the parent becomes
	fresh   bool // an entry that was not there before
	deletes bool // an entry, and stores none in its place
	old     any  // deletes the node that is to stay beside the new one, where the parent has room for both; nil: none
}

// Write implements registry.Target. A change is one transaction, or several
// where it is large: what is stored comes before what is deleted, and an
// entry and what it replaces stay together. Parent znodes are made where they are
// missing and never deleted.
//
// An entry that ZooKeeper or its clients would not bear is refused unsent, and
// so is one of whose operations the server says that it refuses them.
func (t *Target) Write(ctx context.Context, change registry.Change) error {
	if err := t.write(ctx, change); err != nil {
		return fmt.Errorf("write %s: %w", change.Group, err)
	}
	return nil
}

func (t *Target) write(ctx context.Context, change registry.Change) error {
	layout, parent, err := t.place(change.Group)
	if err != nil {
		return err
	}
	if change.Empty() {
		return nil
	}
	if err := t.checkOwners(change); err != nil {
		return err
	}
	if err := t.ready(ctx); err != nil {
		return err
	}
	check, err := t.fence(ctx)
	if err != nil {
		return err
	}
	versions, err := t.versions(ctx, layout, parent, change)
	if err != nil {
		return err
	}
	w := &writing{
		target: t, layout: layout, parent: parent, change: change, versions: versions, check: check,
		elements: make(map[string]bool), refused: make(registry.Refused),
	}
	units, err := w.units(ctx)
	if err != nil {
		return err
	}
	w.all = w.fit(w.remaining(units))
	parts := split(w.all)
	for i, part := range parts {
		if err := w.apply(ctx, part, i, len(parts)); err != nil {
			return err
		}
	}
	return w.refused.Err()
}

// checkOwners returns an error for a change of what is not ours.
func (t *Target) checkOwners(change registry.Change) error {
	for _, h := range change.Delete {
		if h.Owner != t.owner {
			return fmt.Errorf("%w: entry %q: owned by %q, not by us", registry.ErrRefused, h.Key, h.Owner)
		}
	}
	for _, w := range change.Put {
		adopts := t.opts.Adopts != nil && w.Old != nil && t.opts.Adopts(w.Old.Owner)
		if w.Old != nil && w.Old.Owner != t.owner && !adopts {
			return fmt.Errorf("%w: entry %q: owned by %q, not by us", registry.ErrRefused, w.Old.Key, w.Old.Owner)
		}
	}
	return nil
}

// ready does what has to come before a first write.
func (t *Target) ready(ctx context.Context) error {
	if t.opts.Unregistered { // whose sessions say which process an entry is of
		return nil
	}
	for _, step := range []func(context.Context) error{t.admit, t.tighten, t.markSession, t.remember} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// versions returns the versions of the nodes that the change replaces or
// deletes, by name, after a look that they are still what was held. Where
// nodes have no data the name says it all, and there is none.
func (t *Target) versions(ctx context.Context, layout Layout, parent string, change registry.Change) (map[string]int32, error) {
	if !layout.HasData() {
		return map[string]int32{}, nil
	}
	var olds []found
	for _, h := range replaced(change) {
		if isElement(layout, h.Entry) {
			continue
		}
		if name, err := nodeName(layout, h); err == nil { // or it is refused
			olds = append(olds, found{name: name, held: h})
		}
	}
	err := t.each(ctx, olds, func(ctx context.Context, f *found) (err error) {
		f.node, err = t.client.get(ctx, at(parent, f.name))
		return err
	})
	if err != nil {
		return nil, err
	}
	versions := make(map[string]int32, len(olds))
	for _, f := range olds {
		if f.gone || !unchanged(layout, f) {
			return nil, fmt.Errorf("%w: entry %q", registry.ErrConflict, f.held.Key)
		}
		versions[f.name] = f.node.stat.Version
	}
	return versions, nil
}

// unchanged reports whether a node still is what was held. What was written
// and not read since has no version: then its content is compared.
func unchanged(layout Layout, f found) bool {
	if f.held.Version != 0 {
		return f.node.stat.Mzxid == f.held.Version
	}
	now, _ := layout.Entry(f.held.Group, f.name, f.node.data)
	return now.Value == f.held.Value
}

func replaced(change registry.Change) []registry.Held {
	out := slices.Clone(change.Delete)
	for _, w := range change.Put {
		if w.Old != nil {
			out = append(out, *w.Old)
		}
	}
	return out
}

// nodeName returns the name of the node that holds an entry.
func nodeName(layout Layout, h registry.Held) (string, error) {
	if name, ok := strings.CutPrefix(h.Key, rawKey); ok {
		return name, nil
	}
	name, _, err := layout.Node(h.Entry)
	if err != nil {
		return "", fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	return name, nil
}

// writing is the state of one Write.
type writing struct {
	target   *Target
	layout   Layout
	parent   string
	change   registry.Change
	versions map[string]int32 // by name; no version where the name says it all
	elements map[string]bool  // paths of lists of words that are made
	check    []any            // goes before everything else: that we still may
	all      []unit
	refused  registry.Refused
	account  []registry.Entry // what the ledger has to report with the next transaction; nil where it is to stay as it is
	noLedger bool             // there is no node of the ledger that could be deleted
}

// name returns the name of a node by its path.
func (w *writing) name(path string) string {
	if parentOf(path) != w.parent {
		return path
	}
	return path[len(w.parent)+1:]
}

// units turns a change into operations, in the order they are to be applied.
func (w *writing) units(ctx context.Context) ([]unit, error) {
	var units []unit
	foreign, err := w.foreign(ctx)
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
		if isElement(w.layout, h.Entry) {
			continue // nobody knows who refers to it by now: a text stays
		}
		u, err := w.drop(h)
		if err != nil {
			w.refused[h.Key] = err
			continue
		}
		u = w.unit(h.Key, u.grows, append(w.successors(h, w.change.Want), u.ops...)...)
		u.deletes = true
		units = append(units, u)
	}
	return units, nil
}

// foreign returns why nothing may be added to the parent. It is listed for
// that, and what is new in it is read: the parent of a group that was not
// there before is written to without a reading.
func (w *writing) foreign(ctx context.Context) (foreign, err error) {
	exclusive, ok := w.layout.(Exclusive)
	if !ok || !slices.ContainsFunc(w.change.Put, func(p registry.Write) bool { return p.Old == nil }) {
		return nil, nil
	}
	names, err := w.target.client.children(ctx, w.parent)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.parent, err)
	}
	seen := w.target.foreign.of(w.change.Group)
	var fresh []found
	for _, name := range names {
		if reason, known := seen[name]; reason != nil {
			return errForeign(name, reason), nil
		} else if !known {
			fresh = append(fresh, found{name: name})
		}
	}
	if err := w.target.load(ctx, w.layout, w.parent, fresh); err != nil {
		return nil, err
	}
	for _, f := range fresh {
		if f.unread() {
			continue
		}
		if reason := exclusive.Foreign(f.name, f.node.data); reason != nil {
			return errForeign(f.name, reason), nil
		}
	}
	return nil, nil
}

func errForeign(name string, reason error) error {
	return fmt.Errorf("%w: the parent znode holds %.80q, which %w: give one of the two formats another root or service name", registry.ErrRefused, name, reason)
}

// store returns what stores an entry. Foreign is why nothing new may be stored;
// nil where it may.
func (w *writing) store(ctx context.Context, put registry.Write, foreign error) (u unit, err error) {
	switch {
	case foreign != nil && put.Old == nil:
		return unit{}, foreign
	case isElement(w.layout, put.New):
		u, err = w.addElement(ctx, put.New)
	default:
		u, err = w.put(put)
	}
	for _, op := range u.ops {
		if n := size(op); n > w.target.opts.DataLimit {
			return unit{}, fmt.Errorf("%w: a node of %d bytes, the limit is %d", registry.ErrRefused, n, w.target.opts.DataLimit)
		}
	}
	return u, err
}

// addElement returns what adds a element to its list if the list is still as it was
// read; nothing where the element is there.
func (w *writing) addElement(ctx context.Context, e registry.Entry) (unit, error) {
	path, element := w.layout.(MultiPath).Element(e)
	if err := checkName(path[strings.LastIndexByte(path, '/')+1:]); err != nil {
		return unit{}, err
	}
	list, err := splitElements(ctx, w.target.client, path)
	switch {
	case err != nil:
		return unit{}, err
	case slices.Contains(list.elements, element):
		return unit{}, nil
	case !list.there:
		w.elements[path] = true
		return w.unit(e.Key, 0, &zk.CreateRequest{Path: path, Data: []byte(element), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagPersistent}), nil
	}
	text := element
	if strings.Trim(list.data, ", ") != "" {
		text = strings.TrimRight(list.data, ", ") + "," + element
	}
	return w.unit(e.Key, 0, &zk.SetDataRequest{Path: path, Data: []byte(text), Version: list.version}), nil
}

// successors returns operations that check that what replaced an entry is
// there.
func (w *writing) successors(h registry.Held, want []registry.Entry) []any {
	if w.layout.Replaces() != metadata.Overlapping {
		return nil
	}
	var ops []any
	for i, _ := slices.BinarySearchFunc(want, h.Entry, registry.Entry.Compare); i < len(want) && want[i].Key == h.Key; i++ {
		if name, _, err := w.layout.Node(want[i]); err == nil {
			ops = append(ops, &zk.CheckVersionRequest{Path: at(w.parent, name), Version: -1})
		}
	}
	return ops
}

func (w *writing) put(put registry.Write) (unit, error) {
	name, data, err := w.layout.Node(put.New)
	if err != nil {
		return unit{}, fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	if err := checkNode(w.layout, name); err != nil {
		return unit{}, err
	}
	key, path := put.New.Key, at(w.parent, name)
	create := w.create(path, data)
	if put.Old == nil {
		return w.unit(key, listed(name), create...).asFresh(), nil
	}
	old, err := w.drop(*put.Old)
	if err != nil {
		return unit{}, err
	}
	switch oldPath := old.ops[0].(*zk.DeleteRequest).Path; {
	case oldPath != path && put.Beside:
		return w.unit(key, listed(name), create...).beside(old.ops[0]), nil
	case oldPath != path:
		return w.unit(key, listed(name)+old.grows, append(create, old.ops[0])...), nil
	case !put.Old.Live, w.layout.Replaces() == metadata.Recreated:
		return w.unit(key, 0, append(old.ops, create...)...), nil
	case !w.layout.HasData():
		return unit{}, nil // the name is all there is, and it is there
	default:
		return w.unit(key, 0, &zk.SetDataRequest{Path: path, Data: data, Version: w.version(name)}), nil
	}
}

// create returns the operations that make a node. One with data is made empty
// and then set, so that its version is never that of a node which another has
// just made in its place: what replaces or deletes ours names the version.
func (w *writing) create(path string, data []byte) []any {
	ops := []any{&zk.CreateRequest{Path: path, Acl: w.target.acl(), Flags: w.flags()}}
	if w.layout.HasData() {
		ops = append(ops, &zk.SetDataRequest{Path: path, Data: data})
	}
	return ops
}

// created returns the data of the node that a unit makes, and what else the
// unit does.
func (w *writing) created(u unit) (data []byte, rest []any) {
	if !w.layout.HasData() {
		return nil, u.ops[1:]
	}
	return u.ops[1].(*zk.SetDataRequest).Data, u.ops[2:] //nolint:forcetypeassert // as create made it
}

func (w *writing) drop(h registry.Held) (unit, error) {
	name, err := nodeName(w.layout, h)
	if err != nil {
		return unit{}, err
	}
	return w.unit(h.Key, -listed(name), &zk.DeleteRequest{Path: at(w.parent, name), Version: w.version(name)}), nil
}

func (w *writing) flags() int32 {
	if w.target.opts.Lifetime == Session {
		return zk.FlagEphemeral
	}
	return zk.FlagPersistent
}

func (w *writing) version(name string) int32 {
	if v, ok := w.versions[name]; ok {
		return v
	}
	return -1
}

func (*writing) unit(key string, grows int, ops ...any) unit {
	u := unit{key: key, ops: ops, grows: grows}
	for _, op := range ops {
		u.bytes += size(op)
	}
	return u
}

func (u unit) asFresh() unit {
	u.fresh = true
	return u
}

// beside notes what deletes the node that stays beside the one the unit makes.
func (u unit) beside(old any) unit {
	u.old = old
	return u
}
