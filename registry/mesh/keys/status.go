package keys

import (
	"cmp"
	"slices"
	"time"
)

// Status is how the publication stands.
type Status struct {
	Keys     int             `json:"keys"`  // that are to be shown
	Nodes    int             `json:"nodes"` // that show them; 0 before the first Set
	Replicas []ReplicaStatus `json:"replicas"`
	Err      string          `json:"error,omitempty"` // why the replicas could not be listed last
}

// ReplicaStatus is how the publication stands at one replica of istiod.
type ReplicaStatus struct {
	Replica   string    `json:"replica"`
	Connected bool      `json:"connected"` // every node has a stream that was answered
	Keys      int       `json:"keys"`      // that are shown now
	Since     time.Time `json:"since"`     // when Connected last changed
	Err       string    `json:"error,omitempty"`
}

// Status returns how the publication stands; it may be called at any time.
func (p *Publisher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Replicas: make([]ReplicaStatus, 0, len(p.replicas)), Err: p.listErr}
	if p.newest != nil {
		s.Keys, s.Nodes = p.newest.keys, len(p.newest.parts)
	}
	for _, r := range p.replicas {
		s.Replicas = append(s.Replicas, *r)
	}
	slices.SortFunc(s.Replicas, func(a, b ReplicaStatus) int { return cmp.Compare(a.Replica, b.Replica) })
	return s
}

// tell notes how a replica stands. One that is not listed any more has no
// status.
func (p *Publisher) tell(address string, change func(s *ReplicaStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.replicas[address]
	if s == nil {
		return
	}
	before := s.Connected
	change(s)
	if s.Connected != before {
		s.Since = time.Now()
	}
}
