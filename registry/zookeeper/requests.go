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

// A query is what a request reads of a node.
type query struct {
	path  string
	kind  queryKind
	watch bool // for the next change of the answer
}

// A queryKind is what there is to read of a node.
type queryKind uint8

const (
	ofExistence queryKind = iota
	ofData
	ofChildren // their names
)

// node is what a query read of a node.
type node struct {
	data     []byte
	children []string
	stat     *zk.Stat // nil: it does not exist
}

// conn makes requests on the library's connection below a chroot, as Java's client does:
// every path is below it, in requests and in reported changes.
type conn struct {
	*zk.Conn
	root string // absolute, without a slash at its end; empty: none
}

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

// query makes a query. A node that does not exist is an error unless its existence is
// asked for.
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
		panic(fmt.Sprintf("an operation of type %T", op)) // the package has no other
	}
}

// createRoot creates the chroot, and reports whether there was none before.
func (c conn) createRoot() bool {
	if exists, _, err := c.Exists(c.root); exists || err != nil {
		return false
	}
	for _, path := range prefixes(c.root) {
		if _, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return false // the request fails as before
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

// read is get for a node that may not exist: then its stat is nil.
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

// exists returns the stat of a node, nil if there is none.
func (c *Client) exists(ctx context.Context, path string) (*zk.Stat, error) {
	n, err := c.query(ctx, query{path: path})
	return n.stat, err
}

func (c *Client) do(ctx context.Context, op any) error {
	_, err := c.multi(ctx, []any{op})
	return err
}

// multi applies operations in one transaction. If one of them failed, at is its
// index.
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

// createAll creates a node and those above it, unless it exists. Those in a home have
// the ACL of the node.
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
		return fmt.Errorf("make %s: %w", op.Path, err)
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

// checkCreate returns an error if the ACL does not let us create a node that does not
// exist, or the first of those above it that do not. Its transaction fails in
// any case, so that no watch fires.
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
		return conn.Multi(conn.below(ops)...) // which creates no chroot
	})
	if errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}

// delete deletes a node of ours. It is no error if the node does not exist, is in use,
// or is an empty one of a home that another user created, where it means nothing.
func (c *Client) delete(ctx context.Context, path string) error {
	err := c.do(ctx, &zk.DeleteRequest{Path: path, Version: -1})
	if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) ||
		errors.Is(err, registry.ErrRefused) && (path == homeRoot || parentOf(path) == homeRoot) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", path, err)
}

// deleteTree deletes a node of ours and all below it except ephemeral nodes, which
// other processes keep.
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
