// Package grpc resolves targets of gRPC by a registry: the mesh, ZooKeeper or
// Nacos.
//
//	conn, err := grpc.NewClient("xdsbridge:///api.Greeter", grpc.WithResolvers(xgrpc.NewBuilder(c)), ...)
//
// What follows the slashes is a name of an interface or an application, a
// service key (providers:api.Greeter:1.0.0:group), or a host address of the mesh
// (greeter.shop.svc.cluster.local:20000).
package grpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// Scheme is that of the targets.
const Scheme = "xdsbridge"

// Builder makes resolvers over one client. It implements resolver.Builder.
type Builder struct{ registry client.Registry }

// NewBuilder returns a builder for grpc.WithResolvers. The client stays the
// caller's.
func NewBuilder(r client.Registry) *Builder { return &Builder{r} }

// Scheme implements resolver.Builder.
func (*Builder) Scheme() string { return Scheme }

// Build implements resolver.Builder.
func (b *Builder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	name := target.Endpoint()
	if name == "" {
		return nil, errors.New(Scheme + ": the target names nothing; want " + Scheme + ":///name")
	}
	q, err := client.ParseQuery(name)
	if err != nil {
		return nil, fmt.Errorf("%s: target: %w", Scheme, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &follower{cc: cc, watch: b.registry.Watch(q), cancel: cancel, places: make(map[string]*place)}
	r.running.Go(func() { r.watch.Follow(ctx, r.tell) })
	return r, nil
}

// follower hands every answer on.
type follower struct {
	cc      resolver.ClientConn
	watch   *client.Watch
	cancel  context.CancelFunc
	running sync.WaitGroup
	places  map[string]*place // by address
}

// tell hands an answer on, or why there is none.
func (f *follower) tell(s client.Snapshot, err error) {
	if err != nil {
		f.cc.ReportError(err)
		return
	}
	_ = f.cc.UpdateState(f.state(s)) // it asks to be told again of what it cannot use, which follows by itself
}

// ResolveNow implements resolver.Resolver. Answers follow by themselves.
func (*follower) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (f *follower) Close() {
	f.cancel()
	f.watch.Stop()
	f.running.Wait()
}

// state returns an answer as gRPC takes it. The weighing balancer is asked for
// where the program has registered it.
func (f *follower) state(s client.Snapshot) resolver.State {
	var out resolver.State
	here := make(map[string]*place, len(s.Endpoints))
	for _, e := range s.Endpoints {
		address := e.Address()
		if here[address] != nil {
			continue // of two services; a connection is to an address
		}
		p := f.places[address]
		if p == nil {
			p = &place{}
		}
		p.now.Store(&endpoint{Endpoint: e, routes: routesOf(s, e)})
		here[address] = p
		a := resolver.Address{Addr: address, BalancerAttributes: attributes.New(placeKey{}, p)} //nolint:staticcheck // the base balancer hands addresses on, and no endpoints
		out.Addresses = append(out.Addresses, a)
		out.Endpoints = append(out.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
	}
	f.places = here
	if balancer.Get(Scheme) != nil {
		out.ServiceConfig = f.cc.ParseServiceConfig(`{"loadBalancingConfig":[{"` + Scheme + `":{}}]}`)
	}
	return out
}

func routesOf(s client.Snapshot, e client.Endpoint) *routes.Table {
	a, err := naming.ParseHostAddress(string(e.Service.Name))
	if err != nil {
		return nil
	}
	return s.Routes[a]
}

// place is an address with what is known of it at any time: balancers keep the
// attributes that an address came with first.
type place struct{ now atomic.Pointer[endpoint] }

type endpoint struct {
	client.Endpoint
	routes *routes.Table
}

type placeKey struct{}

// Known returns what the registry says of an address now, for balancers of one's
// own.
func Known(a resolver.Address) (client.Endpoint, bool) {
	p, ok := a.BalancerAttributes.Value(placeKey{}).(*place) //nolint:staticcheck // the base balancer hands addresses on, and no endpoints
	if !ok {
		return client.Endpoint{}, false
	}
	return p.now.Load().Endpoint, true
}
