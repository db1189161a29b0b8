package grpc

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// conn is a connection that only has a name.
type conn struct {
	balancer.SubConn
	name string
}

// rig is a picker over places that a test can change.
type rig struct {
	picker balancer.Picker
	places map[string]*place
}

func newRig(table client.Router, endpoints map[string]client.Endpoint) rig {
	r := rig{places: make(map[string]*place)}
	info := base.PickerBuildInfo{ReadySCs: make(map[balancer.SubConn]base.SubConnInfo)}
	for name, e := range endpoints {
		p := &place{}
		e.Router = table
		p.now.Store(&e)
		r.places[name] = p
		info.ReadySCs[conn{name: name}] = base.SubConnInfo{Address: resolver.Address{BalancerAttributes: attributes.New(placeKey{}, p)}} //nolint:staticcheck // the base balancer hands addresses on, and no endpoints
	}
	r.picker = builder{}.Build(info)
	return r
}

// shares picks many times and returns the percentage of each connection.
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

func TestBalancer_Weights(t *testing.T) {
	r := newRig(nil, map[string]client.Endpoint{"a": {Weight: client.WeightOf(0.3)}, "b": {Weight: client.WeightOf(0.1)}})
	if got := r.shares(t); !near(got["a"], 75) || !near(got["b"], 25) {
		t.Errorf("%v", got)
	}
	r.places["b"].now.Store(&client.Endpoint{Weight: client.WeightOf(0.3)})
	if got := r.shares(t); !near(got["a"], 50) {
		t.Errorf("after a change of weight: %v", got)
	}
	if got := newRig(nil, map[string]client.Endpoint{"a": {}, "b": {}}).shares(t); !near(got["a"], 50) {
		t.Errorf("without weights: %v", got)
	}
	if got := newRig(nil, map[string]client.Endpoint{"a": {}, "b": {Weight: client.WeightOf(3)}}).shares(t); !near(got["a"], 25) {
		t.Errorf("one without a weight beside one of three times the normal: %v", got)
	}
}

