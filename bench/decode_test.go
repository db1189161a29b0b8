package bench_test

import (
	"context"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// TestDecode measures what a response costs next to a client that only
// decodes it.
func TestDecode(t *testing.T) {
	data, err := proto.Marshal((&fleet{}).assignment(1, 1))
	must(t, err)
	reading := mesh.NewDecoder(nil, 0)
	const times = 20_000
	ours := measure(t, times, func() { _, _, err = reading.DecodeAssignment(data) })
	must(t, err)
	floor := measure(t, times, func() { err = proto.Unmarshal(data, new(endpointv3.ClusterLoadAssignment)) })
	must(t, err)
	results.add(t, against("read a changed endpoint", ours/perService, floor/perService, 0))

	f := newFleet(t, 5_000)
	var with, without []time.Duration
	for range 3 {
		without = append(without, pushed(t, f, bare))
		with = append(with, pushed(t, f, whole))
	}
	ours, floor = quantile(with, 0), quantile(without, 0)
	results.add(t, against("read an unchanged endpoint, the server's part included", ours, floor, 0))
	results.add(t, against("read an unchanged endpoint, beyond a bare client, and the aim", max(0, ours-floor), 50*time.Nanosecond, 0))
}

// pushed runs a client and returns the CPU for each endpoint of full pushes in
// which nothing changed, the server's included.
func pushed(t *testing.T, f *fleet, client func(context.Context, *testing.T, *fleet, func())) time.Duration {
	t.Helper()
	const pushes = 20
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan struct{}, 1)
	var running sync.WaitGroup
	running.Go(func() {
		client(ctx, t, f, func() {
			select {
			case read <- struct{}{}:
			default:
			}
		})
	})
	<-read
	before := cpu(t)
	for range pushes {
		f.server.Push()
		<-read
	}
	used := cpu(t) - before
	cancel()
	running.Wait()
	return used / time.Duration(pushes*f.services*perService)
}

// whole is the bridge's source. It reports each time it read the endpoints.
func whole(ctx context.Context, t *testing.T, f *fleet, read func()) {
	node, err := ads.Identity{Type: "router", IP: "127.0.0.1", Name: "bench", Namespace: "istio-system"}.Node()
	check(t, err)
	source, err := mesh.New(mesh.Options{
		ADS: ads.Options{Address: f.address, Node: node, Observe: func(o ads.Observation) {
			if o.Kind == ads.Acknowledged && o.Type == istiodfake.EndpointType {
				read()
			}
		}},
		Mapping: f.mapping(),
	})
	check(t, err)
	check(t, source.Run(ctx, registry.NewTable()))
}

// bare is a client that does nothing with what it receives.
func bare(ctx context.Context, t *testing.T, f *fleet, read func()) {
	conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(ads.DefaultMaxReceive)))
	check(t, err)
	defer func() { check(t, conn.Close()) }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	check(t, err)
	node, err := ads.Identity{Type: "router", IP: "127.0.0.1", Name: "bare", Namespace: "istio-system"}.Node()
	check(t, err)
	check(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: istiodfake.ClusterType}))
	var names []string
	for i := range f.services {
		names = append(names, clusterName(i))
	}
	check(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: istiodfake.EndpointType, ResourceNamesSubscribe: names}))
	for {
		r, err := stream.Recv()
		if err != nil {
			return // the end
		}
		check(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}))
		if r.GetTypeUrl() == istiodfake.EndpointType {
			read()
		}
	}
}
