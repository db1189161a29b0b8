package zookeeper

import (
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Access says who has rights on the nodes that the target creates: its entries, and the
// parents that hold them. What is above the parents stays open, because clients
// create their own parents there.
type Access string

// The kinds of access. All but Open require a user.
const (
	Open     Access = "open"      // everybody
	ReadOnly Access = "read-only" // our user; others read
	Private  Access = "private"   // our user alone
)

// acl returns the ACL of what the target writes.
func (a Access) acl() []zk.ACL {
	switch a {
	case ReadOnly:
		return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
	case Private:
		return zk.AuthACL(zk.PermAll)
	default:
		return zk.WorldACL(zk.PermAll)
	}
}

func isOpen(acl []zk.ACL) bool { return slices.Contains(acl, zk.WorldACL(zk.PermAll)[0]) }

// aclAbove returns the ACL of a node that is created because another with an ACL
// is below it. In a home it is the same. In the node above the homes others may
// create theirs, but not delete. All else is open, because clients create their
// own nodes in it.
func aclAbove(path string, below []zk.ACL) []zk.ACL {
	switch {
	case isOpen(below), path != homeRoot && !strings.HasPrefix(path, homeRoot+"/"):
		return zk.WorldACL(zk.PermAll)
	case path != homeRoot:
		return below
	}
	ours := slices.DeleteFunc(slices.Clone(below), func(a zk.ACL) bool { return a.Scheme == "world" })
	return append(ours, zk.WorldACL(zk.PermRead|zk.PermCreate)...)
}
