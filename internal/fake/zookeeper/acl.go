package zookeeper

import (
	"crypto/sha1" //nolint:gosec // ZooKeeper's digest scheme uses it
	"encoding/base64"
	"strings"
)

// The permissions of an ACL.
const (
	PermRead int32 = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
	PermAll = PermRead | PermWrite | PermCreate | PermDelete | PermAdmin
)

// ACL is one entry of the access control list of a node.
type ACL struct {
	Perms      int32
	Scheme, ID string
}

// WorldACL grants permissions to every client.
func WorldACL(perms int32) []ACL { return []ACL{{Perms: perms, Scheme: "world", ID: "anyone"}} }

// DigestACL grants permissions to one user.
func DigestACL(perms int32, user, password string) []ACL {
	return []ACL{{Perms: perms, Scheme: "digest", ID: digest(user + ":" + password)}}
}

// digest returns the id of user:password in the digest scheme.
func digest(credentials string) string {
	user, _, _ := strings.Cut(credentials, ":")
	sum := sha1.Sum([]byte(credentials)) //nolint:gosec // as above
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// identity is an authenticated identity of a connection.
type identity struct{ scheme, id string }

// allowed reports whether one of the identities has a permission.
func allowed(acl []ACL, perm int32, ids []identity) bool {
	for _, a := range acl {
		if a.Perms&perm == 0 {
			continue
		}
		if a.Scheme == "world" && a.ID == "anyone" {
			return true
		}
		for _, id := range ids {
			if id.scheme == a.Scheme && id.id == a.ID {
				return true
			}
		}
	}
	return false
}

// fixACL replaces the scheme auth by the identities of the connection, as a server does before it
// stores an ACL.
func fixACL(acl []ACL, ids []identity) ([]ACL, code) {
	var out []ACL
	for _, a := range acl {
		switch {
		case a.Scheme == "world" && a.ID == "anyone", a.Scheme == "digest" && strings.Count(a.ID, ":") == 1:
			out = append(out, a)
		case a.Scheme == "auth":
			for _, id := range ids {
				out = append(out, ACL{Perms: a.Perms, Scheme: id.scheme, ID: id.id})
			}
		default:
			return nil, errInvalidACL
		}
	}
	if len(out) == 0 {
		return nil, errInvalidACL
	}
	return out, errOK
}
