package grpc

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// NewBalancer returns the balancer that spreads calls by the weights of the
// registry and, in the mesh, by its routes: a VirtualService that sends a header
// or a part of the calls to a subset is honoured as a proxy would. gRPC keeps
// balancers by name for the whole program, so that the program registers it:
//
//	balancer.Register(xgrpc.NewBalancer())
func NewBalancer() balancer.Builder {
	return base.NewBalancerBuilder(Scheme, builder{}, base.Config{HealthCheck: true})
}

type builder struct{}

// Build implements base.PickerBuilder.
func (builder) Build(info base.PickerBuildInfo) balancer.Picker {
	var p picker
	for conn, i := range info.ReadySCs {
		at, _ := i.Address.BalancerAttributes.Value(placeKey{}).(*place) //nolint:staticcheck // the base balancer hands addresses on, and no endpoints
		p = append(p, ready{conn, at})
	}
	return p
}

// picker is the connections that are ready.
type picker []ready

type ready struct {
	conn balancer.SubConn
	at   *place // nil where another resolver made the address
}

// Pick implements balancer.Picker.
func (p picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if len(p) == 0 {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	subset := p.subset(info)
	var total uint64
	for _, r := range p {
		total += r.weight(subset)
	}
	if total == 0 {
		if subset == "" {
			return balancer.PickResult{SubConn: p[rand.IntN(len(p))].conn}, nil //nolint:gosec // spreads load, keeps no secret
		}
		return balancer.PickResult{}, status.Errorf(codes.Unavailable, "%s: the mesh routes the call to subset %s, which has no endpoint", Scheme, subset)
	}
	at := rand.Uint64N(total) //nolint:gosec // as above
	for _, r := range p {
		w := r.weight(subset)
		if at < w {
			return balancer.PickResult{SubConn: r.conn}, nil
		}
		at -= w
	}
	return balancer.PickResult{SubConn: p[0].conn}, nil // a weight changed since they were added up
}

// subset returns where the routes of the mesh send a call; empty for anywhere.
func (p picker) subset(info balancer.PickInfo) string {
	i := slices.IndexFunc(p, func(r ready) bool { return r.at != nil && r.at.now.Load().routes != nil })
	if i < 0 {
		return ""
	}
	route := p[i].at.now.Load().routes.Find(info.FullMethodName, headersOf(info.Ctx))
	if route == nil {
		return ""
	}
	return route.Pick(rand.Uint64N(route.Total())).Subset //nolint:gosec // spreads load, keeps no secret
}

func headersOf(ctx context.Context) func(string) (string, bool) {
	md, _ := metadata.FromOutgoingContext(ctx)
	return func(name string) (string, bool) {
		values := md.Get(name)
		return strings.Join(values, ","), len(values) > 0
	}
}

// weight returns the part of the calls that a connection gets among those of a
// subset.
func (r ready) weight(subset string) uint64 {
	if r.at == nil {
		return 1
	}
	e := r.at.now.Load()
	if subset != "" && !slices.Contains(strings.Split(e.Attribute(mesh.AttributeSubset), ","), subset) {
		return 0
	}
	return uint64(max(e.Weight, 1)) // 0 is not told
}
