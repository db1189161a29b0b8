package client

import (
	"slices"
	"time"
)

// Snapshot is the whole answer to a query: an endpoint that it does not contain is not known
// to exist.
type Snapshot struct {
	Query Query

	// Endpoints are the endpoints that may be called, sorted and each address once: an address
	// of several services belongs to the first. Endpoints of weight 0 are left out while there
	// are others.
	Endpoints []Endpoint

	// Err says why the snapshot may be out of date or incomplete; nil while it is current.
	// In each case the endpoints are the last known.
	Err error

	// Since is when the registry last confirmed the whole answer. It is set for an answer of
	// the state file, and while an endpoint known from before an outage is not reported again.
	// It is zero once every endpoint is reported, or dropped after Options.ForgetAfter.
	Since time.Time

	all []Endpoint
}

// All returns every reported endpoint, by address and service. It includes those of weight
// 0, and an address once for each service at it.
func (s Snapshot) All() []Endpoint { return slices.Clone(s.all) }

// shows reports whether the registry now reports the address of an instance. Unconfirmed
// endpoints do not count.
func (s Snapshot) shows(i Instance) bool {
	return slices.ContainsFunc(s.all, func(e Endpoint) bool {
		return e.Host == i.Host && e.Port == i.Port && !e.unconfirmed
	})
}

// callable returns the endpoints that may be called, as Snapshot.Endpoints defines them.
func callable(all []Endpoint) []Endpoint {
	calls := func(e Endpoint) bool { return e.Weight.share() > 0 }
	weighted := slices.ContainsFunc(all, calls)
	seen := make(map[string]bool, len(all))
	out := make([]Endpoint, 0, len(all))
	for _, e := range all {
		if weighted && !calls(e) {
			continue
		}
		if address := e.Address(); !seen[address] {
			seen[address] = true
			out = append(out, e)
		}
	}
	return out
}

// same reports whether two snapshots have the same endpoints and are both current, or out of
// date for the same cause.
func (s Snapshot) same(o Snapshot) bool {
	if (s.Err == nil) != (o.Err == nil) || s.Since.IsZero() != o.Since.IsZero() {
		return false
	}
	if cause(s.Err) != cause(o.Err) { //nolint:errorlint // causes are sentinels
		return false
	}
	return slices.EqualFunc(s.all, o.all, Endpoint.same)
}
