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
	// attempts bounds how often a transaction is built anew because the parents, or
	// what is stored already, were not as expected.
	attempts = 16

	// A server closes the connection of a request that is larger than its
	// jute.maxbuffer, and a long transaction delays others.
	maxOps     = 100
	maxBytes   = 256 << 10
	parentOps  = 8 // of these, for creating parents
	parentSize = 4 << 10

	// operationOverhead is the size of an operation in a request beside its path and
	// data: a header of 9 bytes, lengths, flags and an ACL.
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

// checkSize returns an error if an operation is larger than a node may be.
func checkSize(op any) error {
	if n := operationSize(op); n > DataLimit {
		return fmt.Errorf("%w: a node of %d bytes, the limit is %d", registry.ErrRefused, n, DataLimit)
	}
	return nil
}

// remaining returns the units that are not refused, by the rule of Change.Except.
func (w *writer) remaining(units []unit) []unit {
	newRefused := slices.ContainsFunc(w.change.Put, func(put registry.Write) bool { return put.Adds() && w.refused.Has(put.New.Key) })
	return slices.DeleteFunc(units, func(u unit) bool { return w.refused.Has(u.key) || newRefused && u.deletes })
}

// fit refuses new entries for which the parent has no room. If there is no room for a
// node beside the one that it replaces, it replaces that at once.
func (w *writer) fit(units []unit) []unit {
	size, limit := w.target.sizes.get(w.group), w.target.opts.ChildrenLimit
	for i, u := range units {
		if u.old != nil && size+u.grows > limit {
			path := u.old.(*zk.DeleteRequest).Path //nolint:forcetypeassert // by remove
			units[i] = newUnit(u.key, u.grows-listedSize(w.name(path)), append(u.ops, u.old)...)
		}
		if !u.creates {
			size += units[i].grows
		}
	}
	full := fmt.Errorf("left out: clients cannot list a parent znode of more than %d bytes of names", limit)
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
	return w.fit(w.remaining(units)) // without the room that deletions would make
}

func split(units []unit) [][]unit {
	var parts [][]unit
	ops, size := maxOps, 0 // as if one were full
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

// apply does one transaction. It is sent as if all parents that were seen
// existed and nothing of it were done yet. If that is wrong the server
// reports it, and changes nothing. What the server refuses is left out.
func (w *writer) apply(ctx context.Context, part []unit, index, parts int) error {
	for left := attempts; left > 0; left-- {
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
			left, err = left+1, nil // it gets shorter each time
		default:
			part, err = w.unitFailed(ctx, part, ops[at], err)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s keeps changing", registry.ErrConflict, w.parent)
}

// transaction returns the operations of a part: before head the check of the fence
// and the parents, and last that on the ledger.
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

// ledgerEntries returns the entries that the ledger holds after a part of the change: after
// the last all that are ours then, and after the first also those that still are. It
// returns nil if the ledger is kept as it is.
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

// parentsOf returns the parents in which operations create nodes, the one on the
// ledger included; that of the group is always among them.
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

// createParents returns the operations that create what is missing of parents. All
// but the parent of the group itself is open, because clients create their own
// beside it, and its data has no meaning.
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

// ledgerFailed handles the failure of the operation on the ledger. As the functions
// below, it returns nil if the transaction is worth another attempt.
func (w *writer) ledgerFailed(op any, err error) error {
	if _, isDelete := op.(*zk.DeleteRequest); isDelete && errors.Is(err, zk.ErrNoNode) {
		w.noLedger = true
		return nil
	}
	return w.target.ledger.failed(w.group, op, err)
}

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

// refuse records the entries that a refused operation belongs to. Creating and
// deleting nodes are rights on their parent: a user without one lacks it for all
// entries.
func (w *writer) refuse(refused any, err error) {
	right, parent := rightOf(refused)
	all := right != 0 && errors.Is(err, zk.ErrNoAuth)
	for _, u := range w.units {
		if slices.ContainsFunc(u.ops, func(op any) bool {
			r, p := rightOf(op)
			return op == refused || all && p == parent && r == right
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

// unitFailed handles the failure of an operation on an entry, and returns what is
// left to do if that is worth another attempt.
func (w *writer) unitFailed(ctx context.Context, part []unit, op any, err error) ([]unit, error) {
	create, isCreate := op.(*zk.CreateRequest)
	switch {
	case isCreate && errors.Is(err, zk.ErrNoNode):
		w.target.parents.remove(parentOf(create.Path))
		return part, nil
	case isCreate && errors.Is(err, zk.ErrNodeExists) && w.newLists[create.Path]:
		return nil, fmt.Errorf("%w: %s was created by another", registry.ErrConflict, create.Path)
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

// removeDone removes what is done already: nodes that are exactly as they would
// be created, and are ours because their mark, or their session, is. Any
// other node in the place of a new one is a conflict.
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
	err := each(ctx, nodes, func(ctx context.Context, n *storedNode) error { return w.loadNode(ctx, w.target.client, n) })
	if err != nil {
		return nil, err
	}
	done := make(map[any]bool)
	for _, n := range nodes {
		u := units[n.name]
		switch {
		case n.gone:
		case n.denied != nil:
			w.refused[u.key] = fmt.Errorf("%w: its node %.300q is in use by one that may not be read: %w", registry.ErrRefused, n.name, n.denied)
		case !w.isDone(n, u):
			return nil, fmt.Errorf("%w: a node %.300q exists", registry.ErrConflict, n.name)
		default:
			done[u.ops[0]] = true
		}
	}
	return w.without(part, done), nil
}

// without returns units without the creation of nodes that exist, by their first operation.
func (w *writer) without(part []unit, done map[any]bool) (left []unit) {
	for _, u := range part {
		if done[u.ops[0]] {
			_, rest := w.created(u)
			u = newUnit(u.key, u.grows, rest...)
		}
		if len(u.ops) > 0 {
			left = append(left, u)
		}
	}
	return left
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
