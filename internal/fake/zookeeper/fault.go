package zookeeper

import (
	"maps"
	"slices"
	"time"
)

// Request is a request for which a fault is chosen.
type Request struct {
	Session int64
	Op      Op
	Paths   []string // of a transaction: of all its operations
}

// Cut is the moment at which the connection of a request is cut.
type Cut int

// The moments of a cut.
const (
	CutNever  Cut = iota
	CutBefore     // before the request is executed
	CutAfter      // after the request is executed; its answer is lost
)

// Fault is what happens to a request. The zero value has no effect.
type Fault struct {
	Delay time.Duration // before the request is executed
	Cut   Cut
	Code  int32 // an error code of the protocol that replaces the answer; 0: none
}

// SetFault sets the function that chooses the fault of each request; nil: none. The function may be
// called by several goroutines at the same time, and must not call the server.
func (s *Server) SetFault(fault func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Count returns the number of requests of an operation since the server started.
func (s *Server) Count(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

// Changes returns the number of requests of clients that changed the tree.
func (s *Server) Changes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// Lag makes every new connection see the tree as it is now, until it syncs, like a connection to a
// follower that lags behind its leader.
func (s *Server) Lag() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past = &tree{nodes: copied(s.tree.nodes)}
}

// Watches returns the number of armed watches of all connections, and how often an armed watch was
// armed again since the server started. Clients keep state for each time.
func (s *Server) Watches() (armed, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		armed += len(c.onData) + len(c.onList)
	}
	return armed, s.rearmed
}

// Snapshot is the stored state of a server: its nodes and its sessions. The zero value is the state
// of a server whose disk was wiped.
type Snapshot struct {
	nodes    map[string]*node
	zxid     int64
	sessions []session
}

// Snapshot returns the stored state.
func (s *Server) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := Snapshot{nodes: copied(s.tree.nodes), zxid: s.tree.zxid}
	for _, ses := range s.sessions {
		snap.sessions = append(snap.sessions, session{id: ses.id, password: ses.password, timeout: ses.timeout})
	}
	return snap
}

// Restore restarts the server with a snapshot: every connection is cut, and sessions that are not in
// the snapshot are unknown.
func (s *Server) Restore(snap Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		defer c.cut()
	}
	for _, ses := range s.sessions {
		ses.timer.Stop()
	}
	clear(s.sessions)
	s.tree = newTree()
	s.tree.zxid = snap.zxid
	maps.Copy(s.tree.nodes, copied(snap.nodes))
	for _, stored := range snap.sessions {
		s.add(&session{id: stored.id, password: stored.password, timeout: stored.timeout})
	}
}

// copied returns a deep copy of nodes.
func copied(nodes map[string]*node) map[string]*node {
	out := make(map[string]*node, len(nodes))
	for path, n := range nodes {
		out[path] = &node{data: n.data, acl: slices.Clone(n.acl), stat: n.stat, children: maps.Clone(n.children)}
	}
	return out
}
