// Package client is a registry within one process, for tests and examples of plugins. Several
// clients share it, as processes share a real registry. It has no protocol, rejects nothing and
// stores nothing on disk.
package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Registry is the registry. Its methods may be called from any goroutine.
type Registry struct {
	mu       sync.Mutex
	down     error
	provided map[*publisher][]client.Instance
	weights  map[string]uint32 // by address, if Weigh changed them
	changed  chan struct{}     // closed at each change
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{provided: make(map[*publisher][]client.Instance), weights: make(map[string]uint32), changed: make(chan struct{})}
}

// Backend returns the backend of a further process.
func (r *Registry) Backend() client.Backend {
	return client.Backend{Kind: "memory", Source: source{r}, Publisher: &publisher{r}}
}

// Member returns a client of the registry that ends with the test.
func Member(t testing.TB, r *Registry, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(r.Backend(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Down makes the registry unreachable for consumers; nil makes it reachable again.
func (r *Registry) Down(err error) {
	r.change(func() { r.down = err })
}

// Weigh changes the weight of an address, as an operator does in a registry. An address of weight 0
// receives no calls.
func (r *Registry) Weigh(address string, weight uint32) {
	r.change(func() { r.weights[address] = weight })
}

func (r *Registry) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	close(r.changed)
	r.changed = make(chan struct{})
}

// view is the state of the registry at one time.
type view struct {
	services []*registry.Service
	down     error
	changed  <-chan struct{}
}

func (r *Registry) view() view {
	r.mu.Lock()
	defer r.mu.Unlock()
	services := make(map[registry.Name]*registry.Service)
	for _, instances := range r.provided {
		for _, i := range instances {
			r.add(services, i)
		}
	}
	return view{slices.Collect(maps.Values(services)), r.down, r.changed}
}

// add adds an instance: one service for each of its keys.
func (r *Registry) add(services map[registry.Name]*registry.Service, i client.Instance) {
	interfaces := i.Interfaces
	if len(interfaces) == 0 {
		interfaces = []client.Interface{{Name: i.Application}}
	}
	for _, x := range interfaces {
		key := metadata.KeyOf(registry.Interface(x))
		name := registry.Name(key.String())
		s := services[name]
		if s == nil {
			s = &registry.Service{
				Name: name, Application: i.Application, Protocol: i.Protocol,
				Interfaces: []registry.Interface{{Name: key.Interface, Version: key.Version, Group: key.Group}},
			}
			services[name] = s
		}
		e := registry.Endpoint{
			Host: i.Host, Port: i.Port, Protocol: i.Protocol, Zone: i.Zone, Attributes: i.Metadata, Health: registry.Healthy,
		}
		if i.Weight.Reported() {
			e.Weight = uint32(i.Weight.Part()*100 + 0.5)
			e.ZeroWeight = e.Weight == 0
		}
		if weight, given := r.weights[i.Address()]; given {
			e.Weight, e.ZeroWeight = weight, weight == 0
		}
		s.Endpoints = append(s.Endpoints, e)
		slices.SortFunc(s.Endpoints, registry.Endpoint.Compare)
	}
}

type source struct{ registry *Registry }

// Run implements registry.Source.
func (s source) Run(ctx context.Context, table *registry.Table) error {
	for {
		v := s.registry.view()
		if v.down != nil {
			table.Stale(v.down)
		} else {
			table.Replace(slices.Values(v.services))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-v.changed:
		}
	}
}

type publisher struct{ registry *Registry }

// Run implements client.Publisher.
func (p *publisher) Run(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	p.registry.change(func() { delete(p.registry.provided, p) })
	return nil
}

// Set implements client.Publisher.
func (p *publisher) Set(instances []client.Instance) {
	p.registry.change(func() { p.registry.provided[p] = instances })
}

// Wrote implements client.Publisher.
func (*publisher) Wrote() bool { return true }

// Problems implements client.Publisher.
func (*publisher) Problems() map[string]error { return nil }
