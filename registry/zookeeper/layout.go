package zookeeper

import (
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Layout is how a format is stored in the tree: a parent znode for each group, and in it a
// node for each entry. Implementations are pure and stateless.
type Layout interface {
	Parents
	Nodes
}

// Parents translates between groups and the parents that hold their entries.
type Parents interface {
	// Parents returns the pattern of the paths of all parents. Its * is the part of the
	// path that differs, as in /dubbo/*/providers.
	Parents() string

	// Parent returns the path of a group's parent. It fails for a group of another format
	// or root, and for a name that cannot be a part of a path.
	Parent(group registry.Group) (string, error)

	// Group returns the group of a parent; false if the parent is not one of this format.
	Group(parent string) (registry.Group, bool)
}

// Nodes translates between entries and the nodes that store them.
type Nodes interface {
	// Node returns the name and the data of the node that stores an entry.
	Node(entry registry.Entry) (name string, data []byte, err error)

	// Entry returns the entry that a node stores, and the mark of its owner. A node that
	// cannot be decoded is an entry without an owner.
	Entry(group registry.Group, name string, data []byte) (registry.Entry, metadata.Mark)

	// HasData reports whether the data of nodes matters. If not, only the list of a parent
	// is read.
	HasData() bool

	// Replaces returns how a changed entry replaces the old one, so that running consumers
	// of the format see the change and fail no call.
	Replaces() metadata.Replacement
}

// Named is a Layout that recognises its nodes by their names. The data of other nodes in the
// same parent is not read.
type Named interface {
	Named(node string) bool
}

// Exclusive is a Layout whose readers fail for a whole parent that holds a node of another
// format. No entry is added to such a parent.
type Exclusive interface {
	// Foreign returns an error that names the other format of a node; nil if the node is of
	// this format or of none.
	Foreign(name string, data []byte) error
}

// MultiPath is a Layout whose groups have more than one parent. Nodes in the further parents
// are named by their paths. Elements are parts of lists that several groups share.
type MultiPath interface {
	Layout

	// OtherParents returns the further parents that hold nodes of a group. A node in them is read
	// only if Entry reports it as ours by its path, without its data.
	OtherParents(group registry.Group) []string

	// Element returns the node that holds a comma-separated list, and the element that
	// stores an entry. Both are empty for an entry that has its own node.
	Element(entry registry.Entry) (path, element string)

	// Elements returns the entries that are stored as elements and belong to one of our
	// entries: they are ours as long as that entry exists.
	Elements(entry registry.Entry) []registry.Entry
}

// A location is where a group is stored.
type location struct {
	layout Layout
	group  registry.Group
	parent string
}

// locate returns the location of a group in the first layout that has it.
func locate(layouts []Layout, group registry.Group) (location, error) {
	var last error
	for _, l := range layouts {
		parent, err := l.Parent(group)
		if err == nil {
			return location{l, group, parent}, nil
		}
		last = err
	}
	return location{}, fmt.Errorf("%w: group %s: %w", registry.ErrRefused, group, last)
}

// path returns the path of a node. The name of a node in a further parent is its path.
func (l location) path(name string) string {
	if inFurtherParent(name) {
		return name
	}
	return l.parent + "/" + name
}

func (l location) name(path string) string {
	if parentOf(path) != l.parent {
		return path
	}
	return path[len(l.parent)+1:]
}

// nodeName returns the name of the node that holds an entry.
func (l location) nodeName(h registry.Stored) (string, error) {
	if name, ok := strings.CutPrefix(h.Key, rawKey); ok {
		return name, nil
	}
	name, _, err := l.layout.Node(h.Entry)
	if err != nil {
		return "", fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	return name, nil
}
