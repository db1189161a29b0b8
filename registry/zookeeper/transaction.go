package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

const (
	// attempts bounds how often a transaction is built again because parents or nodes were
	// not as expected.
	attempts = 16

	// The limits of a transaction. A server closes the connection of a request that is
	// larger than its jute.maxbuffer, and a long transaction delays others.
	maxOps     = 100
	maxBytes   = 256 << 10
	parentOps  = 8 // of maxOps, to create parents
	parentSize = 4 << 10

	// operationOverhead is the size of an operation in a request without its path and data:
	// a header of 9 bytes, lengths, flags and an ACL.
	operationOverhead = 128
)

// operationSize returns the size of an operation in a request, or a little more.
func operationSize(op any) int {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return len(op.Path) + len(op.Data) + operationOverhead
	case *zk.SetDataRequest:
		return len(op.Path) + len(op.Data) + operationOverhead
	case *zk.DeleteRequest:
		return len(op.Path) + operationOverhead
	default:
		return operationOverhead
	}
}

// checkSize returns an error if an operation exceeds the limit of a node.
func checkSize(op any) error {
	if n := operationSize(op); n > DataLimit {
		return fmt.Errorf("%w: a node of %d bytes, the limit is %d", registry.ErrRefused, n, DataLimit)
	}
	return nil
}

// remaining returns the units that are not refused. If a new entry is refused, no unit
// deletes an entry, as in registry.Change.Except.
func (w *writer) remaining(units []unit) []unit {
	newRefused := slices.ContainsFunc(w.change.Put, func(put registry.Write) bool {
		return put.Adds() && w.refused.Has(put.New.Key)
	})
	return slices.DeleteFunc(units, func(u unit) bool { return w.refused.Has(u.key) || newRefused && u.deletes })
}

// fitParent refuses new entries for which the parent has no room. If there is no room for a
// node next to the one that it replaces, the old node is deleted in the same transaction.
func (w *writer) fitParent(units []unit) []unit {
	size, limit := w.target.sizes.get(w.group), w.target.opts.ChildrenLimit
	for i, u := range units {
		if u.deleteOld != nil && size+u.grows > limit {
			path := u.deleteOld.(*zk.DeleteRequest).Path //nolint:forcetypeassert // by remove
			units[i] = newUnit(u.key, u.grows-listedSize(w.name(path)), append(u.ops, u.deleteOld)...)
		}
		if !u.creates {
			size += units[i].grows
		}
	}
	full := fmt.Errorf("left out: clients cannot list a parent znode with more than %d bytes of names", limit)
	before := len(w.refused)
	for _, u := range units {
		if u.creates && size+u.grows > limit {
			w.refused[u.key] = full
		} else if u.creates {
			size += u.grows
		}
	}
	if len(w.refused) == before {
		return units
	}
	return w.fitParent(w.remaining(units)) // deletions that are left out make no room
}

// splitUnits returns the units of each transaction.
func splitUnits(units []unit) [][]unit {
	var parts [][]unit
	ops, size := maxOps, 0 // the first unit begins a part
	for _, u := range units {
		if ops+len(u.ops) > maxOps-parentOps || size+u.bytes > maxBytes-parentSize {
			parts = append(parts, nil)
			ops, size = 0, 0
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], u)
		ops += len(u.ops)
		size += u.bytes
	}
	return parts
}

