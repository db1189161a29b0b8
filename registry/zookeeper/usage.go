package zookeeper

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
)

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
