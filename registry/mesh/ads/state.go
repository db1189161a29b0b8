package ads

import (
	"maps"
	"sync"
	"time"
)

// State is the state of a client.
type State struct {
	Connected bool      // a stream is open and has received a response
	Since     time.Time // when Connected last changed
	Mode      Mode      // of the open stream, or of the next attempt

	// Epoch numbers the streams that received a response, from 1; 0 before the first.
	Epoch int

	// Address is the host:port of the last stream that received a response. It is empty if
	// gRPC dials by itself.
	Address string

	Attempts int   // failures in a row since the last response
	Err      error // why the last stream or attempt failed; nil after a response

	Types map[string]TypeState // by type URL
}

func (s *State) disconnect() {
	if s.Connected {
		s.Connected, s.Since = false, time.Now()
	}
}

// TypeState is the state of one resource type.
type TypeState struct {
	Version   string // of the last accepted response
	Nonce     string // of the last response on this stream
	Resources int    // cached
	Unknown   int    // requested and not answered in time
	Responses int    // received since the start
	Nacks     int    // sent since the start
	Err       error  // why the last response was rejected; nil if it was accepted
}

// sharedState is the State of a client. Run's goroutine writes it, any goroutine reads it.
type sharedState struct {
	mu    sync.Mutex // guards state
	state State
}

func (s *sharedState) update(change func(s *State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

func (s *sharedState) setType(t *subscribedType) {
	s.update(func(s *State) { s.Types[t.url] = t.state })
}

func (s *sharedState) get() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.Types = maps.Clone(state.Types)
	return state
}
