package ads

import (
	"time"
)

// Observed says what an Observation is about.
type Observed int

// What can be observed.
const (
	StreamOpened     Observed = iota
	StreamClosed              // Err is why, nil if the client ended it
	ConnectFailed             // Err is why, Delay the wait before the next attempt
	ResponseReceived          // Type, Bytes, Resources
	Acknowledged              // Type
	Rejected                  // Type, Err is what the server was sent
	RequestSent               // Type
)

// Observation is one thing that happened on the wire.
type Observation struct {
	Kind      Observed
	Epoch     int    // number of the newest stream that delivered
	Type      string // type URL, if one is concerned
	Bytes     int    // of the resources in a response
	Resources int    // number of resources in a response
	Err       error
	Delay     time.Duration
}
