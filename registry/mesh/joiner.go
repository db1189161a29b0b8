package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// update is what one event reports.
type update struct {
	epoch        int                 // of the stream that reports; 0: none
	connection   int                 // of that stream
	clusters     map[string]*Cluster // nil: gone
	assignments  map[string]*Assignment
	rejected     map[string]error // clusters; nil: no longer
	unknown      map[string]error // endpoints, of each that is reported; nil: known
	complete     bool             // the stream reported all clusters
	unanswered   error            // why the clusters are not known
	disconnected error            // why there is no stream
	mapping      *debug.Snapshot  // nil: unchanged
	rejoin       bool             // every host
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
	u := update{epoch: e.Epoch, connection: e.Connection, assignments: make(map[string]*Assignment), unknown: make(map[string]error)}
	for _, r := range e.Changed {
		u.assignments[r.Name], u.unknown[r.Name] = r.Value, nil
	}
	for _, name := range e.Confirmed {
		u.unknown[name] = nil
	}
	for _, name := range e.Removed {
		u.unknown[name] = errRemoved // the endpoints are kept until the cluster is gone too
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

func (noSubscription) Watch(...string)   {}
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

// publish writes the changes into the table. Nothing is removed before the stream
// reported everything; then the table is replaced.
func (j *joiner) publish(changes []rowChange) {
	changed, removed := changedServices(changes)
	for _, c := range changes {
		j.reportRow(c)
	}
	for name, reason := range j.state.skipped {
		j.table.Skip(name, reason)
	}
	clear(j.state.skipped)
	replace := !j.compared && j.clustersComplete && j.mappingComplete && len(j.pendingEndpoints) == 0
	if j.compared {
		// If all services are gone at once, istiod rather cannot see them: a replacement
		// is a weaker proof than a removal.
		replace = len(j.state.hosts) == 0 && len(changes) > 0
	}
	if replace || !j.compared {
		removed = nil
	}
	j.table.Apply(changed, removed)
	if replace {
		j.replaceTable()
	}
	j.reportInterest(changes)
}

// changedServices returns the services that are new or different, and those whose removal
// was reported.
func changedServices(changes []rowChange) (changed []*registry.Service, removed []registry.Name) {
	for _, c := range changes {
		switch {
		case c.now.service != nil && c.now.service != c.before.service:
			changed = append(changed, c.now.service)
		case c.now.service == nil && c.now.unknown == nil && c.before.service != nil:
			removed = append(removed, c.name())
		}
	}
	return changed, removed
}

// reportRow reports what was left out of a row, and what is unknown. Pending
// endpoints are not reported before the table is synced.
func (j *joiner) reportRow(c rowChange) {
	if _, inherited := j.inherited[c.name()]; inherited && c.now.service != nil {
		j.releaseInherited(c.name())
	}
	if c.now.skipped != c.before.skipped {
		j.table.Omit(string(c.name()), c.now.skipped)
	}
	isPending := !j.synced && (c.now.unknown == nil || errors.Is(c.now.unknown, errEndpointsPending)) &&
		(c.before.unknown == nil || errors.Is(c.before.unknown, errEndpointsPending))
	if !isPending && !errors.Is(c.now.unknown, c.before.unknown) {
		j.table.Unknown(string(c.name()), c.now.unknown)
	}
}

func (j *joiner) replaceTable() {
	services := j.state.services()
	j.table.Replace(slices.Values(slices.Concat(services, j.inheritedRows(services))))
	if !j.synced {
		j.source.o.Log.Info("mesh is synced", "services", len(services), "epoch", j.epoch)
	}
	j.synced, j.compared = true, true
}

// inheritedRows returns the rows of the source before that this one never reported, if
// keys may be missing: theirs may be among them. It reports them as unknown.
func (j *joiner) inheritedRows(services []*registry.Service) (rows []*registry.Service) {
	if j.keysMissing == nil || j.synced && len(j.inherited) == 0 {
		return nil
	}
	table, _ := j.table.Snapshot()
	for _, s := range services {
		delete(table, s.Name)
	}
	for name, s := range table {
		if _, inherited := j.inherited[name]; inherited || !j.synced {
			j.inherited[name] = struct{}{}
			j.table.Unknown(string(name), j.keysMissing)
			rows = append(rows, s)
		}
	}
	return rows
}

func (j *joiner) releaseInherited(name registry.Name) {
	delete(j.inherited, name)
	j.table.Unknown(string(name), nil)
}

// reportInterest reports the names of which the table shows everything: the stream
// reported all clusters, and the endpoints of those that the name means.
func (j *joiner) reportInterest(changes []rowChange) {
	interest := j.state.naming.Interest
	if interest == nil || !j.clustersComplete || !j.mappingComplete {
		return
	}
	known := make(map[string]error)
	for _, name := range interest.Unreported() {
		known[name] = nil
	}
	for _, c := range changes { // names that were reported before
		for _, name := range j.state.interestNames(c.address) {
			known[name] = nil
		}
	}
	for a, r := range j.state.rows {
		for _, name := range j.state.interestNames(a) {
			if _, ok := known[name]; ok && r.unknown != nil {
				known[name] = r.unknown
			}
		}
	}
	j.deletePendingNames(known)
	interest.Report(known)
}

// deletePendingNames deletes the names with pending endpoints.
func (j *joiner) deletePendingNames(known map[string]error) {
	for edsName := range j.pendingEndpoints {
		for _, a := range j.state.hostsByEDSName[edsName] {
			for _, name := range j.state.interestNames(a) {
				delete(known, name)
			}
		}
	}
}

func (j *joiner) reportReplicas() {
	now := j.state.replicas()
	if j.source.o.Replicas != nil && len(now) > 0 && j.source.setReplicas(now) {
		j.source.o.Replicas(slices.Clone(now))
	}
}

// keysScope is the scope that is unknown while keys may be missing. It is no
// service: known services are kept current, and only entries of services that were
// never reported since our start are kept.
const keysScope = "service keys"

var errIstiodRestarted = errors.New("an istiod came up lately, and its clients may not all have come back to publish their service keys")

// reportMissingKeys reports whether keys may be missing from a complete mapping.
func (j *joiner) reportMissingKeys() {
	err := j.mapping.Unread
	if !j.mapping.Restarting.IsZero() {
		err = errIstiodRestarted
	}
	if (err == nil) != (j.keysMissing == nil) || err != nil && err.Error() != j.keysMissing.Error() {
		j.keysMissing = err
		j.table.Unknown(keysScope, err)
	}
	if err == nil && len(j.inherited) > 0 {
		for name := range j.inherited {
			j.releaseInherited(name)
		}
		j.compared = false // what is missing by now does not exist
	}
}

func (j *joiner) logConflicts() {
	conflicts := j.mapping.Mapping.Conflicts()
	if len(conflicts) > j.loggedConflicts {
		c := conflicts[0]
		j.source.o.Log.Info("service keys are published for several hosts, all of them are used", // as in each migration
			"keys", len(conflicts), "such_as", c.Key.String(), "hosts", len(c.Addresses))
	}
	j.loggedConflicts = len(conflicts)
}

func (j *joiner) reportStatus() {
	j.source.setStatus(Status{
		Complete: j.compared, Epoch: j.epoch, Clusters: len(j.state.hosts), Services: j.state.serviceCount,
		Requested: len(j.state.hostsByEDSName), Pending: len(j.pendingEndpoints), Mapping: j.mapping,
	})
}
