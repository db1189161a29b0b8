package zookeeper

import (
	"maps"
	"slices"
	"time"
)

// Request is what a fault is decided by.
type Request struct {
	Session int64
	Op      Op
	Paths   []string // of a transaction those of all its operations
}

// Cut says when the connection of a request is cut.
type Cut int

// The times of a cut.
const (
	CutNever  Cut = iota
	CutBefore     // nothing was done
	CutAfter      // the request was done, its answer is lost
)

// Fault is what happens to a request. The zero value is nothing.
type Fault struct {
	Delay time.Duration // before the request is done
	Cut   Cut
	Code  int32 // an error code of the protocol to answer with instead; 0: none
}

// SetFault makes the server ask before each request what is to happen to it;
// nil ends that. The function may be called at any time from many
// goroutines, and must not call the server.
func (s *Server) SetFault(fault func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Count returns how many requests of an operation were received since the
// server started.
func (s *Server) Count(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

// Changes returns how many requests of clients changed the tree.
func (s *Server) Changes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// Lag makes every connection from now on see the tree as it is now, until it
// syncs: one to a follower that lags behind its leader.
func (s *Server) Lag() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past = &tree{nodes: copied(s.tree.nodes)}
}

// Watches returns how many watches of all connections are armed, and how often
// one was armed since the server started that was armed already. Clients keep
// something for each time.
func (s *Server) Watches() (armed, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		armed += len(c.onData) + len(c.onList)
	}
	return armed, s.rearmed
}

// Snapshot is what a server stores: its nodes and its sessions. The zero value
// is that of a server whose disk was wiped.
type Snapshot struct {
	nodes    map[string]*node
	zxid     int64
	sessions []session
}

// Snapshot returns what the server stores now.
func (s *Server) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := Snapshot{nodes: copied(s.tree.nodes), zxid: s.tree.zxid}
	for _, ses := range s.sessions {
		snap.sessions = append(snap.sessions, session{id: ses.id, password: ses.password, timeout: ses.timeout})
	}
	return snap
}

// Restore makes the server one that was started with what a snapshot holds:
// every connection is cut, and sessions that are not in it are unknown.
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

// copied returns nodes that do not change with others.
func copied(nodes map[string]*node) map[string]*node {
	out := make(map[string]*node, len(nodes))
	for path, n := range nodes {
		out[path] = &node{data: n.data, acl: slices.Clone(n.acl), stat: n.stat, children: maps.Clone(n.children)}
	}
	return out
}
