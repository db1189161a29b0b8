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

// index is the table of the source by what consumers ask for. It may be used
// from any goroutine.
type index struct {
	mu       sync.Mutex
	reader   *registry.Reader
	services map[registry.Name]*registry.Service
	answers  map[Query]map[registry.Name]struct{}
	watches  map[Query]map[*Watch]struct{}
	known    registry.Certainty
	hides    bool // any scope that cannot be known may hide what a query finds nothing for
	doubts   doubts
}

// finding is what the table shows of a query.
type finding struct {
	services []*registry.Service // by name
	stale    error               // why all of it may be out of date
	hidden   error               // why something of it cannot be known
	synced   bool                // the source reported everything at least once
	doubted  bool                // nothing of it was reported but what is in doubt
	whole    bool                // it is everything: the source reported it at least once

	unconfirmed map[doubted]time.Time // as doubts.unconfirmed has it
}

func newIndex(t *registry.Table, doubt time.Duration) *index {
	return &index{
		doubts: newDoubts(doubt), reader: t.Reader(), services: make(map[registry.Name]*registry.Service),
		answers: make(map[Query]map[registry.Name]struct{}), watches: make(map[Query]map[*Watch]struct{}),
	}
}

// drain reads what the source has reported and wakes those whom it concerns.
func (x *index) drain() {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.reader.Drain()
	reported, back := x.learn(d)
	x.renew(d, back)
	woken := make(map[*Watch]struct{})
	for name, row := range d.Rows {
		before, now := x.services[name], row.Service
		for _, q := range slices.Concat(queries(before), queries(now)) {
			maps.Copy(woken, x.watches[q])
		}
		x.replace(name, before, now)
	}
	for name := range x.doubts.endpoints { // what it has not reported since stays in doubt
		x.doubts.confirm(name, x.services[name])
	}
	if reported || back { // it concerns everybody
		for _, all := range x.watches {
			maps.Copy(woken, all)
		}
	}
	for w := range woken {
		w.signal()
	}
}

// renew doubts what is known from before an outage, or from before the registry could
// not report it, such as while the root above it had gone.
func (x *index) renew(d registry.Delta, back bool) {
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

// learn records how far the table may be relied on, and returns whether that is
// different and whether an outage is over, that before the first reading included.
func (x *index) learn(d registry.Delta) (differs, back bool) {
	was, is := caused(x.known.Stale, ErrUnreachable), caused(d.Stale, ErrUnreachable)
	differs = x.known.Synced != d.Synced || cause(was) != cause(is) || len(d.Scopes) > 0 //nolint:errorlint // causes are sentinels
	back = d.Synced && d.Stale == nil && (!x.known.Synced || x.known.Stale != nil || x.known.Outages != d.Outages)
	x.known = d.Certainty
	return differs, back
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

// find returns what answers a query, and why something of it cannot be known.
func (x *index) find(q Query) finding {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := make(map[registry.Name]struct{})
	for _, one := range q.each() {
		maps.Copy(names, x.answers[one])
	}
	f := finding{stale: x.known.Stale, synced: x.known.Synced, doubted: len(names) == 0, unconfirmed: make(map[doubted]time.Time)}
	if f.synced { // until then the state file itself answers
		x.doubts.names(q, names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f.services = append(f.services, x.doubts.with(name, x.services[name]))
		maps.Copy(f.unconfirmed, x.doubts.unconfirmed(name))
		hidden, _ := registry.Covering(x.known.Unknown, name)
		f.hidden = first(f.hidden, hidden)
	}
	if len(names) == 0 {
		f.hidden = x.concealed()
	}
	return f
}

// doubt keeps what the state file answered with until the registry has been there
// for long: one that was restarted fills up as providers come back one by one.
func (x *index) doubt(saved Snapshot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.doubts.over() {
		return
	}
	for _, e := range saved.all {
		x.doubts.add(e, saved.Since)
		x.doubts.confirm(e.of.Name, x.services[e.of.Name])
	}
}

// latest returns an endpoint as it is known now; not ok, and as it was, where it is not.
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

// concealed returns why something that was never seen cannot be known.
func (x *index) concealed() error {
	if !x.hides {
		return x.known.Unknown["*"] // the source says it of each name
	}
	for _, scope := range slices.Sorted(maps.Keys(x.known.Unknown)) {
		return x.known.Unknown[scope]
	}
	return nil
}

// rootUnknown returns why nothing below a root can be known, such as one that is
// denied; nil where there is none.
func (x *index) rootUnknown() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, scope := range slices.Sorted(maps.Keys(x.known.Unknown)) {
		if strings.HasSuffix(scope, "*") {
			return fmt.Errorf("%s: %w", scope, x.known.Unknown[scope])
		}
	}
	return nil
}

// endDoubts gives up what is still in doubt, unless the registry went away again
// meanwhile.
func (x *index) endDoubts() {
	x.drain()
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.doubts.over() {
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
	for _, q := range w.query.each() {
		if x.watches[q] == nil {
			x.watches[q] = make(map[*Watch]struct{})
		}
		x.watches[q][w] = struct{}{}
	}
}

func (x *index) unwatch(w *Watch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range w.query.each() {
		delete(x.watches[q], w)
		if len(x.watches[q]) == 0 {
			delete(x.watches, q)
		}
	}
}

// watched returns what somebody watches.
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

// wake wakes everybody who watches a query.
func (x *index) wake(q Query) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for w := range x.watches[q] {
		w.signal()
	}
}

func sameAttributes(a, b *registry.Service) bool { return maps.Equal(a.Attributes, b.Attributes) }
