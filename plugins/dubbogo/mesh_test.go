//go:build !race

// dubbo-go itself has data races, see serve_test.go.

package dubbogo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"dubbo.apache.org/dubbo-go/v3"
	dclient "dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads/adstest"
)

// istiod is one within the process.
type istiod struct {
	*adstest.Server
	xds, debug string // addresses
}

func serveIstiod(t *testing.T) istiod {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := istiod{Server: adstest.NewServer(), xds: l.Addr().String()}
	discovery := grpc.NewServer(adstest.ServerOptions()...)
	i.Register(discovery)
	go func() { _ = discovery.Serve(l) }() // until it is stopped
	t.Cleanup(discovery.Stop)
	debug := httptest.NewServer(http.HandlerFunc(i.clients))
	t.Cleanup(debug.Close)
	i.debug = strings.TrimPrefix(debug.URL, "http://")
	return i
}

// clients shows who is connected, as istiod's debug API does.
func (i istiod) clients(w http.ResponseWriter, _ *http.Request) {
	all := make([]any, 0)
	for _, c := range i.Connections() {
		all = append(all, map[string]any{"connectionId": c.ID, "connectedAt": c.ConnectedAt, "address": c.Address, "metadata": c.Node.GetMetadata().AsMap()})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"totalClients": len(all), "clients": all})
}

// registry is how dubbo-go's configuration names it.
func (i istiod) registry(protocol, pod string, by registry.Option) dubbo.InstanceOption {
	return dubbo.WithRegistry(registry.WithAddress(protocol+"://"+i.xds), registry.WithParams(map[string]string{
		"name": pod, "namespace": "shop", "ip": "127.0.0.1", "debug": i.debug, "interval": "20ms", "allow": "127.0.0.0/8",
	}), by)
}

// host is the one that the istiod of a test has.
const host = "greeter.shop.svc.cluster.local"

func clusterOf(subset string) string { return "outbound|80|" + subset + "|" + host }

// has tells of providers by subset, each with a weight.
func (i istiod) has(subsets map[string]map[int]uint32) {
	assigned := make(map[string]*endpointv3.ClusterLoadAssignment)
	add := func(subset string, ports map[int]uint32) {
		name := clusterOf(subset)
		if assigned[name] == nil {
			assigned[name] = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{}}}
		}
		for _, port := range slices.Sorted(maps.Keys(ports)) {
			at := &corev3.SocketAddress{Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}} //nolint:gosec // a port
			here := assigned[name].GetEndpoints()[0]
			here.LbEndpoints = append(here.LbEndpoints, &endpointv3.LbEndpoint{
				LoadBalancingWeight: wrapperspb.UInt32(ports[port]),
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: at}},
				}},
			})
		}
	}
	add("", nil)
	for subset, ports := range subsets {
		add(subset, ports)
		add("", ports)
	}
	var all []proto.Message
	for name, a := range assigned {
		all = append(all, a, &clusterv3.Cluster{
			Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name, EdsConfig: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			}},
		})
	}
	i.Set(all...)
}

// routes has a VirtualService send a path to a subset that nobody is in, a header to
// v2, and the rest to v1.
func (i istiod) routes(nowhere string) {
	to := func(subset string, m *routev3.RouteMatch) *routev3.Route {
		return &routev3.Route{Match: m, Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: clusterOf(subset)},
		}}}
	}
	all := &routev3.RouteMatch_Prefix{Prefix: "/"}
	canary := &routev3.HeaderMatcher{Name: "x-env", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
		StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "canary"}},
	}}
	i.Set(&routev3.RouteConfiguration{Name: clusterOf(""), VirtualHosts: []*routev3.VirtualHost{{
		Name: host + ":80", Domains: []string{host},
		Routes: []*routev3.Route{
			to("v3", &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: nowhere}}),
			to("v2", &routev3.RouteMatch{PathSpecifier: all, Headers: []*routev3.HeaderMatcher{canary}}),
			to("v1", &routev3.RouteMatch{PathSpecifier: all}),
		},
	}}})
}

