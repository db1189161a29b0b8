package bench_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
)

// perService is the number of endpoints of each service.
const perService = 10

// fleet is a mesh of many services behind an xDS server on loopback.
type fleet struct {
	services int
	server   *istiodfake.Server
	address  string
}

func newFleet(t *testing.T, services int) *fleet {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{services: services, server: istiodfake.NewServer(), address: l.Addr().String()}
	var all []proto.Message
	for i := range services {
		all = append(all, f.cluster(i), f.assignment(i, 1))
	}
	f.server.Set(all...)
	g := grpc.NewServer(istiodfake.ServerOptions()...)
	f.server.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f
}

func host(i int) string { return fmt.Sprintf("s%05d.bench.svc.cluster.local", i) }

func iface(i int) string { return fmt.Sprintf("org.bench.api.Service%05d", i) }

func clusterName(i int) string { return "outbound|20000||" + host(i) }

func (*fleet) cluster(i int) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 clusterName(i),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{
			ServiceName: clusterName(i),
			EdsConfig:   &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}},
		},
	}
}

// assignment returns the endpoints of a service; the first has the weight.
func (*fleet) assignment(i int, weight uint32) *endpointv3.ClusterLoadAssignment {
	zone := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: "eu-1", Zone: "eu-1a"}}
	for n := range perService {
		zone.LbEndpoints = append(zone.LbEndpoints, &endpointv3.LbEndpoint{
			LoadBalancingWeight: wrapperspb.UInt32(weight),
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address:       fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, n+1),
					PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 20000},
				}}},
			}},
			Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: map[string]*structpb.Value{
				"workload": structpb.NewStringValue(fmt.Sprintf("s%05d-%d;bench;s%05d;latest;Kubernetes", i, n, i)),
			}}}},
		})
		weight = 1
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: clusterName(i), Endpoints: []*endpointv3.LocalityLbEndpoints{zone}}
}

// change gives the first endpoint of a service another weight and returns
// when.
func (f *fleet) change(i int, weight uint32) time.Time {
	a := f.assignment(i, weight)
	at := time.Now()
	f.server.Set(a)
	return at
}
