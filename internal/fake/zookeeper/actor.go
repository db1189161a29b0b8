package zookeeper

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrNode says that a node that the server itself was asked to change is not
// there, or that its path is none.
var ErrNode = errors.New("no such node")

// Node is a node as the server holds it.
type Node struct {
	Data []byte
	ACL  []ACL
	Stat Stat
}

// Put stores data in a node as another client would whom no ACL binds, and
// makes the node and its parents where they are missing.
func (s *Server) Put(path string, data []byte) error {
	return s.put(path, data, 0)
}

// PutEphemeral stores a node that exists as long as a session.
func (s *Server) PutEphemeral(path string, data []byte, session int64) error {
	return s.put(path, data, session)
}

func (s *Server) put(path string, data []byte, session int64) error {
	if !validPath(path) || path == "/" {
		return fmt.Errorf("put %q: %w", path, ErrNode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.begin()
	defer s.committed()
	for i := 1; i < len(path); i++ {
		if path[i] == '/' && s.tree.nodes[path[:i]] == nil {
			s.tree.create(who{admin: true}, request{path: path[:i], acl: WorldACL(PermAll)})
		}
	}
	if s.tree.nodes[path] != nil {
		s.tree.set(who{admin: true}, path, data, -1)
		return nil
	}
	r := request{path: path, data: data, acl: WorldACL(PermAll)}
	if session != 0 {
		r.flags = flagEphemeral
	}
	if err := s.tree.create(who{admin: true, session: session}, r); err != errOK {
		return fmt.Errorf("put %q: error %d", path, err)
	}
	return nil
}

// Delete removes a node and everything under it; what is not there is gone.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.begin()
	defer s.committed()
	for _, p := range slices.Backward(s.under(path)) {
		s.tree.remove(who{admin: true}, p, -1)
	}
}

// SetACL replaces the ACL of a node.
func (s *Server) SetACL(path string, acl []ACL) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree.nodes[path]
	if n == nil {
		return fmt.Errorf("set ACL of %q: %w", path, ErrNode)
	}
	n.acl = acl
	n.stat.Aversion++
	return nil
}

// Get returns a node, false where there is none.
func (s *Server) Get(path string) (Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree.nodes[path]
	if n == nil {
		return Node{}, false
	}
	return Node{Data: slices.Clone(n.data), ACL: slices.Clone(n.acl), Stat: n.snapshot()}, true
}

// Children returns the names of a node's children in order; none where there
// is no such node.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tree.nodes[path] == nil {
		return nil
	}
	return s.tree.children(path)
}

// Paths returns the path of every node at and under a path, in order.
func (s *Server) Paths(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under(path)
}

func (s *Server) under(path string) []string {
	prefix := strings.TrimSuffix(path, "/") + "/"
	var out []string
	for p := range maps.Keys(s.tree.nodes) {
		if p != "/" && (p == path || strings.HasPrefix(p, prefix)) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}
