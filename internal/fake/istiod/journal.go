package istiod

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// kept is the maximum number of requests in the journal.
const kept = 10_000

// Verdict is the server's classification of a request.
type Verdict string

// The verdicts.
const (
	Initial         Verdict = "initial"
	Change          Verdict = "change"
	Acknowledgement Verdict = "ack"
	Forced          Verdict = "ack, answered nevertheless"
	Rejection       Verdict = "nack"
	Stale           Verdict = "stale, ignored with its names"
	Unsubscription  Verdict = "unsubscription"
	// Mismatch is a delta request that changes names in an acknowledgement, or
	// changes nothing without one.
	Mismatch Verdict = "mismatch"
	// Crash is a rejection of a type that the client does not watch. It makes istiod dereference
	// nil.
	Crash Verdict = "crash"
	Debug Verdict = "debug"
)

// Request is a request of either variant.
type Request struct {
	Stream      int    // number of the stream, from 1
	Connection  string // id
	Type        string
	Node        *corev3.Node
	Nonce       string
	Error       *statuspb.Status
	Subscribe   []string // all names in the state of the world
	Unsubscribe []string
	Version     string            // state of the world
	Versions    map[string]string // delta: versions that the client has
	Verdict     Verdict
}

// Requests returns the last 10,000 requests of a type; empty: of all types.
func (s *Server) Requests(typeURL string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.requests)
	return slices.DeleteFunc(all, func(r Request) bool { return typeURL != "" && r.Type != typeURL })
}

// Streams returns the number of admitted streams.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// record adds a request to the journal. The caller holds mu.
func (c *connection) record(r Request) {
	r.Stream, r.Connection = c.number, c.id
	if s := c.server; len(s.requests) == kept {
		s.requests = slices.Delete(s.requests, 0, kept/10)
	}
	c.server.requests = append(c.server.requests, r)
}
