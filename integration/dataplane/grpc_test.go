// Package dataplane_test has data planes read what is served to them.
package dataplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/xds"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// service serves ADS from a server for data planes.
type service struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	server *dataplane.Server
	events func(dataplane.Event)
}

func (s service) StreamAggregatedResources(st discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.server.Stream(st.Context(), st, s.events)
}

func (s service) DeltaAggregatedResources(st discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.server.Delta(st.Context(), st, s.events)
}

// serve returns the address of a server of gRPC.
func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	register(g)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// listen serves data planes and returns where.
func listen(t *testing.T, s *dataplane.Server) string {
	t.Helper()
	return serve(t, func(g *grpc.Server) {
		discovery.RegisterAggregatedDiscoveryServiceServer(g, service{server: s, events: func(e dataplane.Event) {
			if e.Kind == dataplane.EventNack {
				t.Errorf("refused: %+v", e)
			}
		}})
	})
}

// backend is a service of gRPC on 127.0.0.1.
func backend(t *testing.T) (port uint32) {
	t.Helper()
	address := serve(t, func(g *grpc.Server) { healthgrpc.RegisterHealthServer(g, healthy{}) })
	_, text, _ := net.SplitHostPort(address)
	if _, err := fmt.Sscan(text, &port); err != nil {
		t.Fatal(err)
	}
	return port
}

func portText(port uint32) string { return strconv.FormatUint(uint64(port), 10) }

type healthy struct {
	healthgrpc.UnimplementedHealthServer
}

func (healthy) Check(context.Context, *healthgrpc.HealthCheckRequest) (*healthgrpc.HealthCheckResponse, error) {
	return &healthgrpc.HealthCheckResponse{Status: healthgrpc.HealthCheckResponse_SERVING}, nil
}

// proxyless returns a connection of gRPC to a target, as an application makes
// it.
func proxyless(t *testing.T, at, target string) *grpc.ClientConn {
	t.Helper()
	return proxylessOver(t, at, target, map[string]any{"type": "insecure"})
}

// proxylessOver is proxyless that connects to its control plane with
// credentials.
func proxylessOver(t *testing.T, at, target string, credentials map[string]any) *grpc.ClientConn {
	t.Helper()
	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri": at, "channel_creds": []any{credentials}, "server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{
			"id": "sidecar~127.0.0.1~client.shop~shop.svc.cluster.local", "locality": map[string]any{"region": "eu", "zone": "b"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(resolver))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call returns the port that answers one call with headers.
func call(t *testing.T, conn *grpc.ClientConn, headers ...string) uint32 {
	t.Helper()
	at, err := tryCall(t.Context(), conn, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func tryCall(ctx context.Context, conn *grpc.ClientConn, headers ...string) (port uint32, err error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, headers...), soon)
	defer cancel()
	var p peer.Peer
	if _, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{}, grpc.Peer(&p)); err != nil {
		return 0, err
	}
	at, _ := p.Addr.(*net.TCPAddr)
	return uint32(at.Port), nil
}

// greeter returns the entry of the target's host with endpoints on 127.0.0.1.
func greeter(ports ...uint32) dataplane.Entry {
	const host = "greeter.bridge.internal"
	spec := &networking.ServiceEntry{
		Hosts: []string{host}, Ports: []*networking.ServicePort{{Number: 50051, Name: "grpc", Protocol: "GRPC"}},
		Resolution: networking.ServiceEntry_STATIC,
	}
	for _, p := range ports {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: "127.0.0.1", Ports: map[string]uint32{"grpc": p}, Weight: 100})
	}
	return dataplane.Entry{Name: "xds-bridge/" + host, Spec: spec}
}

const target = "xds:///greeter.bridge.internal:50051"

func TestGRPC_Host(t *testing.T) {
	t.Parallel()
	first, second := backend(t), backend(t)
	s := dataplane.NewServer(dataplane.Options{})
	s.Update([]dataplane.Entry{greeter(first)}, nil)
	conn := proxyless(t, listen(t, s), target)
	if got := call(t, conn); got != first {
		t.Errorf("%d answers, want %d", got, first)
	}
	s.Update([]dataplane.Entry{greeter(second)}, nil)
	harness.Eventually(t, soon, "the second endpoint", func() error { return harness.Same(call(t, conn), second) })
}

