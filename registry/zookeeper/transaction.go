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

// opOverhead is what an operation takes in a request beside its path and
// data: a header of 9 bytes, lengths, flags and an ACL.
const opOverhead = 128

// size returns how many bytes an operation takes in a request, or a little
// more.
func size(op any) int {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return len(op.Path) + len(op.Data) + opOverhead
	case *zk.SetDataRequest:
		return len(op.Path) + len(op.Data) + opOverhead
	case *zk.DeleteRequest:
		return len(op.Path) + opOverhead
	default:
		return opOverhead
	}
}

// remaining leaves out what is refused, as Change.Except does.
func (w *writing) remaining(units []unit) []unit {
	isNew := slices.ContainsFunc(w.change.Put, func(put registry.Write) bool { return put.Old == nil && w.refused.Has(put.New.Key) })
	return slices.DeleteFunc(units, func(u unit) bool { return w.refused.Has(u.key) || isNew && u.deletes })
}

// fit leaves out new entries for which the parent has no room. What has none
// beside the node that it replaces replaces it at once.
func (w *writing) fit(units []unit) []unit {
	bytes := w.target.sizes.get(w.change.Group)
	for i, u := range units {
		if u.old != nil && bytes+u.grows > w.target.opts.ChildrenLimit {
			path := u.old.(*zk.DeleteRequest).Path //nolint:forcetypeassert // as drop made it
			units[i] = w.unit(u.key, u.grows-listed(w.name(path)), append(u.ops, u.old)...)
		}
		if !u.fresh {
			bytes += units[i].grows
		}
	}
	full := fmt.Errorf("left out: clients cannot list a parent znode of more than %d bytes of names", w.target.opts.ChildrenLimit)
	before := len(w.refused)
	for _, u := range units {
		if u.fresh && bytes+u.grows > w.target.opts.ChildrenLimit {
			w.refused[u.key] = full
		} else if u.fresh {
			bytes += u.grows
		}
	}
	if len(w.refused) == before {
		return units
	}
	return w.fit(w.remaining(units)) // without the room that deletions would make
}

// The limits of a transaction: a server cuts the connection of one that is
// larger than its jute.maxbuffer, and a long one keeps others waiting.
const (
	maxOps     = 100
	maxBytes   = 256 << 10
	parentOps  = 8 // room for making parents
	parentSize = 4 << 10
)

// split packs units into transactions.
func split(units []unit) [][]unit {
	var parts [][]unit
	ops, bytes := maxOps, 0 // as if one were full
	for _, u := range units {
		if ops+len(u.ops) > maxOps-parentOps || bytes+u.bytes > maxBytes-parentSize {
			parts = append(parts, nil)
			ops, bytes = 0, 0
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], u)
		ops += len(u.ops)
		bytes += u.bytes
	}
	return parts
}

// attempts bounds how often a transaction is put together anew because the
// parents, or what is already there, were not as was believed.
const attempts = 16

