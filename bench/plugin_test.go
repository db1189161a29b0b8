package bench_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/xds"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xmesh "github.com/xds-bridge/xds-bridge/plugins/client/mesh"
	xgrpc "github.com/xds-bridge/xds-bridge/plugins/grpc"
)

const pluginHost = "greeter.shop.svc.cluster.local"

// direction is a method by which a client of gRPC finds servers in a mesh.
type direction struct {
	target string
	open   func(*testing.T) (resolver.Builder, func()) // as a process that starts does
}

// TestPlugin has clients of gRPC find servers through one istiod: by the plugin,
// and by the xDS resolver that gRPC brings itself.
func TestPlugin(t *testing.T) {
	const starts, moves, calls = 9, 21, 2_000
	balancer.Register(xgrpc.NewBalancer())
	mesh := harness.NewMesh(t)
	mesh.WithoutMutualTLS()
	ports := []int{healthServer(t), healthServer(t)}
	istiod := harness.StartIstiod(t, mesh)
	mesh.Apply(t, harness.Service{Host: pluginHost, Port: 80, Endpoints: harness.Local(ports[0])})
	plugin := direction{"xdsbridge:///" + pluginHost + ":80", func(t *testing.T) (resolver.Builder, func()) { t.Helper(); return byPlugin(t, istiod) }}
	native := direction{"xds:///" + pluginHost + ":80", func(t *testing.T) (resolver.Builder, func()) { t.Helper(); return byXDS(t, istiod) }}

	var start, moved, took, allocs [2][]float64
	for range starts {
		for i, w := range []direction{plugin, native} {
			began := time.Now()
			h, end := w.dial(t)
			awaitServer(t, h, ports[0])
			start[i] = append(start[i], time.Since(began).Seconds())
			end()
		}
	}
	clients := [2]healthpb.HealthClient{}
	for i, w := range []direction{plugin, native} {
		h, end := w.dial(t)
		defer end()
		awaitServer(t, h, ports[0])
		clients[i] = h
	}
	for n := range 2 * moves { // each change is timed for one of them, so that they do not disturb each other
		to, i := ports[(n+1)%2], n/2%2
		began := time.Now()
		mesh.Apply(t, harness.Service{Host: pluginHost, Port: 80, Endpoints: harness.Local(to)})
		awaitServer(t, clients[i], to)
		moved[i] = append(moved[i], time.Since(began).Seconds())
		awaitServer(t, clients[1-i], to)
	}
	call := func(h healthpb.HealthClient) {
		if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		for i, h := range clients {
			began := time.Now()
			allocs[i] = append(allocs[i], testing.AllocsPerRun(calls, func() { call(h) }))
			took[i] = append(took[i], time.Since(began).Seconds()/calls)
		}
	}
	beside := func(what, unit string, pair [2][]float64, scale, limit float64) {
		ours, theirs := median(pair[0]), median(pair[1])
		results.add(t, row{what: what, ours: fmt.Sprintf("%.3g %s", ours*scale, unit), floor: fmt.Sprintf("%.3g %s", theirs*scale, unit), ratio: ours / theirs, limit: limit})
	}
	beside("gRPC plugin beside gRPC's xDS: from start to the first call", "ms", start, 1000, 0)
	beside("gRPC plugin beside gRPC's xDS: from a change in the mesh to a call that follows it", "ms", moved, 1000, 0)
	beside("gRPC plugin beside gRPC's xDS: one call, pick and all", "µs", took, 1e6, 0)
	beside("gRPC plugin beside gRPC's xDS: allocations of one call", "", allocs, 1, 1)
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// byPlugin makes what a program that uses the plugin makes at its start.
func byPlugin(t *testing.T, istiod *harness.Istiod) (resolver.Builder, func()) {
	t.Helper()
	c, err := client.Open(fmt.Sprintf("mesh://%s?name=consumer&namespace=shop&ip=127.0.0.1&debug=%s&allow=127.0.0.0/8", istiod.GRPC, istiod.HTTP), client.Options{}, xmesh.Kind())
	if err != nil {
		t.Fatal(err)
	}
	return xgrpc.NewBuilder(c), func() { _ = c.Close() }
}

// byXDS makes gRPC's own resolver.
func byXDS(t *testing.T, istiod *harness.Istiod) (resolver.Builder, func()) {
	t.Helper()
	b, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "sidecar~127.0.0.1~native.shop~shop.svc.cluster.local", "metadata": {"GENERATOR": "grpc"}}
	}`, istiod.GRPC))
	if err != nil {
		t.Fatal(err)
	}
	return b, func() {}
}

// dial starts a client.
func (w direction) dial(t *testing.T) (healthpb.HealthClient, func()) {
	t.Helper()
	b, end := w.open(t)
	conn, err := grpc.NewClient(w.target, grpc.WithResolvers(b), grpc.WithDefaultServiceConfig(xgrpc.ServiceConfig), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return healthpb.NewHealthClient(conn), func() { _ = conn.Close(); end() }
}

// awaitServer calls until the one at a port answers.
func awaitServer(t *testing.T, h healthpb.HealthClient, port int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for {
		var p peer.Peer
		_, err := h.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true))
		if err == nil && p.Addr.String() == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s does not answer: %v", want, err)
		}
	}
}

func healthServer(t *testing.T) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a listener of TCP
}
