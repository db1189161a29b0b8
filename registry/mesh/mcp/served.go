package mcp

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/xds-bridge/xds-bridge/naming"
)

// served is what is to be served, kept so that a change of one group costs
// next to nothing however many there are.
type served struct {
	groups   []*group // by the name of their resource, while sorted
	unsorted bool     // some are new, behind the others, or gone
	sum      uint64   // of the sums of all resources
}

// replace makes a resource what is served of a group; nil: nothing.
func (s *served) replace(g *group, r *resource) {
	if old := g.resource; old != nil {
		s.sum -= old.sum
	} else if r != nil {
		s.groups = append(s.groups, g)
	}
	if r != nil {
		s.sum += r.sum
	}
	s.unsorted = s.unsorted || (g.resource == nil) != (r == nil)
	g.resource = r
}

// snapshot returns what is served by now. Its version is the sum of the hashes
// of its resources: the same on every replica, and far from that of any set
// that is close to it.
func (s *served) snapshot() *snapshot {
	if s.unsorted {
		s.groups = slices.DeleteFunc(s.groups, func(g *group) bool { return g.resource == nil })
		slices.SortFunc(s.groups, func(a, b *group) int { return cmp.Compare(a.resource.name, b.resource.name) })
		s.unsorted = false
	}
	out := &snapshot{content: make([]*resource, len(s.groups))}
	for i, g := range s.groups {
		out.content[i] = g.resource
	}
	out.version = strconv.FormatUint(s.sum, 16) + "-" + strconv.Itoa(len(out.content))
	return out
}

// A snapshot is a set that is served. It is never written again.
type snapshot struct {
	number  int // goes up with each that is served
	version string
	content []*resource
}

// keys returns the service keys of a set, and where they are found.
func (s *snapshot) keys() map[naming.ServiceKey]naming.HostAddress {
	keys := make(map[naming.ServiceKey]naming.HostAddress, len(s.content))
	for _, r := range s.content {
		for _, k := range r.keys {
			keys[k] = r.host
		}
	}
	return keys
}
