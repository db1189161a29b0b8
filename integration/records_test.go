package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// servedHosts asks a bridge what it serves: host, virtual address and
// endpoints of each.
func servedHosts(t *testing.T, listen string) ([]string, error) {
	t.Helper()
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&discovery.DiscoveryRequest{TypeUrl: "networking.istio.io/v1/ServiceEntry"}); err != nil {
		return nil, err
	}
	res, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, a := range res.GetResources() {
		var m mcpv1.Resource
		var spec networking.ServiceEntry
		if err := errors.Join(a.UnmarshalTo(&m), m.GetBody().UnmarshalTo(&spec)); err != nil {
			t.Fatal(err)
		}
		var at []string
		for _, e := range spec.GetEndpoints() {
			at = append(at, e.GetAddress())
		}
		all = append(all, fmt.Sprint(spec.GetHosts()[0], " ", spec.GetAddresses(), " ", at))
	}
	return all, nil
}

// outlivesTheProcess has a bridge end whose registry loses a service while it
// is away: the next process, which has no disk of the first, serves the same
// hosts at the same addresses, the lost one too until the guard lets it go.
func outlivesTheProcess(t *testing.T, registry string, lose func()) {
	t.Helper()
	listen := harness.Address(t)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: "127.0.0.1:1", mapping: { from: none }, import: { keys: "off" } } }
  from: %s
bridges:
  - { name: to-mesh, from: from, to: mesh, listen: %q, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] } }
`, registry, listen))
	if code, out, errs := bridge.Do(t, "preflight"); code != 0 || !strings.Contains(out, "√ records in from") {
		t.Errorf("preflight ends with %d:\n%s%s", code, out, errs)
	}
	bridge.Start(t)
	var before []string
	harness.Eventually(t, soon, "three services are served", func() error {
		var err error
		if before, err = servedHosts(t, listen); err != nil {
			return err
		}
		return harness.Same(len(before), 3)
	})
	for stopped := false; !stopped; { // a registry that is too slow to keep the records is reported
		bridge.Stop(t)
		if stopped = !strings.Contains(bridge.Log(), "could not persist what is served"); !stopped {
			bridge.Start(t)
			bridge.AwaitReady(t)
		}
	}
	lose()
	bridge.Start(t)
	bridge.AwaitReady(t)
	harness.Eventually(t, soon, "the next process answers", func() error {
		after, err := servedHosts(t, listen)
		if err == nil && !slices.Equal(after, before) {
			t.Fatalf("served is %q, was %q", after, before)
		}
		return err
	})
}

// TestServed_Restart has records in real servers.
func TestServed_Restart(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	services := []string{"api.One", "api.Two", "api.Three"}
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		zookeeper := harness.StartZooKeeper(t)
		znodes := harness.Connect(t, zookeeper.Address)
		for i, s := range services {
			znodes.Create(t, registered(s, 20001+i), "")
		}
		outlivesTheProcess(t, fmt.Sprintf("{ zookeeper: { servers: [%q], sessionTimeout: 6s } }", zookeeper.Address), func() {
			znodes.Delete(t, registered("api.Two", 20002))
			znodes.Delete(t, "/dubbo/api.Two/providers")
			znodes.Delete(t, "/dubbo/api.Two")
		})
	})
	eachNacos(t, func(t *testing.T, version int) {
		server := harness.SharedNacos(t, version)
		provider := newHolder(t, server)
		for i, s := range services {
			offers(t, provider, s, 20001+i)
		}
		outlivesTheProcess(t, fmt.Sprintf("{ nacos: { %s, listInterval: 500ms } }", server.Settings()), func() {
			offers(t, provider, "api.Two")
			harness.Eventually(t, soon, "Nacos shows nothing of it", func() error {
				return harness.Same(provider.keys(t, "api.Two"), []string(nil))
			})
		})
	})
}
