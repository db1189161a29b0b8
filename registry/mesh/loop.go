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

// loop joins what several goroutines report, one event after the other, and updates
// the table.
type loop struct {
	mu        sync.Mutex // guards what follows
	source    *Source
	table     *registry.Table
	state     *state
	endpoints subscription

	epoch, connection int

	listed   bool                // the stream reported all clusters
	pending  map[string]struct{} // EDS names that the stream has not reported
	mapped   bool                // the mapping was complete at least once
	synced   bool                // the table was
	complete bool                // the table was compared with all that this stream reported
	mapping  debug.Snapshot

	keysMissing error                      // why keys may be missing, as the table has it
	inherited   map[registry.Name]struct{} // rows of the source before, of which nothing can be known
	conflicts   int                        // of keys that are published for several hosts, as last logged
}

// subscription asks for endpoints by EDS name.
type subscription interface {
	Watch(names ...string)
	Unwatch(names ...string)
}

// noSubscription subscribes to nothing: the endpoints are inline in the clusters.
type noSubscription struct{}

func (noSubscription) Watch(...string)   {}
func (noSubscription) Unwatch(...string) {}

func newLoop(s *Source, table *registry.Table) *loop {
	return &loop{
		source: s, table: table, endpoints: noSubscription{}, state: newState(s.o.Naming, s.o.Istiod),
		pending: map[string]struct{}{}, inherited: map[registry.Name]struct{}{},
	}
}

func (l *loop) subscribe(ctx context.Context, c *ads.Client, d *Decoder) {
	clusters := ads.Subscribe(c, ads.Kind[*Cluster]{
		URL: ClusterType, Full: true, Decode: d.DecodeCluster,
	}, func(e ads.Event[*Cluster]) { l.apply(ctx, updateOfClusters(e)) })
	l.endpoints = ads.Subscribe(c, ads.Kind[*Assignment]{
		URL: EndpointType, Decode: d.DecodeAssignment,
	}, func(e ads.Event[*Assignment]) { l.apply(ctx, updateOfEndpoints(e)) })
	clusters.Watch(ads.Wildcard)
}

// run joins all hosts again whenever other names are asked for, until ctx or one of
// the reporting goroutines ends.
func (l *loop) run(ctx context.Context, ended <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if err == nil && ctx.Err() == nil {
				err = errors.New("mesh: a part of the source ended by itself")
			}
			return err
		case <-l.state.naming.Interest.Changed():
			l.state.naming.Interest.Names() // from here on they are among the rows
			l.apply(ctx, update{rejoin: true})
		}
	}
}

// apply applies an update and reports the status. The stream that reports it waits
// for that. After ctx ended the table may have another owner.
func (l *loop) apply(ctx context.Context, u update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if u.epoch > l.epoch {
		l.begin(u)
	}
	isCurrent := u.epoch == l.epoch // and not a replay of what an earlier stream reported
	l.listed = l.listed || isCurrent && u.complete
	if u.mapping != nil {
		l.mapping = *u.mapping
		l.mapped = l.mapped || u.mapping.Complete
		l.reportMissingKeys()
		l.logConflicts()
	}
	if u.unanswered != nil {
		l.table.Stale(fmt.Errorf("clusters: %w", u.unanswered))
		l.complete = false
	}
	l.state.apply(u)
	changes, watch, unwatch := l.state.joinDirty()
	if isCurrent {
		for name := range u.unknown {
			delete(l.pending, name)
		}
	}
	l.watch(watch, unwatch)
	l.publish(changes)
	if u.disconnected != nil {
		l.table.Stale(u.disconnected)
	}
	l.reportReplicas()
	l.reportStatus()
}

func (l *loop) watch(added, removed []string) {
	for _, name := range added {
		l.pending[name] = struct{}{}
	}
	for _, name := range removed {
		delete(l.pending, name)
	}
	l.endpoints.Watch(added...)
	l.endpoints.Unwatch(removed...)
}

var errComparing = errors.New("comparing what a new stream reports with what was known")

func (l *loop) begin(u update) {
	l.epoch, l.listed, l.complete = u.epoch, false, false
	if u.connection != l.connection {
		l.connection = u.connection
		l.table.Dialed()
	}
	for name := range l.state.users {
		l.pending[name] = struct{}{}
	}
	if l.synced {
		l.table.Stale(errComparing)
	}
}

// publish writes the changes into the table. Nothing is removed before the stream
// reported everything; then the table is replaced.
func (l *loop) publish(changes []change) {
	changed, removed := servicesOf(changes)
	for _, c := range changes {
		l.reportRow(c)
	}
	for name, reason := range l.state.skipped {
		l.table.Skip(name, reason)
	}
	clear(l.state.skipped)
	replace := !l.complete && l.listed && l.mapped && len(l.pending) == 0
	if l.complete {
		// If all services are gone at once, istiod rather cannot see them: a replacement
		// is a weaker proof than a removal.
		replace = len(l.state.hosts) == 0 && len(changes) > 0
	}
	if replace || !l.complete {
		removed = nil
	}
	l.table.Apply(changed, removed)
	if replace {
		l.replaceTable()
	}
	l.reportInterest(changes)
}

