package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

// servedAt asks a bridge what it serves, as host:port=endpoints.
func servedAt(t *testing.T, address string) []string {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil || stream.Send(&discovery.DiscoveryRequest{TypeUrl: "networking.istio.io/v1/ServiceEntry"}) != nil {
		return nil
	}
	res, err := stream.Recv()
	if err != nil {
		return nil // it answers once it is complete
	}
	var all []string
	for _, a := range res.GetResources() {
		var m mcpv1.Resource
		var spec networking.ServiceEntry
		if err := a.UnmarshalTo(&m); err != nil {
			t.Fatal(err)
		}
		if err := m.GetBody().UnmarshalTo(&spec); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s:%d=%d", spec.GetHosts()[0], spec.GetPorts()[0].GetNumber(), len(spec.GetEndpoints())))
	}
	return all
}

// TestRun_EmptyHost: a service whose only provider went,
// before the bridge ended or while it was away, keeps the host and the port of
// the protocol it spoke.
func TestRun_EmptyHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	provider := func(iface string) string {
		return "/dubbo/" + iface + "/providers/" + url.QueryEscape("dubbo://10.0.0.1:20001/"+iface+"?interface="+iface+"&side=provider")
	}
	for _, iface := range []string{"api.A", "api.B"} {
		if err := w.zk.Put(provider(iface), nil); err != nil {
			t.Fatal(err)
		}
	}
	listen := porttest.Address(t)
	file := w.file("import.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, import: { keys: "off" } } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [dubbo-interface], guard: { lastEndpoint: 0s, settle: 100ms, share: 1 } }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json, level: debug }
`, w.xds, w.zkAt, listen, w.dir))
	served := func(a, b int) {
		t.Helper()
		var last []string
		want := []string{fmt.Sprintf("api.x-a.k0-0-dubbo.zk.bridge.internal:20880=%d", a), fmt.Sprintf("api.x-b.k0-0-dubbo.zk.bridge.internal:20880=%d", b)}
		eventually(t, "served is "+strings.Join(want, " "), func() bool {
			if now := servedAt(t, listen); !slices.Equal(now, last) {
				last = now
				t.Log(now)
			}
			return slices.Equal(last, want)
		})
	}
	r := w.start(file)
	served(1, 1)
	w.zk.Delete(provider("api.A"))
	served(0, 1)
	r.stop() // which keeps what is served
	w.zk.Delete(provider("api.B"))
	w.start(file)
	served(0, 0)
}
