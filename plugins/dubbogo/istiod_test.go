//go:build !race

// dubbo-go itself has data races, see serve_test.go.

package dubbogo_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
)

// istiod is an istiod within the process.
type istiod struct {
	*istiodfake.Server
	xds, debug string // addresses
}

func serveIstiod(t *testing.T) istiod {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := istiod{Server: istiodfake.NewServer(), xds: l.Addr().String()}
	discovery := grpc.NewServer(istiodfake.ServerOptions()...)
	i.Register(discovery)
	go func() { _ = discovery.Serve(l) }() // until it is stopped
	t.Cleanup(discovery.Stop)
	debug := httptest.NewServer(http.HandlerFunc(i.clients))
	t.Cleanup(debug.Close)
	i.debug = strings.TrimPrefix(debug.URL, "http://")
	return i
}

// clients returns the connected clients, as istiod's debug API does.
func (i istiod) clients(w http.ResponseWriter, _ *http.Request) {
	all := make([]any, 0)
	for _, c := range i.Connections() {
		all = append(all, map[string]any{"connectionId": c.ID, "connectedAt": c.ConnectedAt, "address": c.Address, "metadata": c.Node.GetMetadata().AsMap()})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"totalClients": len(all), "clients": all})
}

// params returns the parameters of a registry for a pod.
func (i istiod) params(pod, ip string) map[string]string {
	return map[string]string{"name": pod, "namespace": "shop", "ip": ip, "debug": i.debug, "interval": "20ms", "allow": "127.0.0.0/8"}
}

// providers opens the registry of a pod that is a provider.
func (i istiod) providers(t *testing.T, pod string) registry.Registry {
	t.Helper()
	u := parsed(t, "xds://"+i.xds+"?registry=xds")
	for name, value := range i.params(pod, "127.0.0.1") {
		u.SetParam(name, value)
	}
	r, err := extension.GetRegistry("xds", u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Destroy)
	return r
}

func provide(t *testing.T, r registry.Registry, service string, port int) {
	t.Helper()
	if err := r.Register(parsed(t, fmt.Sprintf("tri://127.0.0.1:%d/%s?side=provider&interface=%[2]s", port, service))); err != nil {
		t.Fatal(err)
	}
}

// consumer returns an application of dubbo-go that no Service of the mesh selects.
func (i istiod) consumer(t *testing.T, by registry.Option) *dubbo.Instance {
	t.Helper()
	return instance(t, "consumer", dubbo.WithRegistry(registry.WithAddress("xdsbridge://"+i.xds), registry.WithParams(i.params("consumer", "10.9.9.9")), by))
}

const greeter, other = "greeter.shop.svc.cluster.local", "other.shop.svc.cluster.local"

func clusterOf(host, subset string) string { return "outbound|80|" + subset + "|" + host }

// pod returns an endpoint on loopback.
type pod struct {
	port   int
	weight uint32
	subset string
	health corev3.HealthStatus
}

// has sets the pods of a host.
func (i istiod) has(host string, subsets []string, pods ...pod) {
	for _, subset := range append(subsets, "") {
		name, here := clusterOf(host, subset), new(endpointv3.LocalityLbEndpoints)
		for _, p := range pods {
			if subset != "" && subset != p.subset {
				continue
			}
			at := &corev3.SocketAddress{Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(p.port)}} //nolint:gosec // a port
			here.LbEndpoints = append(here.LbEndpoints, &endpointv3.LbEndpoint{
				LoadBalancingWeight: wrapperspb.UInt32(p.weight), HealthStatus: p.health,
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: at}},
				}},
			})
		}
		i.Set(&endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{here}}, &clusterv3.Cluster{
			Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name, EdsConfig: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			}},
		})
	}
}

// routes sets a VirtualService that sends a path to an empty subset, a header to v2, and other calls
// to v1.
func (i istiod) routes(host, nowhere string) {
	to := func(subset string, m *routev3.RouteMatch) *routev3.Route {
		return &routev3.Route{Match: m, Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: clusterOf(host, subset)},
		}}}
	}
	all := &routev3.RouteMatch_Prefix{Prefix: "/"}
	canary := &routev3.HeaderMatcher{Name: "x-env", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
		StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "canary"}},
	}}
	i.Set(&routev3.RouteConfiguration{Name: clusterOf(host, ""), VirtualHosts: []*routev3.VirtualHost{{
		Name: host + ":80", Domains: []string{host},
		Routes: []*routev3.Route{
			to("v3", &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: nowhere}}),
			to("v2", &routev3.RouteMatch{PathSpecifier: all, Headers: []*routev3.HeaderMatcher{canary}}),
			to("v1", &routev3.RouteMatch{PathSpecifier: all}),
		},
	}}})
}
