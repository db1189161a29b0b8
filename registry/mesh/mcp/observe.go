package mcp

import "time"

// Observation is one thing a Target or a Server did, for metrics.
type Observation struct {
	Kind    ObservationKind
	Count   int           // of a push: resources
	Latency time.Duration // of a push: since the first change in it
	Refused Refusal       // of a client that was refused
	Err     error
}

// ObservationKind tells observations apart.
type ObservationKind string

// The kinds of observations.
const (
	ObservedPush      ObservationKind = "push"
	ObservedNack      ObservationKind = "nack"
	ObservedState     ObservationKind = "state"      // a record of what is served could not be read or written
	ObservedNoAddress ObservationKind = "no-address" // every choice of a host within the range is taken
	ObservedRefused   ObservationKind = "refused"    // a client
	ObservedOpen      ObservationKind = "open"       // a stream
	ObservedClosed    ObservationKind = "closed"
)
