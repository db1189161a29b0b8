package zookeeper

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

// isElement reports whether an entry stands for an element of a list.
func isElement(layout Layout, e registry.Entry) bool {
	wide, ok := layout.(MultiPath)
	if !ok {
		return false
	}
	path, _ := wide.Element(e)
	return path != ""
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

// parentCache remembers which parents were seen to exist, so that writing need
// not ask. It may be wrong: the server is the one to say.
type parentCache struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// know remembers that a parent exists, and so does all above it.
func (f *parentCache) know(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = make(map[string]struct{})
	}
	for ; path != "/" && path != ""; path = parentOf(path) {
		if _, ok := f.known[path]; ok {
			return
		}
		f.known[path] = struct{}{}
	}
}

// forget drops a parent and all above it.
func (f *parentCache) forget(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; path != "/" && path != ""; path = parentOf(path) {
		delete(f.known, path)
	}
}

// missing returns what has to be made for a parent to exist, from the root
// on.
func (f *parentCache) missing(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if _, ok := f.known[path[:i]]; !ok {
			out = append(out, path[:i])
		}
	}
	return out
}

// parentOf returns the path above a path; that of /a and of / is /.
func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 1)]
}

// Usage is how much of the room in a parent is taken. A client that lists a
// parent whose names exceed its jute.maxbuffer loses its connection, and does
// so for ever.
type Usage struct {
	Group registry.Group
	Bytes int // of the answer to a list of the parent, the nodes of others included
	Limit int
}

// Ratio returns how much of the limit is taken; 1 is all.
func (u Usage) Ratio() float64 {
	if u.Limit == 0 {
		return 0
	}
	return float64(u.Bytes) / float64(u.Limit)
}

// warnAt is the share of a limit from which on a parent is warned of.
const warnAt = 0.8

// listOverhead is what an answer with a list of names holds beside them: a
// header of 16 bytes, a count, and the parent's stat of 68.
const listOverhead = 16 + 4 + 68

// listed returns how many bytes a name takes in the list of a group's parent.
func listed(name string) int {
	if strings.HasPrefix(name, "/") {
		return 0 // it lies elsewhere
	}
	return 4 + len(name)
}

// sizes keeps the sizes of the parents as they were last seen or written.
type sizes struct {
	limit  int
	log    *slog.Logger
	notify func(Usage)

	mu       sync.Mutex
	bytes    map[registry.Group]int  // of all that hold anything
	large    map[registry.Group]int  // of those that are not small
	warned   map[registry.Group]bool // of those that are nearly full
	notified Usage
}

// small is the share of the limit up to which a parent is not worth a look
// for the fullest: a target has many parents, and few that matter.
const small = 16

// get returns the size of a group's parent as it was last seen.
func (s *sizes) get(group registry.Group) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.bytes[group], listOverhead)
}

// set stores a size that was read or worked out, and reports it.
func (s *sizes) set(group registry.Group, bytes int) {
	u := Usage{Group: group, Bytes: bytes, Limit: s.limit}
	s.mu.Lock()
	if s.bytes == nil {
		s.bytes, s.large, s.warned = make(map[registry.Group]int), make(map[registry.Group]int), make(map[registry.Group]bool)
	}
	keep(s.bytes, group, bytes, listOverhead)
	keep(s.large, group, bytes, s.limit/small)
	full := u.Ratio() >= warnAt
	warn := full && !s.warned[group]
	if full {
		s.warned[group] = true
	} else {
		delete(s.warned, group)
	}
	fullest := s.fullest()
	changed := fullest != s.notified
	s.notified = fullest
	s.mu.Unlock()
	if warn {
		s.log.Warn("parent znode is nearly too large for clients to list", "group", group.String(), "bytes", bytes, "limit", s.limit)
	}
	if changed && s.notify != nil {
		s.notify(fullest)
	}
}

// keep stores a size where it is above a floor.
func keep(sizes map[registry.Group]int, group registry.Group, bytes, floor int) {
	if bytes > floor {
		sizes[group] = bytes
	} else {
		delete(sizes, group)
	}
}

// fullest returns the size of the largest parent that is not small. The caller
// holds the lock.
func (s *sizes) fullest() Usage {
	var fullest Usage
	for g, n := range s.large {
		if n > fullest.Bytes || n == fullest.Bytes && g.Compare(fullest.Group) < 0 {
			fullest = Usage{Group: g, Bytes: n, Limit: s.limit}
		}
	}
	return fullest
}

// Usage returns how full the fullest parent is; the zero value where none
// takes a sixteenth of the limit.
func (t *Target) Usage() Usage {
	t.sizes.mu.Lock()
	defer t.sizes.mu.Unlock()
	return t.sizes.fullest()
}
