package mesh

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
	source "github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
)

// serveMesh runs an istiod in memory until the test ends, and returns its dialer.
func serveMesh(t *testing.T, server *istiodfake.Server) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(istiodfake.ServerOptions()...)
	server.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
}

// meshOf runs a publisher with an istiod in memory until the test ends, and returns its log.
func meshOf(t *testing.T, server *istiodfake.Server, watch func(client.Query) *client.Watch) (*meshPublisher, *strings.Builder) {
	t.Helper()
	dial := serveMesh(t, server)
	node, err := ads.Identity{Type: "sidecar", IP: "10.0.0.1", Name: "greeter-1", Namespace: "shop"}.Node()
	if err != nil {
		t.Fatal(err)
	}
	k, err := keys.New(keys.Options{Node: node, Provider: true, Dial: Options{}.dial, Replicas: debug.Static()})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	p := newMeshPublisher(k, ads.Options{
		Address: "passthrough:///istiod", Node: node, Dialer: dial,
	}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	p.watch = watch
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.follow(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return p, &log
}

// service returns a cluster of the mesh with its endpoints.
func service(name string, at ...netip.AddrPort) []proto.Message {
	var endpoints []*endpointv3.LbEndpoint
	for _, a := range at {
		endpoints = append(endpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: a.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
				}},
			}}},
		})
	}
	return []proto.Message{&clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name, EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
	}, &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: endpoints}}}}
}

// clusterIP resolves every name to the address of a Service, whose connections reach different
// replicas.
type clusterIP struct{}

// LookupHost implements debug.Lookup.
func (clusterIP) LookupHost(context.Context, string) ([]string, error) {
	return []string{"10.96.0.10"}, nil
}

func TestMesh_IstiodReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := istiodfake.NewServer()
		server.Set(service("outbound|15012||istiod.istio-system.svc.cluster.local",
			netip.MustParseAddrPort("10.0.0.11:15012"), netip.MustParseAddrPort("10.0.0.12:15012"))...)
		dial := serveMesh(t, server)
		identity := ads.Identity{Type: "sidecar", IP: "10.0.0.1", Name: "greeter-1", Namespace: "shop"}
		node, err := identity.Node()
		if err != nil {
			t.Fatal(err)
		}
		mesh := &istiod{
			Options: Options{
				Address: "istiod.istio-system.svc:15012", Credentials: ads.Credentials{TLS: &ads.TLS{}}, Identity: identity,
				Host: naming.HostAddress{Host: "greeter.shop.svc.cluster.local", Port: 80}, Log: slog.New(slog.DiscardHandler),
			},
			stream:   ads.Options{Address: "passthrough:///istiod", Node: node, Dialer: dial},
			resolver: clusterIP{},
			connect: func(string) (grpc.ClientConnInterface, func(), error) {
				conn, err := ads.Dial("passthrough:///istiod", ads.Credentials{}, grpc.WithContextDialer(dial))
				return conn, func() { _ = conn.Close() }, err
			},
		}
		b, err := mesh.backend()
		if err != nil {
			t.Fatal(err)
		}
		c := start(t, b)
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(time.Second).C
		synctest.Wait()
		var read, published []string
		for _, r := range b.Source.(*source.Source).Status().Mapping.Replicas { //nolint:forcetypeassert // it is one
			read = append(read, r.Replica)
		}
		for _, r := range b.Publisher.(*meshPublisher).keys.Status().Replicas { //nolint:forcetypeassert // it is one
			published = append(published, r.Replica)
		}
		want := []string{"10.0.0.11:15012", "10.0.0.12:15012"}
		if !slices.Equal(read, want) || !slices.Equal(published, want) {
			t.Errorf("read at %v, published at %v; want %v", read, published, want)
		}
	})
}

// TestMesh_MissingPort: an application serves gRPC at a port
// of its Service and HTTP at one that no Service has.
func TestMesh_MissingPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := istiodfake.NewServer()
		server.Set(service("outbound|80||greeter.shop.svc.cluster.local", netip.MustParseAddrPort("10.0.0.1:8080"))...)
		p, log := meshOf(t, server, nil)
		good := client.Instance{Application: "greeter", Host: "10.0.0.1", Port: 8080, Protocol: "grpc"}
		admin := client.Instance{Application: "greeter", Host: "10.0.0.1", Port: 9999, Protocol: "http"}
		p.Set([]client.Instance{admin, good})
		<-time.NewTimer(10 * time.Minute).C
		synctest.Wait()
		if !strings.Contains(log.String(), "greeter.shop.svc.cluster.local:80") {
			t.Errorf("ten minutes later the gRPC port, which is in its Service, was not found:\n%s", log)
		}
		if err := firstOf(p.Problems()); !errors.Is(err, client.ErrOwnAddressUnknown) || !strings.Contains(err.Error(), "10.0.0.1:9999") {
			t.Errorf("error: %v", err)
		}
		p.Set([]client.Instance{good})
		synctest.Wait()
		if err := firstOf(p.Problems()); err != nil {
			t.Errorf("once the port without a Service is withdrawn: %v", err)
		}
	})
}

