package ads

import (
	"maps"
	"sync"
	"time"
)

// State is how a client stands.
type State struct {
	Connected bool // a stream is open and has delivered a message
	Mode      Mode // spoken now, or to be tried next
	Epoch     int  // number of the newest stream, 0 before the first
	// Address is where the stream leads that delivers, or did last: host:port, or
	// empty where gRPC connects by itself.
	Address string
	// Since is when Connected last changed.
	Since time.Time
	// Attempts counts failures in a row since a message was last received.
	Attempts int
	// Err is why the last stream or attempt ended; nil once a stream delivers.
	Err   error
	Types map[string]TypeState // by type URL
}

// TypeState is how one resource type stands.
type TypeState struct {
	Version   string // last accepted
	Nonce     string // last received on this stream
	Resources int    // held
	Unknown   int    // asked and not answered
	Responses int    // received since the start
	Nacks     int    // sent since the start
	Err       error  // last rejection; nil once a response was accepted
}

// board is what State reads while Run writes.
type board struct {
	mu    sync.Mutex // guards state
	state State
}

func (b *board) set(change func(s *State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
}

func (b *board) setType(url string, change func(t *TypeState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Types == nil {
		b.state.Types = map[string]TypeState{}
	}
	t := b.state.Types[url]
	change(&t)
	b.state.Types[url] = t
}

func (b *board) get() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Types = maps.Clone(s.Types)
	return s
}

// Observed says what an Observation is about.
type Observed int

// What can be observed.
const (
	StreamOpened     Observed = iota
	StreamClosed              // Err is why, nil where the client ended it
	ConnectFailed             // Err is why, Delay the wait before the next attempt
	ResponseReceived          // Type, Bytes, Resources
	Acknowledged              // Type
	Rejected                  // Type, Err is what the server was told
	RequestSent               // Type
)

// Observation is one thing that happened on the wire.
type Observation struct {
	Kind      Observed
	Epoch     int    // number of the newest stream that delivered
	Type      string // type URL, where one is concerned
	Bytes     int    // of the resources in a response
	Resources int    // number of resources in a response
	Err       error
	Delay     time.Duration
}