// choices are what a call may go to: ports with weights. It is a router behind that of
// the mesh, and its factory.
type choices struct {
	mu   sync.Mutex
	last map[string]string // by service
}

func (c *choices) NewPriorityRouter(*common.URL) (router.PriorityRouter, error) { return c, nil }

func (*choices) URL() *common.URL      { return nil }
func (*choices) Priority() int64       { return 2000 }
func (*choices) Notify([]base.Invoker) {}

// Route implements router.PriorityRouter.
func (c *choices) Route(all []base.Invoker, u *common.URL, call base.Invocation) []base.Invoker {
	ports := []string{}
	for _, i := range all {
		ports = append(ports, fmt.Sprintf("%s=%d", i.GetURL().Port, loadbalance.GetWeight(i, call)))
	}
	slices.Sort(ports)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[u.Service()] = strings.Join(ports, " ")
	return all
}

// await calls a service until there are these to choose from.
func (c *choices) await(ctx context.Context, t *testing.T, conn *dclient.Connection, service, want string) {
	t.Helper()
	eventually(t, func() error {
		c.mu.Lock()
		c.last[service] = ""
		c.mu.Unlock()
		err := greet(ctx, conn) // nobody is there to be called
		c.mu.Lock()
		defer c.mu.Unlock()
		if got := c.last[service]; got != want {
			return fmt.Errorf("to choose from: %q, want %q: %w", got, want, err)
		}
		return nil
	})
}

// TestTheMeshIsFollowed: an interface that a provider registers is found at its host,
// by consumers of both levels, with weights, subsets and routes; also what goes.
func TestTheMeshIsFollowed(t *testing.T) {
	seen := &choices{last: make(map[string]string)}
	extension.SetRouterFactory("seeing", func() router.PriorityRouterFactory { return seen })
	for level, by := range levels() {
		t.Run(level, func(t *testing.T) {
			i, service := serveIstiod(t), "api.Routed."+level
			one, two := freePort(t), freePort(t)
			i.has(map[string]map[int]uint32{"v1": {one: 3}, "v2": {two: 1}})
			conn := refer(t, instance(t, "router", i.registry("xdsbridge", "consumer-"+level, by)), service, dclient.WithRetries(0))
			seen.await(t.Context(), t, conn, service, "")

			u := parsed(t, "xds://"+i.xds+"?registry=xds&name=provider-"+level+"&namespace=shop&ip=127.0.0.1&allow=127.0.0.0/8&debug="+i.debug)
			r, err := extension.GetRegistry("xds", u)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Destroy)
			if err := r.Register(parsed(t, fmt.Sprintf("tri://127.0.0.1:%d/%s?side=provider", one, service))); err != nil {
				t.Fatal(err)
			}
			both := fmt.Sprintf("%d=%d %d=%d", min(one, two), map[bool]int{true: 300, false: 100}[one < two], max(one, two), map[bool]int{true: 100, false: 300}[one < two])
			seen.await(t.Context(), t, conn, service, both)

			i.routes("/" + service + "/Admin")
			canary := context.WithValue(t.Context(), constant.AttachmentKey, map[string]any{"X-Env": []string{"canary"}})
			seen.await(t.Context(), t, conn, service, fmt.Sprintf("%d=300", one))
			seen.await(canary, t, conn, service, fmt.Sprintf("%d=100", two))
			if err := conn.CallUnary(t.Context(), []any{"me"}, new(string), "Admin"); err == nil || !strings.Contains(err.Error(), "No provider available") {
				t.Errorf("a subset without providers: %v", err)
			}

			i.has(map[string]map[int]uint32{"v1": {one: 5, two: 1}, "v2": {}})
			seen.await(t.Context(), t, conn, service, strings.ReplaceAll(both, "=300", "=500"))
			i.has(map[string]map[int]uint32{"v1": {two: 1}, "v2": {}})
			seen.await(t.Context(), t, conn, service, fmt.Sprintf("%d=100", two))
			i.has(map[string]map[int]uint32{"v1": {}, "v2": {}})
			seen.await(t.Context(), t, conn, service, "")
		})
	}
}
