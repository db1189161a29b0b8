package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A query reads a node.
type query struct {
	path  string
	kind  queryKind
	watch bool // arms a watch for the next change of the answer
}

// A queryKind is the part of a node that a query reads.
type queryKind uint8

const (
	ofExistence queryKind = iota
	ofData
	ofChildren // the names of its children
)

// node is the answer to a query.
type node struct {
	data     []byte
	children []string
	stat     *zk.Stat // nil: it does not exist
}

// conn makes requests over the connection of the library below a chroot, as the client of
// Java does: users see paths below the chroot, in requests and in reported changes.
type conn struct {
	*zk.Conn
	root string // absolute, without a slash at its end; empty: none
}

// under returns a path as the server knows it.
func (c conn) under(path string) string {
	if path == "/" && c.root != "" {
		return c.root
	}
	return c.root + path
}

// above returns a path as the users of the connection know it.
func (c conn) above(path string) string {
	if rest := strings.TrimPrefix(path, c.root); rest != "" {
		return rest
	}
	return "/"
}

// query makes a query. A node that does not exist is an error, except for ofExistence.
func (c conn) query(q query) (n node, err error) {
	path, exists := c.under(q.path), true
	switch {
	case q.kind == ofChildren && q.watch:
		n.children, n.stat, _, err = c.ChildrenW(path)
	case q.kind == ofChildren:
		n.children, n.stat, err = c.Children(path)
	case q.kind == ofData && q.watch:
		n.data, n.stat, _, err = c.GetW(path)
	case q.kind == ofData:
		n.data, n.stat, err = c.Get(path)
	case q.watch:
		exists, n.stat, _, err = c.ExistsW(path)
	default:
		exists, n.stat, err = c.Exists(path)
	}
	if err != nil || !exists {
		return node{}, err
	}
	return n, nil
}

// operation returns an operation with its path as the server knows it.
func (c conn) operation(op any) any {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return &zk.CreateRequest{Path: c.under(op.Path), Data: op.Data, Acl: op.Acl, Flags: op.Flags}
	case *zk.SetDataRequest:
		return &zk.SetDataRequest{Path: c.under(op.Path), Data: op.Data, Version: op.Version}
	case *zk.DeleteRequest:
		return &zk.DeleteRequest{Path: c.under(op.Path), Version: op.Version}
	case *zk.CheckVersionRequest:
		return &zk.CheckVersionRequest{Path: c.under(op.Path), Version: op.Version}
	default:
		panic(fmt.Sprintf("operation of type %T", op)) // the package uses no other
	}
}

// createRoot creates the chroot if it is missing. It reports whether it did: then a request
// that failed before may succeed.
func (c conn) createRoot() bool {
	if exists, _, err := c.Exists(c.root); exists || err != nil {
		return false
	}
	for _, path := range prefixes(c.root) {
		if _, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return false // the request would fail again
		}
	}
	return true
}

func (c *Client) query(ctx context.Context, q query) (node, error) {
	return call(ctx, c.session, func(conn conn) (node, error) { return conn.query(q) })
}

func (c *Client) get(ctx context.Context, path string) (node, error) {
	return c.query(ctx, query{path: path, kind: ofData})
}

// read is get for a node that may not exist. Then the stat is nil.
func (c *Client) read(ctx context.Context, path string) (node, error) {
	n, err := c.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return node{}, nil
	}
	if err != nil {
		return node{}, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}

// list returns the names of the children of a node; none if it does not exist.
func (c *Client) list(ctx context.Context, path string) ([]string, error) {
	n, err := c.query(ctx, query{path: path, kind: ofChildren})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	return n.children, nil
}

// exists returns the stat of a node; nil if the node does not exist.
func (c *Client) exists(ctx context.Context, path string) (*zk.Stat, error) {
	n, err := c.query(ctx, query{path: path})
	return n.stat, err
}

func (c *Client) do(ctx context.Context, op any) error {
	_, err := c.multi(ctx, []any{op})
	return err
}

