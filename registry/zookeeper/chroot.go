package zookeeper

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// conn is the library's connection under a chroot, as Java's client has it:
// every path is one below it, in requests and in what is reported of changes.
type conn struct {
	*zk.Conn
	root string // absolute, without a slash at its end; empty: none
}

// splitChroot cuts the chroot off a list of servers; it stands after the last
// one, as in host1:2181,host2:2181/app.
func splitChroot(servers []string) (hosts []string, root string, err error) {
	if len(servers) == 0 {
		return nil, "", nil
	}
	last := len(servers) - 1
	host, root, found := strings.Cut(servers[last], "/")
	hosts = append(append(hosts, servers[:last]...), host)
	if root = strings.TrimSuffix(root, "/"); !found || root == "" {
		return hosts, "", nil
	}
	for part := range strings.SplitSeq(root, "/") {
		if err := checkName(part); err != nil {
			return nil, "", fmt.Errorf("zookeeper: server %q: the chroot is no path: %w", servers[last], err)
		}
	}
	return hosts, "/" + root, nil
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

func (c conn) Children(path string) ([]string, *zk.Stat, error) {
	return c.Conn.Children(c.under(path)) //nolint:wrapcheck // call translates it
}

func (c conn) ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error) { //nolint:revive // as the library has it
	return c.Conn.ChildrenW(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) Exists(path string) (bool, *zk.Stat, error) {
	return c.Conn.Exists(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error) { //nolint:revive // as the library has it
	return c.Conn.ExistsW(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) Get(path string) ([]byte, *zk.Stat, error) {
	return c.Conn.Get(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error) { //nolint:revive // as the library has it
	return c.Conn.GetW(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) GetACL(path string) ([]zk.ACL, *zk.Stat, error) {
	return c.Conn.GetACL(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) SetACL(path string, acl []zk.ACL, version int32) (*zk.Stat, error) {
	return c.Conn.SetACL(c.under(path), acl, version) //nolint:wrapcheck // as above
}

func (c conn) Multi(ops ...any) ([]zk.MultiResponse, error) {
	if c.root == "" {
		return c.Conn.Multi(ops...) //nolint:wrapcheck // as above
	}
	below := make([]any, len(ops))
	for i, op := range ops {
		below[i] = c.operation(op)
	}
	results, err := c.Conn.Multi(below...)
	if errors.Is(err, zk.ErrNoNode) && c.makeRoot() {
		return c.Conn.Multi(below...) //nolint:wrapcheck // as above
	}
	return results, err //nolint:wrapcheck // as above
}

func (c conn) operation(op any) any {
	switch op := op.(type) {
	case *zk.CreateRequest:
		below := *op
		below.Path = c.under(op.Path)
		return &below
	case *zk.SetDataRequest:
		below := *op
		below.Path = c.under(op.Path)
		return &below
	case *zk.DeleteRequest:
		below := *op
		below.Path = c.under(op.Path)
		return &below
	case *zk.CheckVersionRequest:
		below := *op
		below.Path = c.under(op.Path)
		return &below
	default:
		panic(fmt.Sprintf("an operation of type %T", op)) // the package makes none
	}
}

// makeRoot makes the chroot, and reports whether there was none before.
func (c conn) makeRoot() bool {
	if there, _, err := c.Conn.Exists(c.root); there || err != nil {
		return false
	}
	for i := 1; i <= len(c.root); i++ {
		if i < len(c.root) && c.root[i] != '/' {
			continue
		}
		if _, err := c.Create(c.root[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return false // the request fails as before
		}
	}
	return true
}
