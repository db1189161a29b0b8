package integration_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// mcpServer is an MCP server whose target the test writes itself.
type mcpServer struct {
	address string
	target  *mcp.Target
	server  *mcp.Server
	codec   *serviceentry.Codec
}

func startMCP(t *testing.T, change ...func(*mcp.Options)) *mcpServer {
	t.Helper()
	codec, err := serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}, Namespace: "xds-bridge",
		Mark: metadata.NewMark("me", "b"), VIPs: netip.MustParsePrefix("240.64.0.0/12"),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := mcp.Options{Owner: metadata.NewMark("me", "b").Owner, VIPs: netip.MustParsePrefix("240.64.0.0/12")}
	for _, f := range change {
		f(&o)
	}
	target := mcp.NewTarget(o)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mcpServer{address: l.Addr().String(), target: target, codec: codec, server: mcp.NewServer(target, mcp.ServerOptions{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{}, 2)
	go func() { _ = target.Run(ctx); done <- struct{}{} }()
	go func() {
		if err := m.server.Serve(ctx, l); err != nil {
			t.Error(err)
		}
		done <- struct{}{}
	}()
	t.Cleanup(func() { cancel(); <-done; <-done })
	return m
}

// put replaces what is held of an interface.
func (m *mcpServer) put(t *testing.T, iface string, hosts ...string) {
	t.Helper()
	s := &registry.Service{Name: registry.Name(iface), Protocol: "tri", Interfaces: []registry.Interface{{Name: iface}}}
	for _, h := range hosts {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: h, Port: 20001})
	}
	entries, err := m.codec.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	g := entries[0].Group
	held, err := m.target.Read(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	change := registry.Change{Group: g, Delete: held}
	if err := m.target.Write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	change = registry.Change{Group: g, Want: entries}
	for _, e := range entries {
		change.Put = append(change.Put, registry.Write{New: e})
	}
	if err := m.target.Write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
}

func imported(iface string) string {
	host := naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}.Of(naming.MeshName{
		Key: naming.ServiceKey{Category: naming.Providers, Interface: iface}, Protocol: "tri",
	})
	return "outbound|50051||" + host
}

func TestMCP_Istiod(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := startMCP(t)
	server.put(t, "api.Greeter", "10.0.0.1", "10.0.0.2")
	server.put(t, "api.Hello$Inner", "10.0.0.3")
	server.target.SourcesComplete()
	mesh := harness.NewMesh(t)
	mesh.From(server.address)
	istiod := harness.StartIstiod(t, mesh)
	greeter := harness.WatchEndpoints(t, istiod.GRPC, imported("api.Greeter"))
	t.Run("istiod is ready with our source and serves its endpoints", func(t *testing.T) {
		greeter.AwaitPush(t, 10*time.Second, "10.0.0.1:20001", "10.0.0.2:20001")
		harness.WatchEndpoints(t, istiod.GRPC, imported("api.Hello$Inner")).AwaitPush(t, 10*time.Second, "10.0.0.3:20001")
	})
	t.Run("an endpoint that goes is gone from EDS", func(t *testing.T) {
		server.put(t, "api.Greeter", "10.0.0.2")
		greeter.AwaitPush(t, 2*time.Second, "10.0.0.2:20001")
	})
	t.Run("the istiod shows as a reader that confirmed what it was sent", func(t *testing.T) {
		harness.Eventually(t, 5*time.Second, "a reader", func() error {
			readers := server.server.Readers()
			if len(readers) != 1 || readers[0].Acked == "" || readers[0].Acked != readers[0].Sent {
				return fmt.Errorf("readers %+v", readers)
			}
			return nil
		})
	})
	t.Run("a second istiod that starts later gets the same", func(t *testing.T) {
		other := harness.StartIstiod(t, mesh)
		harness.WatchEndpoints(t, other.GRPC, imported("api.Greeter")).AwaitPush(t, 10*time.Second, "10.0.0.2:20001")
	})
}

func TestMCP_FiveThousandServices(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := startMCP(t)
	const services = 5000
	for i := range services {
		server.put(t, fmt.Sprintf("api.S%d", i), "10.0.0.1", "10.0.0.2", "10.0.0.3")
	}
	server.target.SourcesComplete()
	mesh := harness.NewMesh(t)
	mesh.From(server.address)
	istiod := harness.StartIstiod(t, mesh)
	for _, i := range []int{0, services / 2, services - 1} {
		harness.WatchEndpoints(t, istiod.GRPC, imported(fmt.Sprintf("api.S%d", i))).
			AwaitPush(t, 20*time.Second, "10.0.0.1:20001", "10.0.0.2:20001", "10.0.0.3:20001")
	}
}
