package zookeeper

import (
	"log/slog"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
)

// parentCache holds the parents that existed when last seen, so that a write needs no
// request for them. If it is out of date, a transaction fails and corrects it.
type parentCache struct {
	mu     sync.Mutex
	exists map[string]bool
}

// add adds a parent that exists, and all nodes above it.
func (c *parentCache) add(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; path != "/" && !c.exists[path]; path = parentOf(path) {
		c.exists[path] = true
	}
}

// remove removes a parent that does not exist, and all nodes above it.
func (c *parentCache) remove(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; path != "/"; path = parentOf(path) {
		delete(c.exists, path)
	}
}

// missing returns the paths of a parent and of the nodes above it that are not in the cache,
// from the top.
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
	// listOverhead is the size of an answer with a list, without the names: a header of 16
	// bytes, a count, and the parent's stat of 68 bytes.
	listOverhead = 16 + 4 + 68

	warnRatio  = 0.8 // of the limit; a larger parent is logged
	smallShare = 16  // of the limit; smaller parents are not searched for the largest one
)

// listedSize returns the number of bytes that a name adds to the list of its group's parent.
func listedSize(name string) int {
	if inFurtherParent(name) {
		return 0
	}
	return 4 + len(name)
}

// parentSizes holds the sizes of the lists of parents, as last read or written. A client
// that lists a parent whose names exceed its jute.maxbuffer loses its connection, at each
// attempt.
type parentSizes struct {
	limit  int
	log    *slog.Logger
	notify func(share float64)

	mu       sync.Mutex
	bytes    map[registry.Group]int // of parents that are not empty
	large    map[registry.Group]int // of parents that are not small
	notified int                    // the largest size, as last passed to notify
}

func newParentSizes(limit int, log *slog.Logger, notify func(share float64)) *parentSizes {
	return &parentSizes{
		limit: limit, log: log, notify: notify, bytes: make(map[registry.Group]int), large: make(map[registry.Group]int),
	}
}

func (s *parentSizes) get(group registry.Group) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.bytes[group], listOverhead)
}

// set stores the size of a group's parent. It logs a size that is close to the limit, and
// calls notify if the largest size changed.
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
		s.log.Warn("parent znode almost exceeds the size that clients can list",
			"group", group.String(), "bytes", bytes, "limit", s.limit)
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
