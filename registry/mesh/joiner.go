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

// joiner joins what several goroutines report, one event after the other, and updates
// the table.
type joiner struct {
	mu        sync.Mutex // guards what follows
	source    *Source
	table     *registry.Table
	state     *joinState
	endpoints endpointSubscription

	epoch, connection int

	clustersComplete bool                // the stream reported all clusters
	pendingEndpoints map[string]struct{} // EDS names that the stream has not reported
	mappingComplete  bool                // the mapping was complete at least once
	synced           bool                // the table was
	compared         bool                // the table was compared with all that this stream reported
	mapping          debug.Snapshot

	keysMissing     error                      // why keys may be missing, as the table has it
	inherited       map[registry.Name]struct{} // rows of the source before, of which nothing can be known
	loggedConflicts int                        // of keys that are published for several hosts, as last logged
}

// endpointSubscription asks for endpoints by EDS name.
type endpointSubscription interface {
	Watch(names ...string)
	Unwatch(names ...string)
}

// noSubscription subscribes to nothing: the endpoints are inline in the clusters.
type noSubscription struct{}

func (noSubscription) Watch(...string) {}

func (noSubscription) Unwatch(...string) {}

func newJoiner(s *Source, table *registry.Table) *joiner {
	return &joiner{
		source: s, table: table, endpoints: noSubscription{}, state: newJoinState(s.o.Naming, s.o.Istiod),
		pendingEndpoints: map[string]struct{}{}, inherited: map[registry.Name]struct{}{},
	}
}

func (j *joiner) subscribe(ctx context.Context, c *ads.Client, d *Decoder) {
	clusters := ads.Subscribe(c, ads.Kind[*Cluster]{
		URL: ClusterType, Full: true, Decode: d.DecodeCluster,
	}, func(e ads.Event[*Cluster]) { j.apply(ctx, updateOfClusters(e)) })
	j.endpoints = ads.Subscribe(c, ads.Kind[*Assignment]{
		URL: EndpointType, Decode: d.DecodeAssignment,
	}, func(e ads.Event[*Assignment]) { j.apply(ctx, updateOfEndpoints(e)) })
	clusters.Watch(ads.Wildcard)
}

// awaitInterest joins all hosts again whenever other names are asked for, until ctx or one of
// the reporting goroutines ends.
func (j *joiner) awaitInterest(ctx context.Context, ended <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if err == nil && ctx.Err() == nil {
				err = errors.New("mesh: a part of the source ended by itself")
			}
			return err
		case <-j.state.naming.Interest.Changed():
			j.state.naming.Interest.Names() // from here on they are among the rows
			j.apply(ctx, update{rejoin: true})
		}
	}
}

// apply applies an update and reports the status. The stream that reports it waits
// for that. After ctx ended the table may have another owner.
func (j *joiner) apply(ctx context.Context, u update) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if u.epoch > j.epoch {
		j.beginEpoch(u)
	}
	isCurrent := u.epoch == j.epoch // and not a replay of what an earlier stream reported
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

var errComparing = errors.New("comparing what a new stream reports with what was known")

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
