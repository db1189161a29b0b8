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

// loop joins what several goroutines report, one event after the other, and keeps
// the table up to date.
type loop struct {
	mu        sync.Mutex // guards what follows
	source    *Source
	table     *registry.Table
	state     *state
	endpoints subscription

	epoch, connection int

	listed   bool                // the stream reported all clusters
	missing  map[string]struct{} // endpoints that are needed and that the stream has not reported
	mapped   bool                // the mapping was complete at least once
	synced   bool                // the table was
	complete bool                // it was compared with all that this stream reported
	mapping  debug.Snapshot
	// keysMissing is why the table says that keys may be missing.
	keysMissing error
	inherited   map[registry.Name]struct{} // rows of the source before, of which nothing can be known
	replicas    []string
	conflicts   int // of keys that are published for several hosts, when they were logged last
}

// A subscription asks for endpoints by EDS name.
type subscription interface {
	Watch(names ...string)
	Unwatch(names ...string)
}

// run joins everything anew whenever other names are asked for, until ctx ends or
// one of those that report does.
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
			l.apply(ctx, update{all: true})
		}
	}
}

// apply acts on an update. Until it returns, the stream that reports it waits. After
// ctx ended the table is somebody else's.
func (l *loop) apply(ctx context.Context, u update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if u.all {
		l.state.touchAll()
	}
	l.act(u)
	l.report()
}

var errComparing = errors.New("comparing what a new stream reports with what was known")

func (l *loop) act(u update) {
	if u.epoch > l.epoch {
		l.begin(u)
	}
	isCurrent := u.epoch == l.epoch // and not what an earlier stream reported, said again
	l.listed = l.listed || isCurrent && u.complete
	if u.mapping != nil {
		l.mapping = *u.mapping
		l.mapped = l.mapped || u.mapping.Complete
		l.reportMissingKeys()
		l.logConflicts()
	}
	if u.failure != nil {
		l.table.Stale(fmt.Errorf("clusters: %w", u.failure))
		l.complete = false
	}
	l.state.apply(u)
	changes, watch, unwatch := l.state.joinDirty()
	if isCurrent {
		for name := range u.silent {
			delete(l.missing, name)
		}
	}
	for _, name := range watch {
		l.missing[name] = struct{}{}
	}
	for _, name := range unwatch {
		delete(l.missing, name)
	}
	l.endpoints.Watch(watch...)
	l.endpoints.Unwatch(unwatch...)
	l.publish(changes)
	if u.lost != nil {
		l.table.Stale(u.lost)
	}
	l.reportReplicas()
}

// begin starts the comparison of what a new stream reports with what was known.
func (l *loop) begin(u update) {
	l.epoch, l.listed, l.complete = u.epoch, false, false
	if u.connection != l.connection {
		l.connection = u.connection
		l.table.Dialed()
	}
	for name := range l.state.users {
		l.missing[name] = struct{}{}
	}
	if l.synced {
		l.table.Stale(errComparing)
	}
}

// publish brings the table in line with the rows. Until a stream reported
// everything, nothing is taken out; then what is missing was found missing.
func (l *loop) publish(changes []change) {
	for _, c := range changes {
		if _, ours := l.inherited[c.name()]; ours && c.now.service != nil {
			l.release(c.name())
		}
		l.note(c)
	}
	for name, reason := range l.state.odd {
		l.table.Skip(name, reason)
	}
	clear(l.state.odd)
	replaces := !l.complete && l.listed && l.mapped && len(l.missing) == 0
	var gone []registry.Name
	if l.complete {
		// A mesh that is empty from one moment to the next is taken for one that
		// istiod cannot see, not for one that was taken down service by service.
		replaces = l.state.empty() && len(changes) > 0
		if !replaces {
			gone = takenBack(changes)
		}
	}
	l.table.Apply(changed(changes), gone)
	if replaces {
		l.replaceTable()
	}
	l.answer(changes)
}

// answer reports the names of which the table shows everything: the stream reported
// every cluster, and the endpoints of those that the name stands for.
func (l *loop) answer(changes []change) {
	interest := l.state.naming.Interest
	if interest == nil || !l.listed || !l.mapped {
		return
	}
	answers := make(map[string]error)
	for _, name := range interest.Unreported() {
		answers[name] = nil
	}
	for _, c := range changes { // what became of names that were reported before
		for _, name := range l.state.namesOf(c.address) {
			answers[name] = nil
		}
	}
	for a, r := range l.state.rows {
		for _, name := range l.state.namesOf(a) {
			if _, ok := answers[name]; ok && r.unknown != nil {
				answers[name] = r.unknown
			}
		}
	}
	l.withhold(answers)
	interest.Report(answers)
}

