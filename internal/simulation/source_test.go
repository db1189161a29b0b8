package simulation_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A set is what a registry holds: addresses by service.
type set map[string][]string

// A source is a registry with a history: followers show its state a while
// ago.
type source struct {
	mu     sync.Mutex
	states []state // never empty, oldest first
}

type state struct {
	at  time.Time
	has set
}

func newSource() *source { return &source{states: []state{{time.Now(), set{}}}} }

// now returns what the registry truly holds.
func (s *source) now() set { return s.asOf(time.Now()).has }

func (s *source) asOf(at time.Time) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.states) - 1
	for i > 0 && s.states[i].at.After(at) {
		i--
	}
	return s.states[i]
}

// replace changes what the registry holds from now on.
func (s *source) replace(next set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, state{time.Now(), next})
}

// A view is how one replica sees the source: through a follower that is
// behind by a while, over connections that break.
type view struct {
	source *source
	table  *registry.Table
	again  chan struct{} // asks for a new connection

	mu     sync.Mutex
	behind time.Duration // a follower that is connected to newly, until it has caught up
	since  time.Time     // when this connection began
	late   time.Duration // every follower, always
	cut    bool
	broken bool // the connection, since it was looked at last
	empty  bool // the next connection is to a follower that came back without anything
	at     bool // this one is
	unsync bool // a new connection does not wait until its follower has the state at its beginning
}

func newView(s *source) *view {
	return &view{source: s, table: registry.NewTable(), again: make(chan struct{}, 1)}
}

func (v *view) set(change func(*view)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(v)
}

func (v *view) recheck() {
	select {
	case v.again <- struct{}{}:
	default:
	}
}

var errAway = errors.New("no route to the source")

// look returns what the follower shows, and how far behind it is.
func (v *view) look() (shown state, lag time.Duration, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cut || v.broken {
		v.broken = false
		return state{}, 0, errAway
	}
	if v.at {
		return state{at: time.Now(), has: set{}}, 0, nil
	}
	if lag = v.late; time.Since(v.since) < v.behind { // it shows the state when the connection began, less that
		return v.source.asOf(v.since.Add(-v.behind)), v.behind, nil
	}
	return v.source.asOf(time.Now().Add(-lag)), lag, nil
}

// run is a source as adapters are: everything is read over each new
// connection, and followed over it.
func (v *view) run(ctx context.Context) {
	v.table.Stale(errors.New("not read yet"))
	for ctx.Err() == nil {
		if err := v.connection(ctx); ctx.Err() == nil {
			v.table.Stale(err)
			pause(ctx, time.Second)
		}
	}
}

func (v *view) connection(ctx context.Context) error {
	v.set(func(v *view) { v.at, v.empty, v.since = v.empty, false, time.Now() })
	_, lag, err := v.look()
	if err != nil {
		return err
	}
	v.mu.Lock()
	waits := !v.unsync
	v.mu.Unlock()
	if waits {
		pause(ctx, lag) // what ZooKeeper's sync is for
	}
	shown, _, err := v.look()
	if err != nil {
		return err
	}
	v.table.Dialed()
	v.table.Replace(maps.Values(services(shown.has)))
	for ctx.Err() == nil {
		select {
		case <-v.again:
			return errors.New("read again, as requested")
		default:
		}
		next, _, err := v.look()
		if err != nil {
			return err
		}
		if next.at.After(shown.at) { // within a connection nothing goes back
			v.apply(shown.has, next.has)
			shown = next
		}
		pause(ctx, time.Second)
	}
	return ctx.Err()
}

// apply reports a difference to the table, as events would.
func (v *view) apply(before, after set) {
	var gone []registry.Name
	for name := range before {
		if _, still := after[name]; !still {
			gone = append(gone, registry.Name(name))
		}
	}
	v.table.Apply(slices.Collect(maps.Values(services(after))), gone)
}

// services returns a set in the neutral model.
func services(has set) map[registry.Name]*registry.Service {
	all := make(map[registry.Name]*registry.Service, len(has))
	for name, addresses := range has {
		s := &registry.Service{Name: registry.Name(name)}
		for _, a := range addresses {
			at := netip.MustParseAddrPort(a)
			s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: at.Addr().String(), Port: at.Port()})
		}
		slices.SortFunc(s.Endpoints, registry.Endpoint.Compare)
		all[s.Name] = s
	}
	return all
}

// project writes an entry for each endpoint into the group of its service.
func project(s *registry.Service) ([]registry.Entry, error) {
	var all []registry.Entry
	for _, e := range s.Endpoints {
		all = append(all, registry.Entry{Group: groupOf(string(s.Name)), Key: e.Address(), Value: "instance"})
	}
	return all, nil
}

func groupOf(service string) registry.Group { return registry.Group{Kind: "simulated", Name: service} }

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