// apply applies the units of one transaction. The transaction assumes that all parents in
// the cache exist, and that none of the units was applied before. If that is wrong, the
// server reports it and changes nothing, and the next attempt follows. Units that the
// server refuses are left out.
func (w *writer) apply(ctx context.Context, part []unit, index, parts int) error {
	for attempt := 0; attempt < attempts; attempt++ {
		if part = w.remaining(part); len(part) == 0 {
			return nil
		}
		ops, head, ledger := w.transaction(part, w.ledgerEntries(index, parts))
		at, err := w.target.client.multi(ctx, ops)
		if err == nil {
			w.applied(part, ledger)
			return nil
		}
		switch {
		case at < 0:
			return err
		case ops[at] == ledger:
			err = w.ledgerFailed(ledger, err)
		case at < len(w.fenceCheck):
			w.fenceCheck, err = w.target.fence.recheck(ctx)
		case at < head:
			err = w.parentFailed(ops[at], err)
		case errors.Is(err, registry.ErrRefused):
			w.refuse(ops[at], err)
			attempt, err = attempt-1, nil // does not count, because the transaction gets shorter
		default:
			part, err = w.unitFailed(ctx, part, ops[at], err)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s keeps changing", registry.ErrConflict, w.parent)
}

// transaction returns the operations of a part. Those before head check the fence and create
// parents. The last one is the operation on the ledger; nil if there is none.
func (w *writer) transaction(part []unit, entries []registry.Entry) (ops []any, head int, ledger any) {
	if entries != nil && (len(entries) > 0 || !w.noLedger) {
		ledger = w.target.ledger.operation(w.group, entries)
	}
	ops = slices.Concat(w.fenceCheck, w.createParents(w.parentsOf(part, ledger)))
	head = len(ops)
	for _, u := range part {
		ops = append(ops, u.ops...)
	}
	if ledger != nil {
		ops = append(ops, ledger)
	}
	return ops, head, ledger
}

// ledgerEntries returns the entries that the ledger holds after a part of the change. After
// the first part it holds all entries of ours before and after the change, and after the
// last part those after the change. It returns nil if the ledger stays as it is.
func (w *writer) ledgerEntries(index, parts int) []registry.Entry {
	change := w.change.Except(w.refused)
	switch index {
	case parts - 1:
		return append([]registry.Entry{}, change.Want...)
	case 0:
		entries := slices.Clone(change.Want)
		for _, h := range change.Replaced() {
			entries = append(entries, h.Entry)
		}
		return entries
	default:
		return nil
	}
}

// parentsOf returns the parents in which the operations of units, and that on the ledger,
// create nodes. The parent of the group is always one of them.
func (w *writer) parentsOf(part []unit, ledger any) []string {
	parents := []string{w.parent}
	add := func(op any) {
		if c, ok := op.(*zk.CreateRequest); ok && !slices.Contains(parents, parentOf(c.Path)) {
			parents = append(parents, parentOf(c.Path))
		}
	}
	for _, u := range part {
		for _, op := range u.ops {
			add(op)
		}
	}
	add(ledger)
	return parents
}

// createParents returns the operations that create missing parents. All except for the
// parent of the group are open, because clients create their own parents next to it, and
// their data has no meaning.
func (w *writer) createParents(parents []string) []any {
	var ops []any
	created := make(map[string]bool)
	for _, parent := range parents {
		for _, path := range w.target.parents.missing(parent) {
			if created[path] {
				continue
			}
			created[path] = true
			acl := aclAbove(path, w.target.home.acl)
			if path == w.parent {
				acl = w.target.home.acl
			}
			ops = append(ops, &zk.CreateRequest{Path: path, Data: []byte{}, Acl: acl})
		}
	}
	return ops
}

// applied updates what is known of parents and the ledger after a transaction.
func (w *writer) applied(part []unit, ledger any) {
	for _, parent := range w.parentsOf(part, nil) {
		w.target.parents.add(parent)
	}
	w.target.ledger.applied(w.group, ledger)
	size := w.target.sizes.get(w.group)
	for _, u := range part {
		size += u.grows
	}
	w.target.sizes.set(w.group, size)
}

// ledgerFailed handles the failure of the operation on the ledger. Like parentFailed and
// unitFailed, it returns no error if the transaction may succeed at another attempt.
func (w *writer) ledgerFailed(op any, err error) error {
	if _, isDelete := op.(*zk.DeleteRequest); isDelete && errors.Is(err, zk.ErrNoNode) {
		w.noLedger = true
		return nil
	}
	return w.target.ledger.failed(w.group, op, err)
}

// parentFailed handles the failure to create a parent.
func (w *writer) parentFailed(op any, err error) error {
	path := op.(*zk.CreateRequest).Path //nolint:forcetypeassert // by createParents
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		w.target.parents.add(path)
	case errors.Is(err, zk.ErrNoNode):
		w.target.parents.remove(parentOf(path))
	case strings.HasPrefix(path, homeRoot):
		return w.target.ledger.giveUp(fmt.Errorf("%s: %w", path, err))
	default:
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// refuse refuses the entry to which a refused operation belongs. To create and to delete
// nodes are rights on their parent. A user without such a right lacks it for all nodes in
// the parent, so that all their entries are refused.
func (w *writer) refuse(refused any, err error) {
	right, parent := rightOf(refused)
	wholeParent := right != 0 && errors.Is(err, zk.ErrNoAuth)
	for _, u := range w.units {
		if slices.ContainsFunc(u.ops, func(op any) bool {
			r, p := rightOf(op)
			return op == refused || wholeParent && p == parent && r == right
		}) {
			w.refused[u.key] = err
		}
	}
}

// rightOf returns the right on a parent that an operation requires; 0 for none.
func rightOf(op any) (right int, parent string) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return zk.PermCreate, parentOf(op.Path)
	case *zk.DeleteRequest:
		return zk.PermDelete, parentOf(op.Path)
	default:
		return 0, ""
	}
}

// unitFailed handles the failure of an operation on an entry. It returns the units for
// another attempt.
func (w *writer) unitFailed(ctx context.Context, part []unit, op any, err error) ([]unit, error) {
	create, isCreate := op.(*zk.CreateRequest)
	switch {
	case isCreate && errors.Is(err, zk.ErrNoNode):
		w.target.parents.remove(parentOf(create.Path))
		return part, nil
	case isCreate && errors.Is(err, zk.ErrNodeExists) && w.newLists[create.Path]:
		return nil, fmt.Errorf("%w: another process created %s", registry.ErrConflict, create.Path)
	case isCreate && errors.Is(err, zk.ErrNodeExists):
		return w.removeDone(ctx, part)
	case isCreate:
		return nil, fmt.Errorf("%.300q: %w", create.Path, err)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		return nil, fmt.Errorf("%w: %w", registry.ErrConflict, err)
	default:
		return nil, err
	}
}

// removeDone removes the creation of nodes that exist exactly as they would be created, and
// are ours by their mark or session. Any other node of the same name is a conflict.
func (w *writer) removeDone(ctx context.Context, part []unit) ([]unit, error) {
	units := make(map[string]unit) // by the name of the node that they create
	var nodes []storedNode
	for _, u := range part {
		if c, ok := u.ops[0].(*zk.CreateRequest); ok && !w.newLists[c.Path] {
			name := w.name(c.Path)
			units[name] = u
			nodes = append(nodes, storedNode{name: name})
		}
	}
	err := forEachNode(ctx, nodes, func(ctx context.Context, n *storedNode) error {
		return w.loadNode(ctx, w.target.client, n)
	})
	if err != nil {
		return nil, err
	}
	done := make(map[any]bool)
	for _, n := range nodes {
		u := units[n.name]
		switch {
		case n.gone:
		case n.denied != nil:
			w.refused[u.key] = fmt.Errorf("%w: its node %.300q exists and may not be read: %w",
				registry.ErrRefused, n.name, n.denied)
		case !w.isDone(n, u):
			return nil, fmt.Errorf("%w: a node %.300q exists", registry.ErrConflict, n.name)
		default:
			done[u.ops[0]] = true
		}
	}
	return w.without(part, done), nil
}

// without returns the units without the creation of nodes that exist, by their first
// operation. It leaves out units that have no other operation.
func (w *writer) without(part []unit, done map[any]bool) (units []unit) {
	for _, u := range part {
		if done[u.ops[0]] {
			_, others := w.created(u)
			u = newUnit(u.key, u.grows, others...)
		}
		if len(u.ops) > 0 {
			units = append(units, u)
		}
	}
	return units
}

// isDone reports whether a node is as a unit would create it.
func (w *writer) isDone(n storedNode, u unit) bool {
	if n.node.stat.EphemeralOwner != w.target.ephemerals.session() {
		return false
	}
	if w.layout.HasData() {
		data, _ := w.created(u)
		return bytes.Equal(n.node.data, data)
	}
	_, mark := w.layout.Entry(w.group, n.name, nil)
	return mark.Owner == w.target.owner
}
