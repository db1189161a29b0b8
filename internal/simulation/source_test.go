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

// A set is the content of a registry: addresses by service.
type set map[string][]string

// A source is a registry with a history: its followers show earlier states.
type source struct {
	mu     sync.Mutex
	states []state // never empty, oldest first
}

type state struct {
	at  time.Time
	has set
}

func newSource() *source { return &source{states: []state{{time.Now(), set{}}}} }

// now returns the true content of the registry.
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

// replace changes the content of the registry.
func (s *source) replace(next set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, state{time.Now(), next})
}

// A sourceView is the source as one replica sees it: through a follower that is behind, over
// connections that break.
type sourceView struct {
	source *source
	table  *registry.Table
	again  chan struct{} // requests a new connection

	mu     sync.Mutex
	behind time.Duration // how far a new follower is behind, until it has caught up
	since  time.Time     // when this connection began
	late   time.Duration // how far every follower is behind
	cut    bool
	broken bool // the connection broke since the last look
	empty  bool // the next connection is to a follower that lost everything
	at     bool // the current connection is to such a follower
	unsync bool // a new connection does not wait until its follower has the state at its beginning
}

func newView(s *source) *sourceView {
	return &sourceView{source: s, table: registry.NewTable(), again: make(chan struct{}, 1)}
}

func (v *sourceView) set(change func(*sourceView)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(v)
}

func (v *sourceView) recheck() {
	select {
	case v.again <- struct{}{}:
	default:
	}
}

var errAway = errors.New("no route to the source")

// look returns the state that the follower shows, and how far it is behind.
func (v *sourceView) look() (shown state, lag time.Duration, err error) {
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

// run follows the source as an adapter does: it reads everything over each new connection,
// and then its changes.
func (v *sourceView) run(ctx context.Context) {
	v.table.Stale(errors.New("not read yet"))
	for ctx.Err() == nil {
		if err := v.connection(ctx); ctx.Err() == nil {
			v.table.Stale(err)
			pause(ctx, time.Second)
		}
	}
}

func (v *sourceView) connection(ctx context.Context) error {
	v.set(func(v *sourceView) { v.at, v.empty, v.since = v.empty, false, time.Now() })
	_, lag, err := v.look()
	if err != nil {
		return err
	}
	v.mu.Lock()
	waits := !v.unsync
	v.mu.Unlock()
	if waits {
		pause(ctx, lag) // like the sync of ZooKeeper
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
		if next.at.After(shown.at) { // a connection never shows an older state
			v.apply(shown.has, next.has)
			shown = next
		}
		pause(ctx, time.Second)
	}
	return ctx.Err()
}

// apply reports a difference to the table, as events would.
func (v *sourceView) apply(before, after set) {
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
