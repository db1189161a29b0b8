package zookeeper

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrNode says that a node to change through the Server does not exist, or that its path is invalid.
var ErrNode = errors.New("no such node")

// Node is a stored node.
type Node struct {
	Data []byte
	ACL  []ACL
	Stat Stat
}

// Put stores data in a node, as another client without restrictions does. It creates the node and
// its parents if they do not exist.
func (s *Server) Put(path string, data []byte) error {
	return s.put(path, data, 0)
}

// PutEphemeral stores a node that is deleted with a session.
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

// Delete removes a node and everything below it. A missing node is not an error.
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

// Get returns a node, or false if there is none.
func (s *Server) Get(path string) (Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree.nodes[path]
	if n == nil {
		return Node{}, false
	}
	return Node{Data: slices.Clone(n.data), ACL: slices.Clone(n.acl), Stat: n.snapshot()}, true
}

// Children returns the names of a node's children in order; none if there is no such node.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tree.nodes[path] == nil {
		return nil
	}
	return s.tree.children(path)
}

// Paths returns the paths of a node and every node below it, in order.
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
