package zookeeper

import (
	"maps"
	"slices"
)

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
