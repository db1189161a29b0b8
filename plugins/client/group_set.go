package client

import (
	"maps"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
)

// groupSet collects groups for one reader. Make it by newGroupSet.
type groupSet struct {
	ready chan struct{} // ready when a group was added

	mu     sync.Mutex
	groups map[registry.Group]struct{}
}

func newGroupSet() *groupSet {
	return &groupSet{ready: make(chan struct{}, 1), groups: make(map[registry.Group]struct{})}
}

// add adds a group. It never blocks.
func (s *groupSet) add(g registry.Group) {
	s.mu.Lock()
	s.groups[g] = struct{}{}
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// drain removes and returns all groups.
func (s *groupSet) drain() []registry.Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Keys(s.groups))
	clear(s.groups)
	return all
}
