package client

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// index holds the services of the table by the queries that they answer. It may be used from
// any goroutine.
type index struct {
	reader *registry.Reader

	// A query that finds no service is unknown while any scope is; otherwise only while the
	// scope "*" is.
	anyScopeHides bool

	mu        sync.Mutex
	services  map[registry.Name]*registry.Service
	answers   map[Query]map[registry.Name]struct{}
	watches   map[Query]map[*Watch]struct{}
	certainty registry.Certainty
	doubts    doubts
}

// finding is what the index holds for a query.
type finding struct {
	services   []*registry.Service // by name
	stale      error               // why all services may be out of date
	unknown    error               // why some of the services cannot be known
	synced     bool                // the source reported everything at least once
	onlyDoubts bool                // all endpoints are doubted
	complete   bool                // the source reported the whole answer at least once

	unconfirmed map[doubted]time.Time // as doubts.unconfirmed returns it
}

func newIndex(t *registry.Table, doubt time.Duration) *index {
	return &index{
		doubts: newDoubts(doubt), reader: t.Reader(), services: make(map[registry.Name]*registry.Service),
		answers: make(map[Query]map[registry.Name]struct{}), watches: make(map[Query]map[*Watch]struct{}),
	}
}

// drain reads what the source has reported and wakes the affected watches.
func (x *index) drain() {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.reader.Drain()
	changed, back := x.updateCertainty(d)
	x.renewDoubts(d, back)
	woken := make(map[*Watch]struct{})
	for name, row := range d.Rows {
		before, now := x.services[name], row.Service
		for _, q := range slices.Concat(queries(before), queries(now)) {
			maps.Copy(woken, x.watches[q])
		}
		x.replace(name, before, now)
	}
	for name := range x.doubts.endpoints { // endpoints without a new report stay doubted
		x.doubts.confirm(name, x.services[name])
	}
	if changed || back { // every watch is affected
		for _, all := range x.watches {
			maps.Copy(woken, all)
		}
	}
	for w := range woken {
		w.signal()
	}
}

// renewDoubts doubts the endpoints that are known from before an outage. It also doubts those from
// before the registry became unable to report them, as while the parent of all services is missing.
func (x *index) renewDoubts(d registry.Delta, back bool) {
	switch {
	case d.Stale != nil:
		x.doubts.pause()
	case back:
		x.doubts.renew(x.services)
	default:
		found := make(map[registry.Name]*registry.Service)
		for name, row := range d.Rows {
			_, unknown := registry.Covering(d.Unknown, name)
			_, ended := registry.Covering(d.Scopes, name)
			if s := x.services[name]; s != nil && (ended || unknown && row.Found) {
				found[name] = s
			}
		}
		if len(found) > 0 {
			x.doubts.renew(found)
		}
	}
}

// updateCertainty records how far the table can be relied on. It returns whether that changed,
// and whether an outage is over. The time before the first read counts as an outage.
func (x *index) updateCertainty(d registry.Delta) (changed, back bool) {
	was, is := caused(x.certainty.Stale, ErrUnreachable), caused(d.Stale, ErrUnreachable)
	changed = x.certainty.Synced != d.Synced || len(d.Scopes) > 0 ||
		cause(was) != cause(is) //nolint:errorlint // causes are sentinels
	wasAway := !x.certainty.Synced || x.certainty.Stale != nil || x.certainty.Outages != d.Outages
	back = d.Synced && d.Stale == nil && wasAway
	x.certainty = d.Certainty
	return changed, back
}

func (x *index) replace(name registry.Name, before, now *registry.Service) {
	for _, q := range queries(before) {
		delete(x.answers[q], name)
		if len(x.answers[q]) == 0 {
			delete(x.answers, q)
		}
	}
	delete(x.services, name)
	if now == nil {
		return
	}
	x.services[name] = now
	for _, q := range queries(now) {
		if x.answers[q] == nil {
			x.answers[q] = make(map[registry.Name]struct{})
		}
		x.answers[q][name] = struct{}{}
	}
}

// find returns the services that answer a query, and why some of them cannot be known.
func (x *index) find(q Query) finding {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := make(map[registry.Name]struct{})
	for _, one := range q.alternatives() {
		maps.Copy(names, x.answers[one])
	}
	f := finding{
		stale: x.certainty.Stale, synced: x.certainty.Synced, onlyDoubts: len(names) == 0,
		unconfirmed: make(map[doubted]time.Time),
	}
	if f.synced { // until then the state file answers, not its doubts
		x.doubts.addNames(q, names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f.services = append(f.services, x.doubts.merged(name, x.services[name]))
		maps.Copy(f.unconfirmed, x.doubts.unconfirmed(name))
		unknown, _ := registry.Covering(x.certainty.Unknown, name)
		f.unknown = firstError(f.unknown, unknown)
	}
	if len(names) == 0 {
		f.unknown = x.unseenUnknown()
	}
	return f
}

// addDoubts doubts the endpoints of the state file, until the registry has been current for
// the period.
func (x *index) addDoubts(saved Snapshot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.doubts.periodOver() {
		return
	}
	for _, e := range saved.all {
		x.doubts.add(e, saved.Since)
		x.doubts.confirm(e.service.Name, x.services[e.service.Name])
	}
}

// latest returns an endpoint as it is known now, or e unchanged and false.
func (x *index) latest(e Endpoint) (now Endpoint, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	name := registry.Name(e.Service)
	for _, s := range []*registry.Service{x.services[name], x.doubts.endpoints[name]} {
		if s == nil {
			continue
		}
		for _, now := range s.Endpoints {
			if now.Host == e.Host && now.Port == e.Port {
				return endpointOf(s, now), true
			}
		}
	}
	return e, false
}

// unseenUnknown returns why services that were never reported cannot be known.
func (x *index) unseenUnknown() error {
	if !x.anyScopeHides {
		return x.certainty.Unknown["*"] // the source reports each name separately
	}
	for _, scope := range slices.Sorted(maps.Keys(x.certainty.Unknown)) {
		return x.certainty.Unknown[scope]
	}
	return nil
}

// rootUnknown returns why everything below a root is unknown, such as a root that the client
// may not read; nil: no root is unknown.
func (x *index) rootUnknown() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, scope := range slices.Sorted(maps.Keys(x.certainty.Unknown)) {
		if strings.HasSuffix(scope, "*") {
			return fmt.Errorf("%s: %w", scope, x.certainty.Unknown[scope])
		}
	}
	return nil
}

// endDoubts drops all doubts, unless the registry became unreachable meanwhile.
func (x *index) endDoubts() {
	x.drain()
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.doubts.periodOver() {
		return
	}
	for _, s := range x.doubts.endpoints {
		for _, q := range queries(s) {
			for w := range x.watches[q] {
				w.signal()
			}
		}
	}
	x.doubts.clear()
}

func (x *index) watch(w *Watch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range w.query.alternatives() {
		if x.watches[q] == nil {
			x.watches[q] = make(map[*Watch]struct{})
		}
		x.watches[q][w] = struct{}{}
	}
}

func (x *index) unwatch(w *Watch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range w.query.alternatives() {
		delete(x.watches[q], w)
		if len(x.watches[q]) == 0 {
			delete(x.watches, q)
		}
	}
}

// watched returns the queries of all watches.
func (x *index) watched() []Query {
	x.mu.Lock()
	defer x.mu.Unlock()
	seen := make(map[Query]struct{})
	for _, all := range x.watches {
		for w := range all {
			seen[w.query] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// wake wakes every watch of a query.
func (x *index) wake(q Query) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for w := range x.watches[q] {
		w.signal()
	}
}
