package nacos

import (
	"maps"
	"slices"
	"time"
)

// A Fault returns the error code and message with which the server answers a request, or 0 to
// handle the request.
type Fault func(Request) (code int, message string)

// Fail sets the fault that decides about every request; nil: none.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Lose loses the answers to the requests for which f returns true, after the server handled them;
// nil: none.
func (s *Server) Lose(f func(Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = f
}

// Skew shifts the clock of the server.
func (s *Server) Skew(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = d
}

// Drop ends the stream of every client, and thereby its publications.
func (s *Server) Drop() { s.each(func(c *connection) { c.finish() }) }

// Reset requests a new connection from every client.
func (s *Server) Reset() {
	s.each(func(c *connection) { c.push("ConnectResetRequest", map[string]string{"requestId": "reset"}) })
}

// Forget drops every publication and keeps the connections, like a server that lost its data.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.services)
	clear(s.shadow)
}

// Revoke makes every token invalid.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

func (s *Server) each(do func(*connection)) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	for _, c := range all {
		do(c)
	}
}
