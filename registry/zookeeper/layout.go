package zookeeper

import (
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Layout is how a format is stored in the tree: one parent znode for each group,
// one node in it for each entry. Implementations are pure and stateless.
type Layout interface {
	Parents
	Nodes
}

// Parents translates between groups and the parents that hold their entries.
type Parents interface {
	// Parents returns the paths of all parents with * for the one part of
	// the path that differs, such as /dubbo/*/providers.
	Parents() string

	// Parent returns the path of a group's parent; an error for a group of
	// another format or root, and for a name that cannot be a parent.
	Parent(group registry.Group) (string, error)

	// Group returns the group of a parent, false if it is not one of this format.
	Group(parent string) (registry.Group, bool)
}

// Nodes translates between entries and the nodes that store them.
type Nodes interface {
	// Node returns the name and the data of the node that stores an entry.
	Node(entry registry.Entry) (name string, data []byte, err error)

	// Entry returns the entry that a node stores, and its owner's mark. A node
	// that cannot be decoded is an entry without an owner.
	Entry(group registry.Group, name string, data []byte) (registry.Entry, metadata.Mark)

	// HasData reports whether nodes have data that matters. If not, the list of
	// a parent is all there is to read.
	HasData() bool

	// Replaces returns how a changed entry replaces the one before, so that
	// running consumers of the format see it and fail no call.
	Replaces() metadata.Replacement
}

// Named is a Layout whose nodes are known by their names from others in the
// same parent. The data of the others is not read.
type Named interface {
	Named(node string) bool
}

// Exclusive is a Layout whose readers lose a whole parent to one node of another
// format. Nothing is added to a parent that holds one.
type Exclusive interface {
	// Foreign returns an error that names the other format of a node, nil if it
	// is of this format or of none.
	Foreign(name string, data []byte) error
}

// MultiPath is a Layout whose groups have more than one parent: nodes that are
// named by their paths, and elements of lists that a group shares with others.
type MultiPath interface {
	Layout

	// OtherParents returns the other parents that hold nodes of a group. Nodes in
	// them that Entry, given the path alone, does not report as ours are not read.
	OtherParents(group registry.Group) []string

	// Element returns the node that holds a comma-separated list, and the element
	// of it that stores an entry; empty for an entry that is a node of its own.
	Element(entry registry.Entry) (path, element string)

	// Elements returns the entries that are stored as elements and come with an
	// entry of ours: as long as it exists they are ours too.
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

// path returns the path of a node. The name of one in a further parent is its path.
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
