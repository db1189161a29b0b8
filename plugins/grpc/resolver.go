// Package grpc resolves gRPC targets through a registry: the mesh, ZooKeeper or Nacos.
//
//	conn, err := grpc.NewClient("xdsbridge:///api.Greeter", grpc.WithResolvers(xgrpc.NewBuilder(c)), ...)
//
// The target names an interface or an application, a service key
// (providers:api.Greeter:1.0.0:group), or a host address of the mesh
// (greeter.shop.svc.cluster.local:20000).
package grpc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// Scheme is the scheme of the targets.
const Scheme = "xdsbridge"

// Builder makes resolvers that share one client. It implements resolver.Builder.
type Builder struct{ registry client.Registry }

// NewBuilder returns a builder for grpc.WithResolvers. It does not close the client.
func NewBuilder(r client.Registry) *Builder { return &Builder{r} }

// Scheme implements resolver.Builder.
func (*Builder) Scheme() string { return Scheme }

// Build implements resolver.Builder.
func (b *Builder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	name := target.Endpoint()
	if name == "" {
		return nil, errors.New(Scheme + ": the target has no name; want " + Scheme + ":///name")
	}
	if at := target.URL.Host; at != "" {
		return nil, fmt.Errorf("%s: the target must not have an authority (got %q), the client is the registry; want %s:///%s",
			Scheme, at, Scheme, name)
	}
	q, err := client.ParseQuery(name)
	if err != nil {
		return nil, fmt.Errorf("%s: target: %w", Scheme, err)
	}
	r := &follower{cc: cc, watch: b.registry.Watch(q), places: make(map[string]*place)}
	if err := r.watch.Follow(r.update); err != nil {
		return nil, fmt.Errorf("%s: %w", Scheme, err)
	}
	return r, nil
}

// follower passes the answers to one target to gRPC.
type follower struct {
	cc     resolver.ClientConn
	watch  *client.Watch
	places map[string]*place // by address
	group  group
}

// update passes on an answer, or why there is none.
func (f *follower) update(s client.Snapshot, err error) {
	if err != nil {
		f.cc.ReportError(err)
		return
	}
	_ = f.cc.UpdateState(f.state(s)) // an error requests another resolution, which follows anyway
}

// ResolveNow implements resolver.Resolver. It does nothing, because every new answer is passed on.
func (*follower) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (f *follower) Close() { f.watch.Stop() }

// state returns an answer in gRPC's form, without a service config: the program's own applies.
func (f *follower) state(s client.Snapshot) resolver.State {
	var out resolver.State
	here := make(map[string]*place, len(s.Endpoints))
	for _, e := range s.Endpoints { // connections are made to addresses
		address := e.Address()
		p := f.places[address]
		if p == nil {
			p = &place{group: &f.group}
		}
		p.now.Store(&e)
		here[address] = p
		a := resolver.Address{Addr: address, BalancerAttributes: attributes.New(placeKey{}, p)} //nolint:staticcheck // the base balancer hands addresses on, and no endpoints
		out.Addresses = append(out.Addresses, a)
		out.Endpoints = append(out.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
	}
	f.places = here
	all := slices.Collect(maps.Values(here))
	f.group.all.Store(&all)
	return out
}

// place is an address with its latest endpoint. Balancers keep the first attributes of an
// address, so that the endpoint is behind a pointer.
type place struct {
	group   *group // all places of the target; nil: only this one
	now     atomic.Pointer[client.Endpoint]
	failing atomic.Bool // the last connection to it failed
}

// group holds all places of one target.
type group struct{ all atomic.Pointer[[]*place] }

// awaits reports whether a connection to a subset of a service may still succeed.
func (g *group) awaits(host, subset string) bool {
	if g == nil || g.all.Load() == nil {
		return false
	}
	return slices.ContainsFunc(*g.all.Load(), func(p *place) bool {
		return p.now.Load().In(host, subset) && !p.failing.Load()
	})
}

type placeKey struct{}

// Known returns the endpoint at an address as the registry reports it now, for other balancers.
func Known(a resolver.Address) (client.Endpoint, bool) {
	p := placeOf(a)
	if p == nil {
		return client.Endpoint{}, false
	}
	return *p.now.Load(), true
}