func TestBalancer_Routes(t *testing.T) {
	to := func(subset string, weight uint32) routes.Share {
		return routes.Share{Cluster: naming.Cluster{Direction: naming.Outbound, Port: 80, Subset: subset, Host: "greeter.shop"}, Weight: weight}
	}
	table := &routes.Table{Routes: []routes.Route{
		{Match: routes.Match{Headers: []routes.Header{{Name: "x-env", Text: routes.Text{Exact: "canary"}}}}, Clusters: []routes.Share{to("v2", 1)}},
		{Match: routes.Match{Headers: []routes.Header{{Name: "x-env", Text: routes.Text{Exact: "nowhere"}}}}, Clusters: []routes.Share{to("v3", 1)}},
		{Clusters: []routes.Share{to("v1", 90), to("v2", 10)}},
	}}
	in := func(subsets ...string) client.Endpoint {
		return client.Endpoint{Weight: client.WeightOf(0.01), Subsets: subsets}
	}
	r := newRig(table, map[string]client.Endpoint{"old": in("v1"), "new": in("v2"), "both": in("v1", "v2")})
	if got := r.shares(t); !near(got["old"], 45) || !near(got["both"], 50) || !near(got["new"], 5) {
		t.Errorf("the split: %v", got)
	}
	if got := r.shares(t, "x-env", "canary"); got["old"] != 0 || !near(got["new"], 50) {
		t.Errorf("the header: %v", got)
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-env", "nowhere")
	if _, err := r.picker.Pick(balancer.PickInfo{FullMethodName: "/a/b", Ctx: ctx}); !errors.Is(err, errNoSubset) {
		t.Errorf("a subset without endpoints: %v", err)
	}
	empty := builder{}.Build(base.PickerBuildInfo{})
	if _, err := empty.Pick(balancer.PickInfo{Ctx: context.Background()}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("without connections: %v", err)
	}
}

// BenchmarkPick measures one pick among ten connections.
func BenchmarkPick(b *testing.B) {
	endpoints := make(map[string]client.Endpoint)
	for n := range 10 {
		endpoints[string(rune('a'+n))] = client.Endpoint{Weight: client.WeightOf(0.1)}
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

func table(host, subset string) *routes.Table {
	return &routes.Table{Routes: []routes.Route{{Clusters: []routes.Share{{
		Cluster: naming.Cluster{Direction: naming.Outbound, Port: 80, Subset: subset, Host: host}, Weight: 1,
	}}}}}
}

func of(host, address, subset string) client.Endpoint {
	return client.Endpoint{Host: address, Port: 80, Weight: client.WeightOf(0.01), Service: host + ":80", Subsets: []string{subset}}
}

// channel is a ClientConn that records what a balancer does with it.
type channel struct {
	balancer.ClientConn
	picker    balancer.Picker
	listeners map[string]func(balancer.SubConnState)
}

func (c *channel) NewSubConn(a []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	c.listeners[a[0].Addr] = o.StateListener
	return &made{name: a[0].Addr}, nil
}

func (c *channel) UpdateState(s balancer.State) { c.picker = s.Picker }

func (c *channel) is(address string, s connectivity.State) {
	c.listeners[address](balancer.SubConnState{ConnectivityState: s, ConnectionError: errors.New("refused")})
}

type made struct {
	balancer.SubConn
	name string
}

func (*made) Connect() {}

// TestBalancer_ConnectingSubset: a call fails when connecting has failed. A call that waits for a ready
// connection keeps waiting.
func TestBalancer_ConnectingSubset(t *testing.T) {
	cc := &channel{listeners: make(map[string]func(balancer.SubConnState))}
	f := &follower{places: make(map[string]*place)}
	one, two := of("a", "10.0.0.1", "v1"), of("a", "10.0.0.2", "v2")
	one.Router, two.Router = table("a", "v2"), table("a", "v2")
	b := NewBalancer().Build(cc, balancer.BuildOptions{})
	state := f.state(client.Snapshot{Endpoints: []client.Endpoint{one, two}})
	if err := b.UpdateClientConnState(balancer.ClientConnState{ResolverState: state}); err != nil {
		t.Fatal(err)
	}
	pick := func() (string, error) {
		got, err := cc.picker.Pick(balancer.PickInfo{FullMethodName: "/a/b", Ctx: context.Background()})
		if err != nil {
			return "", err
		}
		return got.SubConn.(*made).name, nil //nolint:forcetypeassert // there are no others
	}
	cc.is("10.0.0.1:80", connectivity.Ready)
	cc.is("10.0.0.2:80", connectivity.Connecting)
	if _, err := pick(); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("while it connects: %v", err)
	}
	cc.is("10.0.0.2:80", connectivity.TransientFailure)
	cc.is("10.0.0.2:80", connectivity.Connecting)
	_, err := pick()
	if _, isStatus := status.FromError(err); err == nil || errors.Is(err, balancer.ErrNoSubConnAvailable) || isStatus {
		t.Errorf("after it failed: %v", err)
	}
	cc.is("10.0.0.2:80", connectivity.Ready)
	if name, err := pick(); err != nil || name != "10.0.0.2:80" {
		t.Errorf("once it is ready: %s, %v", name, err)
	}
}

// TestBalancer_RoutesByHost: two services of the mesh provide one interface, each with its own routes.
func TestBalancer_RoutesByHost(t *testing.T) {
	info := base.PickerBuildInfo{ReadySCs: make(map[balancer.SubConn]base.SubConnInfo)}
	for host, subset := range map[string]string{"a": "blue", "b": "green"} {
		p := &place{}
		e := of(host, host, subset)
		e.Router = table(host, subset)
		p.now.Store(&e)
		info.ReadySCs[conn{name: host}] = base.SubConnInfo{Address: resolver.Address{BalancerAttributes: attributes.New(placeKey{}, p)}} //nolint:staticcheck // as the base balancer
	}
	if got := (rig{picker: builder{}.Build(info)}).shares(t); !near(got["a"], 50) || !near(got["b"], 50) {
		t.Errorf("%v", got)
	}
}

// TestBalancer_ServiceConfig: gRPC uses the default service config only if the resolver returns none.
func TestBalancer_ServiceConfig(t *testing.T) {
	balancer.Register(NewBalancer())
	f := &follower{places: make(map[string]*place)}
	if out := f.state(client.Snapshot{Endpoints: []client.Endpoint{of("a", "10.0.0.1", "")}}); out.ServiceConfig != nil {
		t.Error("it displaces retries, timeouts and health checks")
	}
}
