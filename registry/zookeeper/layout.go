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

	// Beside returns the further parents that hold nodes of a group. Nodes in
	// them that Entry, given the path alone, does not report as ours are not read.
	Beside(group registry.Group) []string

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

func (l location) isElement(e registry.Entry) bool {
	multi, ok := l.layout.(MultiPath)
	if !ok {
		return false
	}
	path, _ := multi.Element(e)
	return path != ""
}

func inFurtherParent(name string) bool { return strings.HasPrefix(name, "/") }

// checkName returns an error if a node of the layout cannot have a name.
func (l location) checkName(name string) error {
	if _, multi := l.layout.(MultiPath); multi && inFurtherParent(name) {
		name = baseOf(name)
	}
	return checkName(name)
}

// checkName returns an error if no node can have a name, by the rules of
// ZooKeeper's PathUtils, which looks at UTF-16 units.
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

// parentOf returns the path above a path; that of /a and of / is /.
func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 1)]
}

func baseOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// prefixes returns a path and all above it but /, from the top on.
func prefixes(path string) []string {
	var out []string
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}

// parentCache holds the parents that were seen to exist, so that writing does not
// ask. It may be out of date: then a transaction fails and corrects it.
type parentCache struct {
	mu     sync.Mutex
	exists map[string]bool
}

// add records that a parent exists, and so does all above it.
func (c *parentCache) add(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; path != "/" && !c.exists[path]; path = parentOf(path) {
		c.exists[path] = true
	}
}

func (c *parentCache) remove(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; path != "/"; path = parentOf(path) {
		delete(c.exists, path)
	}
}

// missing returns what has to be created for a parent to exist, from the top on.
func (c *parentCache) missing(path string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, p := range prefixes(path) {
		if !c.exists[p] {
			out = append(out, p)
		}
	}
	return out
}

const (
	// listOverhead is the size of an answer with a list beside the names: a header of
	// 16 bytes, a count, and the parent's stat of 68.
	listOverhead = 16 + 4 + 68

	warnRatio  = 0.8 // of the limit; a larger parent is logged
	smallShare = 16  // parents up to this part of the limit are not searched for the largest
)

// listedSize returns how many bytes a name adds to the list of its group's parent.
func listedSize(name string) int {
	if inFurtherParent(name) {
		return 0
	}
	return 4 + len(name)
}

// parentSizes holds the sizes of the lists of the parents' nodes as they were last read or
// written. A client that lists a parent whose names exceed its jute.maxbuffer loses its
// connection, each time it tries.
type parentSizes struct {
	limit  int
	log    *slog.Logger
	notify func(share float64)

	mu       sync.Mutex
	bytes    map[registry.Group]int // of those that hold anything
	large    map[registry.Group]int // of those that are not small
	notified int                    // the largest of large
}

func newParentSizes(limit int, log *slog.Logger, notify func(share float64)) *parentSizes {
	return &parentSizes{limit: limit, log: log, notify: notify, bytes: make(map[registry.Group]int), large: make(map[registry.Group]int)}
}

func (s *parentSizes) get(group registry.Group) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.bytes[group], listOverhead)
}

// set stores the size of a group's parent. It logs one that is nearly too large, and
// notifies of another largest one.
func (s *parentSizes) set(group registry.Group, bytes int) {
	s.mu.Lock()
	full := int(warnRatio * float64(s.limit))
	warn := bytes >= full && s.bytes[group] < full
	setAbove(s.bytes, group, bytes, listOverhead)
	setAbove(s.large, group, bytes, s.limit/smallShare)
	largest := 0
	for _, n := range s.large {
		largest = max(largest, n)
	}
	changed := largest != s.notified
	s.notified = largest
	s.mu.Unlock()
	if warn {
		s.log.Warn("parent znode is nearly too large for clients to list", "group", group.String(), "bytes", bytes, "limit", s.limit)
	}
	if changed && s.notify != nil {
		s.notify(float64(largest) / float64(s.limit))
	}
}

func setAbove(sizes map[registry.Group]int, group registry.Group, bytes, floor int) {
	if bytes > floor {
		sizes[group] = bytes
	} else {
		delete(sizes, group)
	}
}