// steps is a source that runs the steps of a test.
type steps chan func(*registry.Table)

// Run implements registry.Source.
func (s steps) Run(ctx context.Context, t *registry.Table) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-s:
			do(t)
		}
	}
}

// TestMesh_RenamedService: a host address that was found may change later.
func TestMesh_RenamedService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := netip.MustParseAddrPort("10.0.0.1:8080")
		server := istiodfake.NewServer()
		server.Set(service("outbound|80||greeter.shop.svc.cluster.local", at)...)
		source := make(steps)
		c := start(t, client.Backend{Kind: "mesh", Source: source})
		p, log := meshOf(t, server, c.Watch)
		p.Set([]client.Instance{{Application: "greeter", Host: "10.0.0.1", Port: 8080, Protocol: "grpc"}})
		put := func(host string, endpoints ...registry.Endpoint) {
			source <- func(t *registry.Table) {
				t.Replace(slices.Values([]*registry.Service{{Name: registry.Name(host), Endpoints: endpoints}}))
			}
			synctest.Wait()
		}
		put("greeter.shop.svc.cluster.local:80", registry.Endpoint{Host: "10.0.0.1", Port: 8080})
		put("greeter.shop.svc.cluster.local:80")
		<-time.NewTimer(departureWait / 2).C
		put("greeter.shop.svc.cluster.local:80", registry.Endpoint{Host: "10.0.0.1", Port: 8080})
		<-time.NewTimer(departureWait).C
		synctest.Wait()
		if strings.Contains(log.String(), "searching again") {
			t.Errorf("searched again though it was back:\n%s", log)
		}
		server.Remove(istiodfake.ClusterType, "outbound|80||greeter.shop.svc.cluster.local")
		server.Set(service("outbound|80||welcome.shop.svc.cluster.local", at)...)
		put("welcome.shop.svc.cluster.local:80", registry.Endpoint{Host: "10.0.0.1", Port: 8080})
		<-time.NewTimer(2 * departureWait).C
		synctest.Wait()
		if !strings.Contains(log.String(), "host_address=welcome.shop.svc.cluster.local:80") {
			t.Errorf("not found under its new name:\n%s", log)
		}
	})
}

func TestMesh_ServerNameOfReplicas(t *testing.T) {
	for given, want := range map[string]string{"": "istiod.istio-system.svc", "istiod.example": "istiod.example"} {
		b, err := New(Options{
			Address: "istiod.istio-system.svc:15012", Credentials: ads.Credentials{TLS: &ads.TLS{ServerName: given}},
			Identity: ads.Identity{IP: "10.0.0.1", Name: "greeter-1", Namespace: "shop"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Publisher.(*meshPublisher).stream.Credentials.TLS.ServerName; got != want { //nolint:forcetypeassert // it is one
			t.Errorf("given %q: %q, want %q", given, got, want)
		}
	}
}

// TestHostsOf_OneKeyAtTwoPorts: a key leads to one port, whichever is registered first. The instance
// at the other port gets an error.
func TestHostsOf_OneKeyAtTwoPorts(t *testing.T) {
	t.Parallel()
	at := make(map[string]*location)
	var all []client.Instance
	for _, port := range []uint16{20001, 20000} {
		i := client.Instance{Interfaces: []client.Interface{{Name: "api.Greeter"}}, Host: "10.0.0.1", Port: port}
		all = append(all, i)
		at[i.Address()] = &location{address: i.Address(), host: naming.HostAddress{Host: "greeter.shop", Port: port}}
	}
	for range 2 {
		hosts, conflict := hostsOf(all, at)
		if got := hosts[client.KeysOf(seam.Key{}, all[0])[0]]; got.Port != 20000 || !errors.Is(firstOf(conflict), client.ErrInvalid) {
			t.Errorf("hostsOf = %v, %v, want port 20000 and ErrInvalid", hosts, conflict)
		}
		slices.Reverse(all)
	}
}

// firstOf returns the error of the first name in order.
func firstOf(all map[string]error) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		return all[name]
	}
	return nil
}

var greeter = client.Instance{
	Application: "greeter", Interfaces: []client.Interface{{Name: "api.Greeter"}, {Name: "api.Farewell", Version: "1.0.0"}},
	Host: "10.0.0.1", Port: 20000, Protocol: "tri",
}

func start(t *testing.T, b client.Backend) *client.Client {
	t.Helper()
	c, err := client.New(b, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
