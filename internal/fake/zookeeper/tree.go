package zookeeper

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// code is an error code of the protocol.
type code int32

const (
	errOK             code = 0
	errInconsistent   code = -2
	errUnimplemented  code = -6
	errBadArguments   code = -8
	errNoNode         code = -101
	errNoAuth         code = -102
	errBadVersion     code = -103
	errEphemeral      code = -108
	errNodeExists     code = -110
	errNotEmpty       code = -111
	errSessionExpired code = -112
	errInvalidACL     code = -114
	errAuthFailed     code = -115
)

// Stat is the metadata of a node.
type Stat struct {
	Czxid, Mzxid, Pzxid         int64
	Ctime, Mtime                int64 // milliseconds since 1970
	Version, Cversion, Aversion int32
	EphemeralOwner              int64
	DataLength, NumChildren     int32
}

type node struct {
	data     []byte
	acl      []ACL
	stat     Stat
	children map[string]struct{}
}

func (n *node) snapshot() Stat {
	s := n.stat
	s.DataLength, s.NumChildren = int32(len(n.data)), int32(len(n.children))
	return s
}

// event is a change as watches report it.
type event struct {
	kind int32
	path string
}

const (
	eventCreated         int32 = 1
	eventDeleted         int32 = 2
	eventDataChanged     int32 = 3
	eventChildrenChanged int32 = 4
)

// tree holds the nodes. It records the inverse of each change, so that a transaction can be rolled
// back. It is guarded by the server's lock.
type tree struct {
	nodes  map[string]*node
	zxid   int64
	undo   []func()
	events []event
}

func newTree() *tree {
	return &tree{nodes: map[string]*node{"/": {acl: WorldACL(PermAll), children: make(map[string]struct{})}}}
}

// begin starts a transaction.
func (t *tree) begin() {
	t.undo, t.events = t.undo[:0], nil
	t.zxid++
}

// rollback undoes all changes since begin.
func (t *tree) rollback() {
	for _, undo := range slices.Backward(t.undo) {
		undo()
	}
	t.undo, t.events = t.undo[:0], nil
}

// who is the client on whose behalf an operation is executed.
type who struct {
	session int64
	ids     []identity
	admin   bool // the test itself: no ACL applies
}

func (w who) may(n *node, perm int32) bool { return w.admin || allowed(n.acl, perm, w.ids) }

// flagEphemeral is a flag of a create request.
const flagEphemeral int32 = 1

func (t *tree) create(w who, r request) code {
	parentPath, _ := split(r.path)
	parent := t.nodes[parentPath]
	acl, err := fixACL(r.acl, w.ids)
	switch {
	case r.flags != 0 && r.flags != flagEphemeral || r.path == "/":
		return errBadArguments
	case parent == nil:
		return errNoNode
	case !w.may(parent, PermCreate):
		return errNoAuth
	case err != errOK:
		return err
	case parent.stat.EphemeralOwner != 0:
		return errEphemeral
	case t.nodes[r.path] != nil:
		return errNodeExists
	}
	now := time.Now().UnixMilli()
	n := &node{data: r.data, acl: acl, children: make(map[string]struct{})}
	n.stat = Stat{Czxid: t.zxid, Mzxid: t.zxid, Pzxid: t.zxid, Ctime: now, Mtime: now}
	if r.flags == flagEphemeral {
		n.stat.EphemeralOwner = w.session
	}
	t.link(r.path, n)
	return errOK
}

// link adds a node to the tree and records how to remove it.
func (t *tree) link(path string, n *node) {
	parentPath, name := split(path)
	parent := t.nodes[parentPath]
	before := parent.stat
	parent.children[name] = struct{}{}
	parent.stat.Cversion++
	parent.stat.Pzxid = t.zxid
	t.nodes[path] = n
	t.events = append(t.events, event{eventCreated, path}, event{eventChildrenChanged, parentPath})
	t.undo = append(t.undo, func() {
		delete(t.nodes, path)
		delete(parent.children, name)
		parent.stat = before
	})
}

func (t *tree) remove(w who, path string, version int32) code {
	n := t.nodes[path]
	parentPath, name := split(path)
	parent := t.nodes[parentPath]
	switch {
	case path == "/":
		return errBadArguments
	case n == nil:
		return errNoNode
	case !w.may(parent, PermDelete):
		return errNoAuth
	case version != -1 && version != n.stat.Version:
		return errBadVersion
	case len(n.children) > 0:
		return errNotEmpty
	}
	before := parent.stat
	delete(t.nodes, path)
	delete(parent.children, name)
	parent.stat.Cversion++
	parent.stat.Pzxid = t.zxid
	t.events = append(t.events, event{eventDeleted, path}, event{eventChildrenChanged, parentPath})
	t.undo = append(t.undo, func() {
		t.nodes[path] = n
		parent.children[name] = struct{}{}
		parent.stat = before
	})
	return errOK
}

func (t *tree) set(w who, path string, data []byte, version int32) (Stat, code) {
	n := t.nodes[path]
	if err := t.check(w, n, PermWrite, version); err != errOK {
		return Stat{}, err
	}
	oldData, before := n.data, n.stat
	n.data = data
	n.stat.Version++
	n.stat.Mzxid, n.stat.Mtime = t.zxid, time.Now().UnixMilli()
	t.events = append(t.events, event{eventDataChanged, path})
	t.undo = append(t.undo, func() { n.data, n.stat = oldData, before })
	return n.snapshot(), errOK
}

func (*tree) check(w who, n *node, perm, version int32) code {
	switch {
	case n == nil:
		return errNoNode
	case !w.may(n, perm):
		return errNoAuth
	case version != -1 && version != n.stat.Version:
		return errBadVersion
	}
	return errOK
}

func (t *tree) children(path string) []string {
	return slices.Sorted(maps.Keys(t.nodes[path].children))
}

// validPath reports whether a real server accepts a path. The rules are those of
// PathUtils.validatePath in ZooKeeper 3.9, which checks UTF-16 units.
func validPath(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || !utf8.ValidString(path) {
		return false
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !slices.ContainsFunc(utf16.Encode([]rune(path)), refused)
}

// refused reports whether a UTF-16 unit is invalid in a path: control characters, surrogates, the
// private use area, and the specials.
func refused(u uint16) bool {
	return u <= 0x1f || u >= 0x7f && u <= 0x9f || u >= 0xd800 && u <= 0xf8ff || u >= 0xfff0
}

// split returns the parent of a path and the last part of it.
func split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 1)], path[i+1:]
}
