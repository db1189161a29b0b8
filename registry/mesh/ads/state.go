package ads

import "time"

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
