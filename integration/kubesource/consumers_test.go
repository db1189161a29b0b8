package kubesource

import (
	"fmt"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestSource_Consumers has consumers of Java Dubbo and of dubbo-go, who
// know only ZooKeeper, call what the Kubernetes API reports.
func TestSource_Consumers(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newCluster(t)
	zk := harness.StartZooKeeper(t)
	dubbo := harness.StartDubbo(t)
	first, second := dubbo.Provide(t, "tri"), dubbo.Provide(t, "tri")
	consumer := dubbo.Refer(t, "consumer", zk.Address)
	gopher := harness.ReferDubboGo(t, zk, harness.DubboGoInterface)

	c.istio(t, "ServiceEntry", "greet", `spec:
  hosts: [greet.shop.svc.cluster.local]
  resolution: STATIC
  ports: [{ number: 20000, name: grpc-tri, protocol: GRPC }]
  workloadSelector: { labels: { app: greet } }`)
	workload := func(name string, port int) {
		t.Helper()
		c.Store(t, "/apis/networking.istio.io/v1/namespaces/shop/workloadentries", name, fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: %s, annotations: { xds-bridge/keys: "%s" } }
spec: { address: 127.0.0.1, labels: { app: greet }, ports: { grpc-tri: %d } }
`, name, harness.DubboInterface, port))
	}
	workload("one", first)
	workload("two", second)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { kubernetes: { kubeconfig: %q } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }
`, c.Kubeconfig(t, c.Token(t, "istio-system", account)), zk.Address, harness.Swift))
	if code, out, errs := bridge.Do(t, "preflight"); code != 0 {
		t.Errorf("preflight: %d\n%s%s", code, out, errs)
	}
	bridge.Start(t)
	bridge.AwaitReady(t)

	consumer.AwaitOnly(t, soon, first, second)
	c.Drop(t, "/apis/networking.istio.io/v1/namespaces/shop/workloadentries/one")
	consumer.AwaitOnly(t, soon, second)
	workload("one", first)
	consumer.AwaitOnly(t, soon, first, second)
	harness.Eventually(t, soon, "dubbo-go calls both", func() error {
		if n := gopher.Calls(); n[first] == 0 || n[second] == 0 {
			return fmt.Errorf("calls: %v", n)
		}
		return nil
	})
}
