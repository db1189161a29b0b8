package grpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"

	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// ServiceConfig selects the balancer, for grpc.WithDefaultServiceConfig. A program with its own
// service config adds the balancer's name to that. The resolver returns no service config,
// because it would replace the program's retries, timeouts and health checks.
const ServiceConfig = `{"loadBalancingConfig":[{"` + Scheme + `":{}}]}`

// NewBalancer returns the balancer that spreads calls by the weights of the registry. In the
// mesh it also follows the routes, as a proxy would: a VirtualService may send calls with a
// header, or a part of all calls, to a subset. gRPC keeps balancers by name for the whole
// program. So the program registers the balancer, and names it in the service config of the
// connections that use it:
//
//	balancer.Register(xgrpc.NewBalancer())
func NewBalancer() balancer.Builder {
	return tracking{base.NewBalancerBuilder(Scheme, builder{}, base.Config{HealthCheck: true})}
}

// tracking is a builder whose balancers record the state of each connection. The base balancer
// shows only ready connections to its pickers.
type tracking struct{ balancer.Builder }

// Build implements balancer.Builder.
func (t tracking) Build(cc balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	return t.Builder.Build(tracker{cc}, o)
}

type tracker struct{ balancer.ClientConn }

// NewSubConn implements balancer.ClientConn.
func (t tracker) NewSubConn(addresses []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if at := placeOf(addresses[0]); at != nil {
		listen := o.StateListener
		at.failing.Store(false)
		o.StateListener = func(s balancer.SubConnState) {
			ready := s.ConnectivityState == connectivity.Ready // a failed connection counts as failing until it is ready
			at.failing.Store(!ready && (at.failing.Load() || s.ConnectivityState == connectivity.TransientFailure))
			listen(s)
		}
	}
	return t.ClientConn.NewSubConn(addresses, o) //nolint:staticcheck // the channel's own; what replaces it has one address, as here
}

func placeOf(a resolver.Address) *place {
	at, _ := a.BalancerAttributes.Value(placeKey{}).(*place) //nolint:staticcheck // the base balancer hands addresses on, and no endpoints
	return at
}

type builder struct{}

// Build implements base.PickerBuilder.
func (builder) Build(info base.PickerBuildInfo) balancer.Picker {
	var p picker
	for conn, i := range info.ReadySCs {
		p = append(p, ready{conn, placeOf(i.Address)})
	}
	return p
}

// picker holds the connections that are ready.
type picker []ready

type ready struct {
	conn balancer.SubConn
	at   *place // nil: the address came from another resolver
}

// Pick implements balancer.Picker. It chooses the host by the weights of all endpoints, and then
// an endpoint of that host by the host's routes.
func (p picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	one, ok := adapter.Choose(p, ready.weight)
	switch {
	case !ok:
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	case one.at == nil:
		return balancer.PickResult{SubConn: one.conn}, nil
	}
	e := one.at.now.Load()
	subset := e.Subset(info.FullMethodName, headersOf(info.Ctx))
	if subset == "" {
		return balancer.PickResult{SubConn: one.conn}, nil
	}
	host := e.Service
	there := func(r ready) uint64 {
		if r.at == nil || !r.at.now.Load().In(host, subset) {
			return 0
		}
		return r.weight()
	}
	if r, ok := adapter.Choose(p, there); ok {
		return balancer.PickResult{SubConn: r.conn}, nil
	}
	if one.at.group.awaits(host, subset) {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable // and the call waits
	}
	return balancer.PickResult{}, fmt.Errorf("%s: %w: %s", Scheme, errNoSubset, subset)
}

// errNoSubset is not a gRPC status, so that calls that wait for a ready connection keep waiting.
var errNoSubset = errors.New("the mesh routes the call to a subset that has no endpoint")

// weight returns the share of the calls that a connection receives.
func (r ready) weight() uint64 {
	if r.at == nil {
		return 1
	}
	return uint64(adapter.Share(r.at.now.Load().Weight))
}

func headersOf(ctx context.Context) func(string) (string, bool) {
	md, _ := metadata.FromOutgoingContext(ctx)
	return func(name string) (string, bool) {
		values := md.Get(name)
		return strings.Join(values, ","), len(values) > 0
	}
}
