package mesh

import (
	"cmp"
	"errors"
	"maps"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// update is the content of one event, whichever source reported it.
type update struct {
	// The stream or full read that reported it; 0: neither.
	epoch, connection int

	// Changed resources: clusters by name, assignments by EDS name.
	clusters    map[string]*Cluster // nil value: removed
	assignments map[string]*Assignment

	// Errors by the same names. A nil error clears an earlier one.
	rejected map[string]error // why a cluster was rejected
	unknown  map[string]error // why endpoints are not known; has every reported EDS name

	complete     bool  // all clusters were reported in this epoch
	unanswered   error // why the clusters are not known
	disconnected error // why there is no stream

	mapping *debug.Snapshot // nil: unchanged
	rejoin  bool            // every host has to be joined again
}

var errRemoved = errors.New("istiod removed its endpoints and still lists the cluster")

func updateOfClusters(e ads.Event[*Cluster]) update {
	if err := cmp.Or(e.Disconnected, e.Ended); err != nil {
		return update{disconnected: err}
	}
	u := update{
		epoch: e.Epoch, connection: e.Connection, complete: e.Complete,
		clusters: make(map[string]*Cluster), rejected: make(map[string]error),
	}
	for _, r := range e.Changed {
		u.clusters[r.Name], u.rejected[r.Name] = r.Value, nil
	}
	for _, name := range e.Confirmed {
		u.rejected[name] = nil
	}
	for _, name := range e.Removed {
		u.clusters[name], u.rejected[name] = nil, nil
	}
	maps.Copy(u.rejected, e.Invalid)
	if !e.Complete {
		u.unanswered = e.Unknown[ads.Wildcard]
	}
	return u
}

func updateOfEndpoints(e ads.Event[*Assignment]) update {
	if err := cmp.Or(e.Disconnected, e.Ended); err != nil {
		return update{disconnected: err}
	}
	u := update{
		epoch: e.Epoch, connection: e.Connection,
		assignments: make(map[string]*Assignment), unknown: make(map[string]error),
	}
	for _, r := range e.Changed {
		u.assignments[r.Name], u.unknown[r.Name] = r.Value, nil
	}
	for _, name := range e.Confirmed {
		u.unknown[name] = nil
	}
	for _, name := range e.Removed {
		u.unknown[name] = errRemoved // the endpoints are kept until the cluster is removed too
	}
	maps.Copy(u.unknown, e.Invalid)
	maps.Copy(u.unknown, e.Unknown)
	return u
}

func updateOfReader(c Changes) update {
	u := update{
		epoch: c.Epoch, connection: c.Connection, clusters: c.Clusters, rejected: make(map[string]error),
		complete: c.Complete, disconnected: c.Lost, mapping: c.Mapping,
	}
	for name := range c.Clusters {
		u.rejected[name] = nil
	}
	maps.Copy(u.rejected, c.Rejected)
	return u
}