// apply does one transaction. It is sent as if all parents that were seen
// before existed and nothing of it were done yet; where that is wrong the
// server says so, and changes nothing. What it refuses is left out.
func (w *writing) apply(ctx context.Context, part []unit, index, parts int) error {
	for left := attempts; left > 0; left-- {
		if part = w.remaining(part); len(part) == 0 {
			return nil
		}
		w.setAccount(index, parts)
		ops, head, ledger := w.transaction(part)
		at, err := w.target.client.multi(ctx, ops)
		if err == nil {
			w.done(part, ledger)
			return nil
		}
		switch {
		case at < 0:
			return err
		case ops[at] == ledger:
			err = w.mendLedger(ledger, err)
		case at < len(w.check):
			err = w.mendFence(ctx)
		case at < head:
			err = w.mendParent(ops[at], err)
		case errors.Is(err, registry.ErrRefused):
			w.refuse(ops[at], err)
			left, err = left+1, nil // it gets shorter each time
		default:
			part, err = w.mend(ctx, part, ops[at], err)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s does not keep still", registry.ErrConflict, w.parent)
}

// transaction returns the operations of a part, the check and the parents
// before head and that on the ledger last.
func (w *writing) transaction(part []unit) (ops []any, head int, ledger any) {
	ledger = w.ledgerOp()
	ops = slices.Concat(w.check, w.makeParents(w.parentsOf(part, ledger)))
	head = len(ops)
	for _, u := range part {
		ops = append(ops, u.ops...)
	}
	if ledger != nil {
		ops = append(ops, ledger)
	}
	return ops, head, ledger
}

func (w *writing) done(part []unit, ledger any) {
	for _, parent := range w.parentsOf(part, nil) {
		w.target.parents.know(parent)
	}
	w.kept(ledger)
	now := w.target.sizes.get(w.change.Group)
	for _, u := range part {
		now += u.grows
	}
	w.target.sizes.set(w.change.Group, now)
}

// mendParent takes note of why a parent could not be made, nil where it is
// worth another attempt.
func (w *writing) mendParent(op any, err error) error {
	path := op.(*zk.CreateRequest).Path //nolint:forcetypeassert // as makeFolders made it
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		w.target.parents.know(path)
	case errors.Is(err, zk.ErrNoNode):
		w.target.parents.forget(parentOf(path))
	case strings.HasPrefix(path, home):
		return w.target.giveUpLedger(fmt.Errorf("%s: %w", path, err))
	default:
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// refuse takes note of the entries that an operation which the server refuses
// is of. To make and to delete nodes in a parent are rights on the parent: who
// lacks one lacks it for all entries.
func (w *writing) refuse(refused any, err error) {
	right, parent := rightOf(refused)
	all := right != 0 && errors.Is(err, zk.ErrNoAuth)
	for _, u := range w.all {
		if slices.ContainsFunc(u.ops, func(op any) bool {
			r, f := rightOf(op)
			return op == refused || all && f == parent && r == right
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

// mend takes note of why an operation on an entry could not be done, and
// returns what is left to do where that is worth another attempt.
func (w *writing) mend(ctx context.Context, part []unit, op any, err error) ([]unit, error) {
	create, isCreate := op.(*zk.CreateRequest)
	switch {
	case isCreate && errors.Is(err, zk.ErrNoNode):
		w.target.parents.forget(parentOf(create.Path))
		return part, nil
	case isCreate && errors.Is(err, zk.ErrNodeExists) && w.elements[create.Path]:
		return nil, fmt.Errorf("%w: %s was made by another", registry.ErrConflict, create.Path)
	case isCreate && errors.Is(err, zk.ErrNodeExists):
		return w.dropDone(ctx, part)
	case isCreate:
		return nil, fmt.Errorf("%.300q: %w", create.Path, err)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		return nil, fmt.Errorf("%w: %w", registry.ErrConflict, err)
	default:
		return nil, err
	}
}

// dropDone drops what is already done: nodes that are exactly as they would
// have been made, and are ours because their mark, or their session, is. Any
// other node in the place of a new one is a conflict.
func (w *writing) dropDone(ctx context.Context, part []unit) ([]unit, error) {
	creates := make(map[string]unit)
	var nodes []found
	for _, u := range part {
		if c, ok := u.ops[0].(*zk.CreateRequest); ok && !w.elements[c.Path] {
			name := w.name(c.Path)
			creates[name] = u
			nodes = append(nodes, found{name: name})
		}
	}
	err := w.target.each(ctx, nodes, func(ctx context.Context, f *found) error { return w.target.get(ctx, w.parent, f) })
	if err != nil {
		return nil, err
	}
	there := make(map[any]bool)
	for _, f := range nodes {
		switch {
		case f.gone:
		case f.denied != nil:
			w.refused[creates[f.name].key] = fmt.Errorf("%w: its node %.300q is taken by one that may not be read: %w", registry.ErrRefused, f.name, f.denied)
		case !w.isDone(f, creates[f.name]):
			return nil, fmt.Errorf("%w: a node %.300q exists", registry.ErrConflict, f.name)
		default:
			there[creates[f.name].ops[0]] = true
		}
	}
	return w.undone(part, there), nil
}

// undone returns what is left of units of which some nodes are there.
func (w *writing) undone(part []unit, there map[any]bool) (left []unit) {
	for _, u := range part {
		if there[u.ops[0]] {
			_, rest := w.created(u)
			u = w.unit(u.key, u.grows, rest...)
		}
		if len(u.ops) > 0 {
			left = append(left, u)
		}
	}
	return left
}

func (w *writing) isDone(f found, u unit) bool {
	if f.node.stat.EphemeralOwner != w.target.ephemeralOwner() {
		return false
	}
	if w.layout.HasData() {
		data, _ := w.created(u)
		return bytes.Equal(f.node.data, data)
	}
	_, mark := w.layout.Entry(w.change.Group, f.name, nil)
	return mark.Owner == w.target.owner
}

// makeParents returns the operations that make what is missing of the parents
// that operations need. All but the parent of the group itself is open,
// because clients make their own beside it, and nobody looks at its data.
func (w *writing) makeParents(parents []string) []any {
	var ops []any
	made := make(map[string]bool)
	for _, parent := range parents {
		for _, path := range w.target.parents.missing(parent) {
			if made[path] {
				continue
			}
			made[path] = true
			acl := aclAbove(path, w.target.acl())
			if path == w.parent {
				acl = w.target.acl()
			}
			ops = append(ops, &zk.CreateRequest{Path: path, Data: []byte{}, Acl: acl})
		}
	}
	return ops
}

// parentsOf returns the parents in which operations make nodes, the one on the
// ledger included; that of the group is always among them.
func (w *writing) parentsOf(part []unit, ledger any) []string {
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
