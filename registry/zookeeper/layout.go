package zookeeper

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Layout is how a format lies in the tree: one parent for each group, one
// node in it for each entry. Implementations are pure and stateless.
type Layout interface {
	Parents
	Nodes
}

// Parents reports which parents hold the entries of a format.
type Parents interface {
	// Parents returns the paths of all parents with * for the one part of
	// the path that differs, such as /dubbo/*/providers.
	Parents() string

	// Parent returns the path of a group's parent; an error for a group of
	// another format or root, and for a name that cannot be a parent.
	Parent(group registry.Group) (string, error)

	// Group returns the group of a parent, false where it is not one of this
	// format's.
	Group(parent string) (registry.Group, bool)
}

// Nodes translates between entries and the nodes that store them.
type Nodes interface {
	// Node returns the name and the data of the node that stores an entry.
	Node(entry registry.Entry) (name string, data []byte, err error)

	// Entry returns what a node stores and whose it is. A node that cannot
	// be read is an entry that nobody claims.
	Entry(group registry.Group, name string, data []byte) (registry.Entry, metadata.Mark)

	// HasData reports whether nodes have data that matters; where they have
	// none, the list of a parent is all there is to read.
	HasData() bool

	// Replaces says how a changed entry takes the place of the one before, so
	// that running consumers of the format see it and fail no call.
	Replaces() metadata.Replacement
}

// Named is implemented by layouts whose nodes are reported by their names from
// what else may be under their root. The data of others is not asked for.
type Named interface {
	Named(node string) bool
}

// Exclusive is implemented by layouts whose readers lose a whole parent to one
// node of another format. Nothing is added to a parent that holds one.
type Exclusive interface {
	// Foreign says of which other format a node is, nil where it is of this
	// format or of none.
	Foreign(name string, data []byte) error
}

// MultiPath is a Layout whose groups have more than one parent: nodes that are
// named by their paths, and words in lists that a group shares with others.
type MultiPath interface {
	Layout

	// Beside returns the further parents that hold nodes of a group. Others
	// keep nodes there too, and those of them that Entry says are not ours by
	// their paths alone are not read.
	Beside(group registry.Group) []string

	// Element returns the node that holds a list of words, separated by commas,
	// and the word in it that an entry stands for; empty for an entry that is a
	// node of its own.
	Element(entry registry.Entry) (path, word string)

	// Elements returns the entries that stand for words which an entry of ours
	// comes with: as long as it is there they are ours too.
	Elements(entry registry.Entry) []registry.Entry
}

// at returns the path of a node by its name in a parent; what is named by its
// path lies elsewhere.
func at(parent, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return parent + "/" + name
}

// place returns the layout and the parent of a group.
func (t *Target) place(group registry.Group) (Layout, string, error) {
	var last error
	for _, l := range t.opts.Layouts {
		parent, err := l.Parent(group)
		if err == nil {
			return l, parent, nil
		}
		last = err
	}
	return nil, "", fmt.Errorf("%w: group %s: %w", registry.ErrRefused, group, last)
}

// checkName reports why a server would not take a node of this name. The
// rules are those of ZooKeeper's PathUtils, which looks at UTF-16 units.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) {
		return fmt.Errorf("%w: %.80q cannot be the name of a node", registry.ErrRefused, name)
	}
	for _, r := range name {
		if r == '/' || !validRune(r) {
			return fmt.Errorf("%w: %.80q cannot be the name of a node: %U", registry.ErrRefused, name, r)
		}
	}
	return nil
}

// checkNode is checkName for the name of a node of a layout, which may be a
// path.
func checkNode(layout Layout, name string) error {
	if _, wide := layout.(MultiPath); wide && strings.HasPrefix(name, "/") {
		name = name[strings.LastIndexByte(name, '/')+1:]
	}
	return checkName(name)
}

func validRune(r rune) bool {
	if r > 0x1f && r < 0x7f { // nearly all
		return true
	}
	if utf16.RuneLen(r) != 1 { // a pair of surrogates
		return false
	}
	return r > 0x9f && (r < 0xd800 || r > 0xf8ff) && r < 0xfff0
}