// multi applies operations in one transaction. If an operation failed, at is its index;
// -1 if the request failed.
func (c *Client) multi(ctx context.Context, ops []any) (at int, err error) {
	results, err := call(ctx, c.session, func(conn conn) ([]zk.MultiResponse, error) { return conn.multi(ops) })
	if err == nil {
		return 0, nil
	}
	for i, r := range results {
		if r.Error != nil {
			return i, err
		}
	}
	return -1, err
}

// multi applies operations in one transaction. It creates the chroot if that is missing.
func (c conn) multi(ops []any) ([]zk.MultiResponse, error) {
	below := c.below(ops)
	results, err := c.Multi(below...)
	if c.root != "" && errors.Is(err, zk.ErrNoNode) && c.createRoot() {
		return c.Multi(below...)
	}
	return results, err
}

func (c conn) below(ops []any) []any {
	if c.root == "" {
		return ops
	}
	below := make([]any, len(ops))
	for i, op := range ops {
		below[i] = c.operation(op)
	}
	return below
}

// createAll creates a node and the nodes above it, see aclAbove. A node that exists is not
// an error.
func (c *Client) createAll(ctx context.Context, op *zk.CreateRequest) error {
	err := c.do(ctx, op)
	if errors.Is(err, zk.ErrNoNode) {
		parent := &zk.CreateRequest{Path: parentOf(op.Path), Data: []byte{}, Acl: aclAbove(parentOf(op.Path), op.Acl)}
		if err := c.createAll(ctx, parent); err != nil {
			return err
		}
		err = c.do(ctx, op)
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("create %s: %w", op.Path, err)
	}
	return nil
}

// store sets the data of a node, and creates it if it does not exist.
func (c *Client) store(ctx context.Context, create *zk.CreateRequest) error {
	err := c.do(ctx, &zk.SetDataRequest{Path: create.Path, Data: create.Data, Version: -1})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return c.createAll(ctx, create)
	case err != nil:
		return fmt.Errorf("write %s: %w", create.Path, err)
	}
	return nil
}

// checkCreate returns an error if an ACL denies the creation of a node, or of the topmost
// missing node above it. Its transaction fails in any case, so that no watch fires.
func (c *Client) checkCreate(ctx context.Context, path string) error {
	for parentOf(path) != "/" {
		stat, err := c.exists(ctx, parentOf(path))
		if err != nil {
			return err
		}
		if stat != nil {
			break
		}
		path = parentOf(path)
	}
	ops := []any{
		&zk.CreateRequest{Path: path, Data: []byte{}, Acl: zk.WorldACL(zk.PermAll)},
		&zk.CheckVersionRequest{Path: parentOf(path), Version: math.MaxInt32},
	}
	_, err := call(ctx, c.session, func(conn conn) ([]zk.MultiResponse, error) {
		return conn.Multi(conn.below(ops)...) // not conn.multi, which creates the chroot
	})
	if errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// delete deletes one of our nodes. It is not an error if the node does not exist or has
// children, or if another user created it as the root of a home.
func (c *Client) delete(ctx context.Context, path string) error {
	err := c.do(ctx, &zk.DeleteRequest{Path: path, Version: -1})
	if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) ||
		errors.Is(err, registry.ErrRefused) && (path == homeRoot || parentOf(path) == homeRoot) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", path, err)
}

// deleteTree deletes one of our nodes and all nodes below it, except for ephemeral nodes,
// which belong to running processes.
func (c *Client) deleteTree(ctx context.Context, path string) error {
	names, err := c.list(ctx, path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.deleteTree(ctx, path+"/"+name); err != nil {
			return err
		}
	}
	stat, err := c.exists(ctx, path)
	if err != nil || stat == nil || stat.EphemeralOwner != 0 {
		return err
	}
	return c.delete(ctx, path)
}

// replaceOpenACL sets the ACL of a node if all users have all rights on it.
func (c *Client) replaceOpenACL(ctx context.Context, path string, acl []zk.ACL) error {
	_, err := call(ctx, c.session, func(conn conn) (*zk.Stat, error) {
		now, stat, err := conn.GetACL(conn.under(path))
		if err != nil || !isOpen(now) {
			return nil, err
		}
		return conn.SetACL(conn.under(path), acl, stat.Aversion)
	})
	return err
}
