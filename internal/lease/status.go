package lease

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// Status is what a member knows of itself and the others.
type Status struct {
	Identity  string
	Joined    bool      // it stood in the record once
	Until     time.Time // until when it may decide without renewal; zero: it may not
	Lost      int       // how often that time ran out
	Members   []string  // in order
	Shards    []Shard
	LastError string // why the record is out of reach
}

// Shard is one shard of a Status.
type Shard struct {
	Decider, Warm string
	Term          int64
	Role          bridge.Role // of this replica
	Ready         bool        // this replica has brought it to where its part asks for
}

// Status returns what is known now.
func (m *Member) Status() Status {
	roles := make([]bridge.Role, m.opts.Shards)
	for i := range roles {
		roles[i] = m.Stand(i).Role
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{
		Identity: m.opts.Identity, Joined: m.joined, Until: m.until, Lost: m.lost,
		Members: slices.Sorted(maps.Keys(m.table.Members)), Shards: make([]Shard, len(roles)),
	}
	if m.lastErr != nil {
		s.LastError = m.lastErr.Error()
	}
	for i, sh := range m.table.Shards {
		s.Shards[i] = Shard{
			Decider: sh.Decider, Warm: sh.Warm, Term: sh.Term, Role: roles[i],
			Ready: !sh.has(m.opts.Identity) || m.readyFor(i, sh),
		}
	}
	return s
}

// CaughtUp reports whether this replica has brought everything to where its
// part asks for.
func (s Status) CaughtUp() bool {
	return s.Joined && !slices.ContainsFunc(s.Shards, func(sh Shard) bool { return !sh.Ready })
}
