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
