package zookeeper

import (
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Access says who has rights on the nodes that the target creates: its entries and the
// parents that hold them. The nodes above the parents stay open, because clients create
// their own parents there.
type Access string

// The kinds of access. All but Open require a user.
const (
	Open     Access = "open"      // all users have all rights
	ReadOnly Access = "read-only" // our user has all rights, all users read
	Private  Access = "private"   // only our user has rights
)

// acl returns the ACL of the nodes that the target creates.
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

// aclAbove returns the ACL of a node that is created for a node below it, which has
// another ACL. In a home both are the same. In the node above the homes, other users may
// create their homes, and delete none. All other nodes are open, because clients create
// their own nodes in them.
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
