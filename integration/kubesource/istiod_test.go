package kubesource

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// TestSource_IstiodChanges reads one cluster by its API and by an istiod that
// reads it, through changes, and compares both field by field.
func TestSource_IstiodChanges(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newCluster(t)
	c.node(t, "node-a", "r1", "z1")
	c.service(t, "greeter")
	c.pods(t, ready("greeter-1", "10.1.0.1"), ready("greeter-2", "10.1.0.2"))
	c.istio(t, "ServiceEntry", "legacy", `spec:
  hosts: [legacy.example]
  resolution: STATIC
  location: MESH_INTERNAL
  ports: [{ number: 7070, name: tcp, protocol: TCP, targetPort: 17070 }]
  endpoints:
    - { address: 10.2.0.1, weight: 5, locality: r1/z2 }
    - { address: 10.2.0.2, ports: { tcp: 7071 } }`)
	c.istio(t, "ServiceEntry", "names", "spec: { hosts: [name.example], resolution: DNS, ports: [{ number: 443, name: tls, protocol: TLS }] }")
	c.istio(t, "ServiceEntry", "vm", `spec:
  hosts: [vm.example]
  resolution: STATIC
  location: MESH_INTERNAL
  ports: [{ number: 20880, name: tcp, protocol: TCP }]
  workloadSelector: { labels: { app: vm } }`)
	c.istio(t, "WorkloadEntry", "vm-1", "spec: { address: 10.3.0.1, labels: { app: vm }, weight: 3, locality: r3/z3 }")

	m := harness.NewMesh(t)
	m.In(t, c.Kubernetes)
	source, _ := c.byAPI(t)
	api, xds := read(t, source), read(t, byXDS(t, harness.StartIstiod(t, m)))
	same := func(what, greeters string) {
		t.Helper()
		await(t, api, greeters)
		awaitSame(t, api, xds, what)
	}
	same("at first", "10.1.0.1:20990 10.1.0.2:20990")
	c.pods(t, endpoint{"greeter-1", "10.1.0.1", false, false, false}, ready("greeter-2", "10.1.0.2"), ready("greeter-3", "10.1.0.3"))
	same("one unready, one new", "10.1.0.2:20990 10.1.0.3:20990")
	c.pods(t, ready("greeter-1", "10.1.0.1"), endpoint{"greeter-2", "10.1.0.2", false, true, true}, ready("greeter-3", "10.1.0.3"))
	same("one ready again, one terminating", "10.1.0.1:20990 10.1.0.3:20990")
	c.pods(t, ready("greeter-1", "10.1.0.1"))
	c.istio(t, "WorkloadEntry", "vm-2", "spec: { address: 10.3.0.2, labels: { app: vm } }")
	c.Drop(t, "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/names")
	same("some gone", "10.1.0.1:20990")
}

// TestSource_EqualsIstiod compares both readings of Services, endpoints
// and entries in all the forms that they have. By design an endpoint without a Pod
// keeps the zone of its slice, and one with a network is left out; neither is here.
func TestSource_EqualsIstiod(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newCluster(t)
	for _, file := range []string{"services.yaml", "entries.yaml"} {
		c.store(t, file)
	}
	m := harness.NewMesh(t)
	m.In(t, c.Kubernetes)
	source, _ := c.byAPI(t)
	api, xds := read(t, source), read(t, byXDS(t, harness.StartIstiod(t, m)))
	awaitSame(t, api, xds, "all objects")
}

// awaitSame waits until a table of the API and one of an istiod report the same.
func awaitSame(t *testing.T, api, xds *registry.Table, what string) {
	t.Helper()
	harness.Eventually(t, soon, what+": both report the same", func() error {
		if !api.Certainty().Synced || !xds.Certainty().Synced {
			return errors.New("one has not reported everything")
		}
		a, _ := api.Snapshot()
		b, _ := xds.Snapshot()
		for name := range b { // of istiod's own namespaces
			if strings.Contains(string(name), ".istio-system.") || strings.HasPrefix(string(name), "kubernetes.default.") {
				delete(b, name)
				delete(a, name)
			}
		}
		if d := harness.Differences(a, b); len(d) > 0 {
			return fmt.Errorf("the API, and istiod:\n%s", strings.Join(d, "\n"))
		}
		return nil
	})
}

// byXDS returns a source that reads an istiod.
func byXDS(t *testing.T, i *harness.Istiod) *mesh.Source {
	t.Helper()
	node, err := ads.Identity{Type: "router", IP: "127.0.0.1", Name: "bridge", Namespace: "istio-system"}.Node()
	if err != nil {
		t.Fatal(err)
	}
	s, err := mesh.New(mesh.Options{ADS: ads.Options{Address: i.GRPC, Node: node}, Naming: everything(t), Allow: loopback()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
