// Package dataplane_test has data planes read what is served to them.
package dataplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/xds"
	networking "istio.io/api/networking/v1alpha3"

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
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
func listen(t *testing.T, s *dataplane.Server, events func(dataplane.Event)) string {
	t.Helper()
	if events == nil {
		events = func(dataplane.Event) {}
	}
	return serve(t, func(g *grpc.Server) {
		discovery.RegisterAggregatedDiscoveryServiceServer(g, service{server: s, events: events})
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
	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri": at, "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{"id": "sidecar~127.0.0.1~client.shop~shop.svc.cluster.local"},
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

// call returns the port that answers one call.
func call(t *testing.T, conn *grpc.ClientConn) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var p peer.Peer
	if _, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	at, _ := p.Addr.(*net.TCPAddr)
	return uint32(at.Port)
}

// greeter returns the entry of a host with endpoints on 127.0.0.1.
func greeter(host string, ports ...uint32) dataplane.Entry {
	spec := &networking.ServiceEntry{
		Hosts: []string{host}, Ports: []*networking.ServicePort{{Number: 50051, Name: "grpc", Protocol: "GRPC"}},
		Resolution: networking.ServiceEntry_STATIC,
	}
	for _, p := range ports {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: "127.0.0.1", Ports: map[string]uint32{"grpc": p}, Weight: 100})
	}
	return dataplane.Entry{Name: "xds-bridge/" + host, Spec: spec}
}

func TestProxylessGRPCFindsAHost(t *testing.T) {
	first, second := backend(t), backend(t)
	s := dataplane.NewServer(dataplane.Options{})
	s.Update([]dataplane.Entry{greeter("greeter.bridge.internal", first)}, nil)
	conn := proxyless(t, listen(t, s, func(e dataplane.Event) { t.Log(e) }), "xds:///greeter.bridge.internal:50051")
	if got := call(t, conn); got != first {
		t.Errorf("%d answers, want %d", got, first)
	}
	s.Update([]dataplane.Entry{greeter("greeter.bridge.internal", second)}, nil)
	for call(t, conn) != second {
		if t.Context().Err() != nil {
			t.Fatal("the second endpoint is never called")
		}
	}
}