// servicesOf returns the services that are new or different, and those whose removal
// was reported.
func servicesOf(changes []change) (changed []*registry.Service, removed []registry.Name) {
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
func (l *loop) reportRow(c change) {
	if _, inherited := l.inherited[c.name()]; inherited && c.now.service != nil {
		l.release(c.name())
	}
	if c.now.skipped != c.before.skipped {
		l.table.Omit(string(c.name()), c.now.skipped)
	}
	isPending := !l.synced && (c.now.unknown == nil || errors.Is(c.now.unknown, errEndpointsPending)) &&
		(c.before.unknown == nil || errors.Is(c.before.unknown, errEndpointsPending))
	if !isPending && !errors.Is(c.now.unknown, c.before.unknown) {
		l.table.Unknown(string(c.name()), c.now.unknown)
	}
}

func (l *loop) replaceTable() {
	services := l.state.services()
	l.table.Replace(slices.Values(slices.Concat(services, l.inherit(services))))
	if !l.synced {
		l.source.o.Log.Info("mesh is synced", "services", len(services), "epoch", l.epoch)
	}
	l.synced, l.complete = true, true
}

// inherit returns the rows of the source before that this one never reported, if
// keys may be missing: theirs may be among them. It reports them as unknown.
func (l *loop) inherit(services []*registry.Service) (rows []*registry.Service) {
	if l.keysMissing == nil || l.synced && len(l.inherited) == 0 {
		return nil
	}
	table, _ := l.table.Snapshot()
	for _, s := range services {
		delete(table, s.Name)
	}
	for name, s := range table {
		if _, inherited := l.inherited[name]; inherited || !l.synced {
			l.inherited[name] = struct{}{}
			l.table.Unknown(string(name), l.keysMissing)
			rows = append(rows, s)
		}
	}
	return rows
}

func (l *loop) release(name registry.Name) {
	delete(l.inherited, name)
	l.table.Unknown(string(name), nil)
}

// reportInterest reports the names of which the table shows everything: the stream
// reported all clusters, and the endpoints of those that the name means.
func (l *loop) reportInterest(changes []change) {
	interest := l.state.naming.Interest
	if interest == nil || !l.listed || !l.mapped {
		return
	}
	known := make(map[string]error)
	for _, name := range interest.Unreported() {
		known[name] = nil
	}
	for _, c := range changes { // names that were reported before
		for _, name := range l.state.namesOf(c.address) {
			known[name] = nil
		}
	}
	for a, r := range l.state.rows {
		for _, name := range l.state.namesOf(a) {
			if _, ok := known[name]; ok && r.unknown != nil {
				known[name] = r.unknown
			}
		}
	}
	l.deletePending(known)
	interest.Report(known)
}

// deletePending deletes the names with pending endpoints.
func (l *loop) deletePending(known map[string]error) {
	for edsName := range l.pending {
		for _, a := range l.state.users[edsName] {
			for _, name := range l.state.namesOf(a) {
				delete(known, name)
			}
		}
	}
}

func (l *loop) reportReplicas() {
	now := l.state.replicas()
	if l.source.o.Replicas != nil && len(now) > 0 && l.source.setReplicas(now) {
		l.source.o.Replicas(slices.Clone(now))
	}
}

// keysScope is the scope that is unknown while keys may be missing. It is no
// service: known services are kept current, and only entries of services that were
// never reported since our start are kept.
const keysScope = "service keys"

var errIstiodRestarted = errors.New("an istiod came up lately, and its clients may not all have come back to publish their service keys")

// reportMissingKeys reports whether keys may be missing from a complete mapping.
func (l *loop) reportMissingKeys() {
	err := l.mapping.Unread
	if !l.mapping.Restarting.IsZero() {
		err = errIstiodRestarted
	}
	if (err == nil) != (l.keysMissing == nil) || err != nil && err.Error() != l.keysMissing.Error() {
		l.keysMissing = err
		l.table.Unknown(keysScope, err)
	}
	if err == nil && len(l.inherited) > 0 {
		for name := range l.inherited {
			l.release(name)
		}
		l.complete = false // what is missing by now does not exist
	}
}

func (l *loop) logConflicts() {
	conflicts := l.mapping.Mapping.Conflicts()
	if len(conflicts) > l.conflicts {
		c := conflicts[0]
		l.source.o.Log.Info("service keys are published for several hosts, all of them are used", // as in each migration
			"keys", len(conflicts), "such_as", c.Key.String(), "hosts", len(c.Addresses))
	}
	l.conflicts = len(conflicts)
}

func (l *loop) reportStatus() {
	l.source.setStatus(Status{
		Complete: l.complete, Epoch: l.epoch, Clusters: len(l.state.hosts), Services: l.state.count,
		Requested: len(l.state.users), Pending: len(l.pending), Mapping: l.mapping,
	})
}
