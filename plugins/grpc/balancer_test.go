package grpc

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// conn is a connection of which only its name counts.
type conn struct {
	balancer.SubConn
	name string
}

// rig is a picker over places that a test may change.
type rig struct {
	picker balancer.Picker
	places map[string]*place
}

func newRig(table *routes.Table, endpoints map[string]registry.Endpoint) rig {
	r := rig{places: make(map[string]*place)}
	info := base.PickerBuildInfo{ReadySCs: make(map[balancer.SubConn]base.SubConnInfo)}
	for name, e := range endpoints {
		p := &place{}
		p.now.Store(&endpoint{client.Endpoint{Endpoint: e, Service: &registry.Service{}}, table})
		r.places[name] = p
		info.ReadySCs[conn{name: name}] = base.SubConnInfo{Address: resolver.Address{BalancerAttributes: attributes.New(placeKey{}, p)}} //nolint:staticcheck // the base balancer hands addresses on, and no endpoints
	}
	r.picker = builder{}.Build(info)
	return r
}

// shares picks many times and returns who got how many of a hundred.
func (r rig) shares(t *testing.T, headers ...string) map[string]int {
	t.Helper()
	const n = 20_000
	counts := make(map[string]int)
	ctx := metadata.AppendToOutgoingContext(context.Background(), headers...)
	for range n {
		got, err := r.picker.Pick(balancer.PickInfo{FullMethodName: "/api.Greeter/Hello", Ctx: ctx})
		if err != nil {
			t.Fatal(err)
		}
		counts[got.SubConn.(conn).name]++ //nolint:forcetypeassert // there are no others
	}
	for name, c := range counts {
		counts[name] = (c*100 + n/2) / n
	}
	return counts
}

func near(got, want int) bool { return got >= want-3 && got <= want+3 }

func TestCallsAreSpreadByWeight(t *testing.T) {
	r := newRig(nil, map[string]registry.Endpoint{"a": {Weight: 30}, "b": {Weight: 10}})
	if got := r.shares(t); !near(got["a"], 75) || !near(got["b"], 25) {
		t.Errorf("%v", got)
	}
	r.places["b"].now.Store(&endpoint{client.Endpoint{Endpoint: registry.Endpoint{Weight: 30}, Service: &registry.Service{}}, nil})
	if got := r.shares(t); !near(got["a"], 50) {
		t.Errorf("after a change of weight: %v", got)
	}
	if got := newRig(nil, map[string]registry.Endpoint{"a": {}, "b": {}}).shares(t); !near(got["a"], 50) {
		t.Errorf("without weights: %v", got)
	}
	if got := newRig(nil, map[string]registry.Endpoint{"a": {}, "b": {Weight: 3}}).shares(t); !near(got["a"], 25) {
		t.Errorf("one without a weight beside one of 3: %v", got)
	}
}

func TestTheRoutesOfTheMeshAreHonoured(t *testing.T) {
	to := func(subset string, weight uint32) routes.Share {
		return routes.Share{Cluster: naming.Cluster{Direction: naming.Outbound, Port: 80, Subset: subset, Host: "greeter.shop"}, Weight: weight}
	}
	table := &routes.Table{Routes: []routes.Route{
		{Match: routes.Match{Headers: []routes.Header{{Name: "x-env", Text: routes.Text{Exact: "canary"}}}}, Clusters: []routes.Share{to("v2", 1)}},
		{Match: routes.Match{Headers: []routes.Header{{Name: "x-env", Text: routes.Text{Exact: "nowhere"}}}}, Clusters: []routes.Share{to("v3", 1)}},
		{Clusters: []routes.Share{to("v1", 90), to("v2", 10)}},
	}}
	in := func(subset string) registry.Endpoint {
		return registry.Endpoint{Weight: 1, Attributes: registry.Attributes{mesh.AttributeSubset: subset}}
	}
	r := newRig(table, map[string]registry.Endpoint{"old": in("v1"), "new": in("v2"), "both": in("v1,v2")})
	if got := r.shares(t); !near(got["old"], 45) || !near(got["both"], 50) || !near(got["new"], 5) {
		t.Errorf("the split: %v", got)
	}
	if got := r.shares(t, "x-env", "canary"); got["old"] != 0 || !near(got["new"], 50) {
		t.Errorf("the header: %v", got)
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-env", "nowhere")
	if _, err := r.picker.Pick(balancer.PickInfo{FullMethodName: "/a/b", Ctx: ctx}); status.Code(err) != codes.Unavailable {
		t.Errorf("a subset without endpoints: %v", err)
	}
	empty := builder{}.Build(base.PickerBuildInfo{})
	if _, err := empty.Pick(balancer.PickInfo{Ctx: context.Background()}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("without connections: %v", err)
	}
}

// BenchmarkPick_P15 is the cost of one pick among ten connections.
func BenchmarkPick_P15(b *testing.B) {
	endpoints := make(map[string]registry.Endpoint)
	for n := range 10 {
		endpoints[string(rune('a'+n))] = registry.Endpoint{Weight: 10}
	}
	r := newRig(nil, endpoints)
	info := balancer.PickInfo{FullMethodName: "/api.Greeter/Hello", Ctx: context.Background()}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.picker.Pick(info); err != nil {
			b.Fatal(err)
		}
	}
}
