package ads

import (
	"maps"
	"sync"
	"time"
)

// State is the state of a client.
type State struct {
	Connected bool                 // a stream is open and has delivered a message
	Mode      Mode                 // spoken now, or to be tried next
	Epoch     int                  // number of the newest stream, 0 before the first
	Address   string               // host:port of the last stream to deliver; empty if gRPC dials by itself
	Since     time.Time            // when Connected last changed
	Attempts  int                  // failures in a row since a message was received
	Err       error                // why the last stream or attempt ended; nil once a stream delivers
	Types     map[string]TypeState // by type URL
}

func (s *State) disconnect() {
	if s.Connected {
		s.Connected, s.Since = false, time.Now()
	}
}

// TypeState is the state of one resource type.
type TypeState struct {
	Version   string // last accepted
	Nonce     string // last received on this stream
	Resources int    // held
	Unknown   int    // asked for and not answered
	Responses int    // received since the start
	Nacks     int    // sent since the start
	Err       error  // last rejection; nil once a response was accepted
}

// sharedState is the State that Run writes and other goroutines read.
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
