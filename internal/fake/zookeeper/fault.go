package zookeeper

import "time"

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