// withhold takes out the names of which endpoints are still asked for.
func (l *loop) withhold(answers map[string]error) {
	for eds := range l.missing {
		for _, a := range l.state.users[eds] {
			for _, name := range l.state.namesOf(a) {
				delete(answers, name)
			}
		}
	}
}

// replaceTable makes the table hold what a whole stream reported.
func (l *loop) replaceTable() {
	services := l.state.services()
	l.table.Replace(slices.Values(slices.Concat(services, l.inherit(services))))
	if !l.synced {
		l.source.o.Log.Info("mesh is synced", "services", len(services), "epoch", l.epoch)
	}
	l.synced, l.complete = true, true
}

// inherit returns the rows of the source before that this one has never reported while
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
		if _, ours := l.inherited[name]; ours || !l.synced {
			l.inherited[name] = struct{}{}
			l.table.Unknown(string(name), l.keysMissing)
			rows = append(rows, s)
		}
	}
	return rows
}

// release ends that a row is inherited.
func (l *loop) release(name registry.Name) {
	delete(l.inherited, name)
	l.table.Unknown(string(name), nil)
}

// takenBack returns what was withdrawn while we listened.
func takenBack(changes []change) []registry.Name {
	var gone []registry.Name
	for _, c := range changes {
		if c.now.service == nil && c.now.unknown == nil && c.before.service != nil {
			gone = append(gone, c.name())
		}
	}
	return gone
}

// changed returns the services that are new or different.
func changed(changes []change) []*registry.Service {
	var put []*registry.Service
	for _, c := range changes {
		if c.now.service != nil && c.now.service != c.before.service {
			put = append(put, c.now.service)
		}
	}
	return put
}

// note reports to the table what was left out, and what cannot be known. That
// endpoints are still to come is not reported before the table is synced.
func (l *loop) note(c change) {
	if c.now.skipped != c.before.skipped {
		l.table.Skip(string(c.name()), c.now.skipped)
	}
	isPending := !l.synced && (c.now.unknown == nil || errors.Is(c.now.unknown, errEndpointsPending)) &&
		(c.before.unknown == nil || errors.Is(c.before.unknown, errEndpointsPending))
	if !isPending && !errors.Is(c.now.unknown, c.before.unknown) {
		l.table.Unknown(string(c.name()), c.now.unknown)
	}
}

func (l *loop) reportReplicas() {
	if l.source.o.Replicas == nil {
		return
	}
	now := l.state.replicas()
	if len(now) > 0 && !slices.Equal(now, l.replicas) {
		l.replicas = now
		l.source.mu.Lock()
		l.source.replicas = now
		l.source.mu.Unlock()
		l.source.o.Replicas(slices.Clone(now))
	}
}

// keysScope is the scope that is unknown while keys may be missing. It is the name
// of no service: services that are known are kept up to date, and only entries of
// services that were never reported since our start have to stay.
const keysScope = "service keys"

var errKeysReturn = errors.New("an istiod came up lately, and its clients may not all have come back to publish their service keys")

// reportMissingKeys reports to the table whether keys may be missing from a mapping
// that is complete.
func (l *loop) reportMissingKeys() {
	err := l.mapping.Unread
	if !l.mapping.Restarting.IsZero() {
		err = errKeysReturn
	}
	if (err == nil) != (l.keysMissing == nil) || err != nil && err.Error() != l.keysMissing.Error() {
		l.keysMissing = err
		l.table.Unknown(keysScope, err)
	}
	if err == nil && len(l.inherited) > 0 {
		for name := range l.inherited {
			l.release(name)
		}
		l.complete = false // what is missing by now is not there
	}
}

// logConflicts logs when clients begin to publish different hosts for one key.
func (l *loop) logConflicts() {
	conflicts := l.mapping.Mapping.Conflicts()
	if len(conflicts) > l.conflicts {
		c := conflicts[0]
		l.source.o.Log.Warn("service keys are published for several hosts, all of them are taken",
			"keys", len(conflicts), "such_as", c.Key.String(), "hosts", len(c.Addresses))
	}
	l.conflicts = len(conflicts)
}

func (l *loop) report() {
	status := Status{
		Complete: l.complete, Epoch: l.epoch, Clusters: len(l.state.hosts), Services: l.state.count,
		Needed: len(l.state.users), Waiting: len(l.missing), Mapping: l.mapping,
	}
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	l.source.status = status
}

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