// counted returns how many of 2,000 calls each port answered, once all did.
func counted(t *testing.T, conn *grpc.ClientConn, ports ...uint32) map[uint32]int {
	t.Helper()
	seen := make(map[uint32]bool)
	harness.Eventually(t, soon, "every endpoint answers", func() error {
		seen[call(t, conn)] = true
		return harness.Same(len(seen), len(ports))
	})
	n := make(map[uint32]int)
	for range 2000 {
		n[call(t, conn)]++
	}
	return n
}

// within fails where a number of calls is one that chance does not explain.
func within(t *testing.T, n, least, most int) {
	t.Helper()
	if n < least || n > most {
		t.Errorf("%d of 2,000 calls, want %d to %d", n, least, most)
	}
}

func TestGRPC_Weights(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	light, heavy := backend(t), backend(t)
	e := greeter(light, heavy)
	e.Spec.Endpoints[1].Weight = 300
	s := dataplane.NewServer(dataplane.Options{})
	s.Update([]dataplane.Entry{e}, nil)
	n := counted(t, proxyless(t, listen(t, s), target), light, heavy)
	within(t, n[light], 350, 650)
}

func TestGRPC_Routes(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stable, canary := backend(t), backend(t)
	e := greeter(stable, canary)
	e.Spec.Endpoints[0].Labels = map[string]string{"version": "v1"}
	e.Spec.Endpoints[1].Labels = map[string]string{"version": "v2"}
	rules, refused := dataplane.ParseRules([][]byte{
		[]byte(`{"kind": "DestinationRule", "spec": {"host": "greeter.bridge.internal", "subsets": [
			{"name": "v1", "labels": {"version": "v1"}}, {"name": "v2", "labels": {"version": "v2"}}]}}`),
		[]byte(`{"kind": "VirtualService", "spec": {"hosts": ["greeter.bridge.internal"], "http": [
			{"match": [{"headers": {"canary": {"exact": "yes"}}}], "route": [{"destination": {"host": "greeter.bridge.internal", "subset": "v2"}}]},
			{"route": [
				{"destination": {"host": "greeter.bridge.internal", "subset": "v1"}, "weight": 90},
				{"destination": {"host": "greeter.bridge.internal", "subset": "v2"}, "weight": 10}]}]}}`),
	})
	if refused != nil {
		t.Fatal(refused)
	}
	s := dataplane.NewServer(dataplane.Options{Rules: rules})
	s.Update([]dataplane.Entry{e}, nil)
	conn := proxyless(t, listen(t, s), target)
	for range 100 {
		if got := call(t, conn, "canary", "yes"); got != canary {
			t.Fatalf("%d answers a call with the header, want %d", got, canary)
		}
	}
	n := counted(t, conn, stable, canary)
	within(t, n[canary], 100, 320)
}

func TestGRPC_Locality(t *testing.T) {
	t.Parallel()
	rules, refused := dataplane.ParseRules([][]byte{[]byte(`{"kind": "DestinationRule", "spec": {"host": "greeter.bridge.internal",
		"trafficPolicy": {"loadBalancer": {"localityLbSetting": {"enabled": true}}}}}`)})
	if refused != nil {
		t.Fatal(refused)
	}
	far, near := backend(t), backend(t)
	e := greeter(far, near)
	e.Spec.Endpoints[0].Locality, e.Spec.Endpoints[1].Locality = "eu/a", "eu/b"
	s := dataplane.NewServer(dataplane.Options{Rules: rules})
	s.Update([]dataplane.Entry{e}, nil)
	conn := proxyless(t, listen(t, s), target)
	for range 50 {
		if got := call(t, conn); got != near {
			t.Fatalf("%d answers, want %d", got, near)
		}
	}
	s.Update([]dataplane.Entry{greeter(far)}, nil)
	harness.Eventually(t, soon, "the far endpoint", func() error { return harness.Same(call(t, conn), far) })
}
