package client

import (
	"slices"
	"time"
)

// Snapshot is everything that is known as an answer to a query: what is not in
// it is not there.
type Snapshot struct {
	Query Query

	// Endpoints are those that may be called, by address and each once: an address that
	// several services are at is that of the first. Those of weight 0 are left out while
	// there are others.
	Endpoints []Endpoint

	// Err says why the snapshot may be out of date or incomplete; nil while it is
	// current. Whatever it is, the endpoints are the last known.
	Err error

	// Since is when the registry confirmed all of the answer last, for one of the state
	// file, and for one with an endpoint that is known from that or from before an
	// outage, and was not reported since the registry is back. It is zero once every
	// endpoint is reported, or given up after Options.ForgetAfter.
	Since time.Time

	all []Endpoint
}

// All returns every endpoint that is reported, by address and service, with those of
// weight 0 and an address as often as services are at it.
func (s Snapshot) All() []Endpoint { return slices.Clone(s.all) }

// shows reports whether the registry reports the address of an instance. What was known
// before says nothing of what is there.
func (s Snapshot) shows(i Instance) bool {
	return slices.ContainsFunc(s.all, func(e Endpoint) bool { return e.Host == i.Host && e.Port == i.Port && !e.unconfirmed })
}

// callable returns what Snapshot.Endpoints are of all endpoints.
func callable(all []Endpoint) []Endpoint {
	calls := func(e Endpoint) bool { return e.Weight.share() > 0 }
	some := slices.ContainsFunc(all, calls)
	seen := make(map[string]bool, len(all))
	out := make([]Endpoint, 0, len(all))
	for _, e := range all {
		if some && !calls(e) {
			continue
		}
		if address := e.Address(); !seen[address] {
			seen[address] = true
			out = append(out, e)
		}
	}
	return out
}

// same reports whether two snapshots lead calls to the same places and are both
// current, or out of date for the same cause.
func (s Snapshot) same(o Snapshot) bool {
	if (s.Err == nil) != (o.Err == nil) || cause(s.Err) != cause(o.Err) || s.Since.IsZero() != o.Since.IsZero() { //nolint:errorlint // causes are sentinels
		return false
	}
	return slices.EqualFunc(s.all, o.all, Endpoint.same)
}
