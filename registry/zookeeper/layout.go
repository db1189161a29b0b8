package zookeeper

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Layout is how a format lies in the tree: one folder for each group, one
// node in it for each entry. Implementations are pure and stateless.
type Layout interface {
	Folders
	Nodes
}

// Folders tells which folders hold the entries of a format.
type Folders interface {
	// Folders returns the paths of all folders with * for the one part of
	// the path that differs, such as /dubbo/*/providers.
	Folders() string

	// Folder returns the path of a group's folder; an error for a group of
	// another format or root, and for a name that cannot be a folder.
	Folder(group registry.Group) (string, error)

	// Group returns the group of a folder, false where it is not one of this
	// format's.
	Group(folder string) (registry.Group, bool)
}

// Nodes translates between entries and the nodes that store them.
type Nodes interface {
	// Node returns the name and the data of the node that stores an entry.
	Node(entry registry.Entry) (name string, data []byte, err error)

	// Entry returns what a node stores and whose it is. A node that cannot
	// be read is an entry that nobody claims.
	Entry(group registry.Group, name string, data []byte) (registry.Entry, metadata.Mark)

	// HasData reports whether nodes have data that matters; where they have
	// none, the list of a folder is all there is to read.
	HasData() bool
}

// Named is implemented by layouts whose nodes are told by their names from
// what else may stand under their root. The data of others is not asked for.
type Named interface {
	Named(node string) bool
}

// Jealous is implemented by layouts whose readers lose a whole folder to one
// node of another format. Nothing is added to a folder that holds one.
type Jealous interface {
	// Alien says of which other format a node is, nil where it is of this
	// format or of none.
	Alien(name string, data []byte) error
}

// place returns the layout and the folder of a group.
func (t *Target) place(group registry.Group) (Layout, string, error) {
	var last error
	for _, l := range t.opts.Layouts {
		folder, err := l.Folder(group)
		if err == nil {
			return l, folder, nil
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

func validRune(r rune) bool {
	if r > 0x1f && r < 0x7f { // nearly all
		return true
	}
	if utf16.RuneLen(r) != 1 { // a pair of surrogates
		return false
	}
	return r > 0x9f && (r < 0xd800 || r > 0xf8ff) && r < 0xfff0
}
