package mesh

import (
	"cmp"
	"errors"
	"maps"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// An update is what one event reports.
type update struct {
	epoch       int                    // of the stream that reports; 0 where none does
	connection  int                    // that the stream is on
	clusters    map[string]*Cluster    // nil where gone
	assignments map[string]*Assignment // nil where withdrawn
	rejected    map[string]error       // clusters; nil where that ended
	silent      map[string]error       // endpoints, of each that is reported; nil where that ended
	complete    bool                   // the stream reported all clusters
	failure     error                  // why the clusters cannot be known
	lost        error                  // why there is no stream
	mapping     *debug.Snapshot        // nil: as it was
	all         bool                   // every host is to be joined anew
}

var errTakenBack = errors.New("istiod took its endpoints back and still lists the cluster")

func updateOfClusters(e ads.Event[*Cluster]) update {
	if err := cmp.Or(e.Disconnected, e.Ended); err != nil {
		return update{lost: err}
	}
	u := update{epoch: e.Epoch, connection: e.Connection, complete: e.Complete, clusters: make(map[string]*Cluster), rejected: make(map[string]error)}
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
		u.failure = e.Unknown[ads.Wildcard]
	}
	return u
}

func updateOfEndpoints(e ads.Event[*Assignment]) update {
	if err := cmp.Or(e.Disconnected, e.Ended); err != nil {
		return update{lost: err}
	}
	u := update{epoch: e.Epoch, connection: e.Connection, assignments: make(map[string]*Assignment), silent: make(map[string]error)}
	for _, r := range e.Changed {
		u.assignments[r.Name], u.silent[r.Name] = r.Value, nil
	}
	for _, name := range e.Confirmed {
		u.silent[name] = nil
	}
	for _, name := range e.Removed {
		u.silent[name] = errTakenBack // what is held stays until the cluster goes as well
	}
	maps.Copy(u.silent, e.Invalid)
	maps.Copy(u.silent, e.Unknown)
	return u
}

func updateOfReader(c Changes) update {
	u := update{
		epoch: c.Epoch, connection: c.Connection, clusters: c.Clusters, rejected: make(map[string]error),
		complete: c.Complete, lost: c.Lost, mapping: c.Mapping,
	}
	for name := range c.Clusters {
		u.rejected[name] = nil
	}
	maps.Copy(u.rejected, c.Rejected)
	return u
}
