package nacos

import (
	"maps"
	"slices"
	"time"
)

// A Fault decides what happens to a request before the server looks at it: an
// error code and message to answer, or 0 to continue.
type Fault func(Request) (code int, message string)

// Fail makes a fault decide over every request; nil ends that.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Lose makes the answers to some requests go missing, after the server did
// what they ask for; nil ends that.
func (s *Server) Lose(f func(Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = f
}

// Skew sets the server's clock off.
func (s *Server) Skew(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = d
}

// Drop ends the streams of every client, and what they published with them.
func (s *Server) Drop() { s.each(func(c *connection) { c.finish() }) }

// Reset asks every client for a new connection.
func (s *Server) Reset() {
	s.each(func(c *connection) { c.push("ConnectResetRequest", map[string]string{"requestId": "reset"}) })
}

// Forget drops every publication while the connections live on, as a server
// does that lost its data.
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
