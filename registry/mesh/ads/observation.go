package ads

import "time"

// Observed is the kind of an Observation.
type Observed int

// The kinds of observations, with the fields that are set.
const (
	StreamOpened     Observed = iota
	StreamClosed              // Err: why
	ConnectFailed             // Err: why; Delay: the wait before the next attempt
	ResponseReceived          // Type, Bytes, Resources
	Acknowledged              // Type
	Rejected                  // Type; Err: as sent to the server
	RequestSent               // Type
)

// Observation is one event on the wire.
type Observation struct {
	Kind      Observed
	Epoch     int    // number of the newest stream that received a response
	Type      string // type URL
	Bytes     int    // size of the resources in a response
	Resources int    // number of the resources in a response
	Err       error
	Delay     time.Duration
}
