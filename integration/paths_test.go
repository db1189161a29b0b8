package integration_test

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestMesh_Paths carries the same 50 services by all paths at once and compares
// what data planes are served, field by field: through an istiod that reads the
// bridge, one that reads a directory and one that reads a cluster, and by the bridge
// itself.
func TestMesh_Paths(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	zookeeper, files := harness.StartZooKeeper(t), harness.NewMesh(t)
	znodes := harness.Connect(t, zookeeper.Address)
	const services = 50
	for i := range services {
		registerVaried(t, znodes, i)
	}
	kubernetes := harness.StartKubernetes(t)
	kubernetes.InstallIstio(t)
	for _, namespace := range []string{"istio-system", "xds-bridge"} {
		kubernetes.Namespace(t, namespace)
	}
	served, direct := harness.Address(t), harness.Address(t)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  istiod: { istiod: { address: "127.0.0.1:1", import: { keys: "off" } } }
  directory: { kubernetes: { import: { directory: %q } } }
  cluster: { kubernetes: { kubeconfig: %q } }
  direct: { istiod: { import: { dataPlanes: true } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: one, from: zk, to: istiod, listen: %q, formats: [kratos, dubbo-interface] }
  - { name: two, from: zk, to: directory, formats: [kratos, dubbo-interface] }
  - { name: three, from: zk, to: cluster, formats: [kratos, dubbo-interface] }
  - { name: four, from: zk, to: direct, listen: %q, formats: [kratos, dubbo-interface] }
`, files.Dir(), kubernetes.Kubeconfig(t, harness.Administrator), zookeeper.Address, served, direct))
	bridge.Start(t)
	bridge.AwaitReady(t)
	mesh, cluster := harness.NewMesh(t), harness.NewMesh(t)
	mesh.From(served)
	cluster.In(t, kubernetes)
	paths := map[string]string{
		"istiod": harness.StartIstiod(t, mesh).GRPC, "directory": harness.StartIstiod(t, files).GRPC,
		"cluster": harness.StartIstiod(t, cluster).GRPC, "direct": direct,
	}
	all := make(map[string]map[string]harness.ServedCluster, len(paths))
	for path, address := range paths {
		harness.Eventually(t, 30*time.Second, "50 services by "+path, func() error {
			var err error
			if all[path], err = harness.ServedClusters(t, address, ".zk.bridge.internal"); err != nil {
				return err
			}
			return harness.Same(len(all[path]), services)
		})
	}
	want := all["istiod"]
	for path, got := range all {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !reflect.DeepEqual(got[name], want[name]) {
				t.Errorf("%s by %s is\n%+v\nand by istiod\n%+v", name, path, got[name], want[name])
			}
		}
	}
	if n := endpointsOf(want); n != 123 { // 1 to 4 of each
		t.Errorf("%d endpoints, want 123", n)
	}
}

// registerVaried registers the i-th of services that differ in whatever a registry
// reports of one: protocol, endpoints, weights, zones, versions.
func registerVaried(t *testing.T, znodes *harness.Znodes, i int) {
	t.Helper()
	for j := range i%4 + 1 {
		ip, version := fmt.Sprintf("10.%d.0.%d", i, j+1), fmt.Sprintf("v%d", j%2)
		switch i % 3 {
		case 0:
			znodes.Create(t, fmt.Sprintf("/microservices/service-%d/%d", i, j), fmt.Sprintf(
				`{"id":"%d","name":"service-%d","version":%q,"metadata":{"version":%[3]q,"weight":"%d"},"endpoints":["grpc://%s:9000"]}`, j, i, version, 100+i*j, ip))
		case 1:
			znodes.Create(t, fmt.Sprintf("/microservices/service-%d/%d", i, j), fmt.Sprintf(
				`{"id":"%d","name":"service-%d","version":%q,"metadata":{},"endpoints":["http://%s:8000"]}`, j, i, version, ip))
		default:
			provider := fmt.Sprintf("tri://%s:20000/api.Service%d?interface=api.Service%[2]d&weight=%d&side=provider", ip, i, 100*(j+1))
			znodes.Create(t, fmt.Sprintf("/dubbo/api.Service%d/providers/%s", i, url.QueryEscape(provider)), "")
		}
	}
}

func endpointsOf(all map[string]harness.ServedCluster) (n int) {
	for _, c := range all {
		n += len(c.Endpoints)
	}
	return n
}
