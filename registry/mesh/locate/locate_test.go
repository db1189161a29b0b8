package locate_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/locate"
)

func cluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name, EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
	}
}

func assignment(name string, at ...string) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, text := range at {
		a := netip.MustParseAddrPort(text)
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: a.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
				}},
			}}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

// shop is a mesh in which the process at 10.0.0.1:8080 is in two services of its
// namespace, in one of another namespace, and next to one with its own port.
func shop(s *istiodfake.Server) {
	for name, at := range map[string][]string{
		"outbound|80||zebra.shop.svc.cluster.local":    {"10.0.0.1:8080"},
		"outbound|80||greeter.shop.svc.cluster.local":  {"10.0.0.9:8080", "10.0.0.1:8080"},
		"outbound|81||greeter.shop.svc.cluster.local":  {"10.0.0.1:8081"},
		"outbound|80||greeter.other.svc.cluster.local": {"10.0.0.1:8080"},
	} {
		s.Set(cluster(name), assignment(name, at...))
	}
	s.Set(&clusterv3.Cluster{Name: "BlackHoleCluster"}) // has no four parts
}

// world runs a story with a fake istiod, in virtual time.
func world(t *testing.T, story func(t *testing.T, s *istiodfake.Server, o locate.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := istiodfake.NewServer()
		l := bufconn.Listen(1 << 20)
		g := grpc.NewServer(istiodfake.ServerOptions()...)
		server.Register(g)
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		defer func() {
			g.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		}()
		node, err := ads.Identity{Type: "sidecar", IP: "10.0.0.1", Name: "greeter-1", Namespace: "shop"}.Node()
		if err != nil {
			t.Fatal(err)
		}
		story(t, server, locate.Options{
			ADS: ads.Options{Address: "passthrough:///istiod", Node: node, Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }},
			IP:  netip.MustParseAddr("10.0.0.1"), Port: 8080,
		})
	})
}

func TestLocate_OwnService(t *testing.T) {
	world(t, func(t *testing.T, s *istiodfake.Server, o locate.Options) {
		shop(s)
		for range 5 {
			a, err := locate.Find(t.Context(), o)
			if want := (naming.HostAddress{Host: "greeter.shop.svc.cluster.local", Port: 80}); err != nil || a != want {
				t.Fatalf("%s, %v", a, err)
			}
		}
		o.Port = 8081
		if a, err := locate.Find(t.Context(), o); err != nil || a.Port != 81 {
			t.Errorf("another port: %s, %v", a, err)
		}
		synctest.Wait()
		if n := len(s.Connections()); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestLocate_LateService(t *testing.T) {
	world(t, func(t *testing.T, s *istiodfake.Server, o locate.Options) {
		reported := make(chan error, 100)
		o.Report = func(err error) { reported <- err }
		found := make(chan naming.HostAddress, 1)
		go func() {
			a, err := locate.Find(t.Context(), o)
			if err != nil {
				t.Error(err)
			}
			found <- a
		}()
		s.Set(cluster("outbound|80||other.shop.svc.cluster.local"), assignment("outbound|80||other.shop.svc.cluster.local", "10.0.0.7:8080"))
		synctest.Wait()
		if err := <-reported; !errors.Is(err, locate.ErrNoService) {
			t.Errorf("reported %v", err)
		}
		shop(s)
		if a := <-found; a.Host != "greeter.shop.svc.cluster.local" && a.Host != "zebra.shop.svc.cluster.local" {
			t.Errorf("found %s", a)
		}
	})
}

func TestLocate_Errors(t *testing.T) {
	world(t, func(t *testing.T, s *istiodfake.Server, o locate.Options) {
		shop(s)
		o.IP = netip.MustParseAddr("10.0.0.200")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := locate.Find(ctx, o); !errors.Is(err, locate.ErrNoService) {
			t.Errorf("in no service: %v", err)
		}
		o.ADS.Dialer = func(context.Context, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := locate.Find(ctx, o); errors.Is(err, locate.ErrNoService) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("without istiod: %v", err)
		}
	})
}
