package mesh

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// joiner joins the reports of several goroutines, one update at a time, and updates the table.
// It has no goroutine: apply runs on the goroutines of the xDS client, the mapping reader and
// the Source.
type joiner struct {
	// Immutable once subscribed.
	source    *Source
	table     *registry.Table
	endpoints endpointSubscription

	// mu guards all fields below.
	mu    sync.Mutex
	state *joinState

	// The newest stream that reported anything, and how complete its report is.
	epoch, connection int
	clustersComplete  bool                // it reported all clusters
	pendingEndpoints  map[string]struct{} // EDS names that it has not reported
	compared          bool                // the table was replaced or compared in this epoch

	mapping         debug.Snapshot
	mappingComplete bool // the mapping was complete at least once
	synced          bool // the table was replaced at least once

	// Why service keys may be missing, as last reported to the table, and the rows of the
	// previous source that are kept for that reason.
	keysMissing error
	inherited   map[registry.Name]struct{}

	loggedConflicts int // how many keys were published for several hosts, as last logged
}

// endpointSubscription requests endpoints by EDS name.
type endpointSubscription interface {
	Watch(names ...string)
	Unwatch(names ...string)
}

// noSubscription requests nothing: the endpoints are inline in the clusters.
type noSubscription struct{}

func (noSubscription) Watch(...string) {}

func (noSubscription) Unwatch(...string) {}

func newJoiner(s *Source, table *registry.Table) *joiner {
	return &joiner{
		source: s, table: table, endpoints: noSubscription{},
		state:            newJoinState(s.o.Naming, s.o.Istiod),
		pendingEndpoints: map[string]struct{}{}, inherited: map[registry.Name]struct{}{},
	}
}

// subscribe subscribes to all clusters. Endpoints are subscribed to as hosts need them.
func (j *joiner) subscribe(ctx context.Context, c *ads.Client, d *Decoder) {
	clusters := ads.Subscribe(c, ads.Kind[*Cluster]{
		URL: ClusterType, Full: true, Decode: d.DecodeCluster,
	}, func(e ads.Event[*Cluster]) { j.apply(ctx, updateOfClusters(e)) })
	j.endpoints = ads.Subscribe(c, ads.Kind[*Assignment]{
		URL: EndpointType, Decode: d.DecodeAssignment,
	}, func(e ads.Event[*Assignment]) { j.apply(ctx, updateOfEndpoints(e)) })
	clusters.Watch(ads.Wildcard)
}

// awaitInterest joins all hosts again whenever the set of requested names changes. It returns
// once ctx or one of the reporting goroutines has ended.
func (j *joiner) awaitInterest(ctx context.Context, ended <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if err == nil && ctx.Err() == nil {
				err = errors.New("mesh: a reader stopped before it was cancelled")
			}
			return err
		case <-j.state.naming.Interest.Changed():
			j.state.naming.Interest.Names() // marks the new names as seen: the join covers them
			j.apply(ctx, update{rejoin: true})
		}
	}
}

// apply applies an update to the table and to the status. The reporting stream waits for it.
// Once ctx has ended it does nothing, because the table may have another owner.
func (j *joiner) apply(ctx context.Context, u update) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if u.epoch > j.epoch {
		j.beginEpoch(u)
	}
	isCurrent := u.epoch == j.epoch // otherwise u replays the report of an earlier stream
	j.clustersComplete = j.clustersComplete || isCurrent && u.complete
	if u.mapping != nil {
		j.mapping = *u.mapping
		j.mappingComplete = j.mappingComplete || u.mapping.Complete
		j.reportMissingKeys()
		j.logConflicts()
	}
	if u.unanswered != nil {
		j.table.Stale(fmt.Errorf("clusters: %w", u.unanswered))
		j.compared = false
	}
	j.state.apply(u)
	changes, watch, unwatch := j.state.joinDirty()
	if isCurrent {
		for name := range u.unknown {
			delete(j.pendingEndpoints, name)
		}
	}
	j.watchEndpoints(watch, unwatch)
	j.publish(changes)
	if u.disconnected != nil {
		j.table.Stale(u.disconnected)
	}
	j.reportReplicas()
	j.reportStatus()
}

// watchEndpoints changes the EDS names that are subscribed to.
func (j *joiner) watchEndpoints(added, removed []string) {
	for _, name := range added {
		j.pendingEndpoints[name] = struct{}{}
	}
	for _, name := range removed {
		delete(j.pendingEndpoints, name)
	}
	j.endpoints.Watch(added...)
	j.endpoints.Unwatch(removed...)
}

var errComparing = errors.New("comparing the services of a new stream with the known ones")

// beginEpoch starts the comparison of a new stream's reports with the table.
func (j *joiner) beginEpoch(u update) {
	j.epoch, j.clustersComplete, j.compared = u.epoch, false, false
	if u.connection != j.connection {
		j.connection = u.connection
		j.table.Dialed()
	}
	for name := range j.state.hostsByEDSName {
		j.pendingEndpoints[name] = struct{}{}
	}
	if j.synced {
		j.table.Stale(errComparing)
	}
}
