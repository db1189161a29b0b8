package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
)

// TestADirectoryOfServiceEntries has istiod read what providers register in
// ZooKeeper from a directory that a bridge writes, beside files of others.
func TestADirectoryOfServiceEntries(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	zookeeper, mesh := harness.StartZooKeeper(t), harness.NewMesh(t)
	znodes := harness.Connect(t, zookeeper.Address)
	path := func(port int) string { return fmt.Sprintf("/microservices/greeter/%d", port) }
	register := func(port int) {
		znodes.Create(t, path(port), fmt.Sprintf(`{"id":"%d","name":"greeter","version":"v1","endpoints":["grpc://10.0.0.1:%[1]d"]}`, port))
	}
	register(9001)
	mesh.Apply(t, harness.Service{Host: "other.shop.svc.cluster.local", Port: 80, Endpoints: harness.Local(1)})
	istiod := harness.StartIstiod(t, mesh)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { kubernetes: { import: { directory: %q } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges: [{ name: zk-to-mesh, from: zk, to: mesh, formats: [kratos], guard: { %s } }]
`, mesh.Dir(), zookeeper.Address, harness.Swift))
	bridge.Start(t)
	bridge.AwaitReady(t)
	host := naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}.Of(naming.MeshName{Name: "greeter", Protocol: "grpc"})
	endpoints := harness.WatchEndpoints(t, istiod.GRPC, "outbound|50051||"+host)
	endpoints.AwaitPush(t, 30*time.Second, "10.0.0.1:9001")
	register(9002)
	endpoints.AwaitPush(t, 30*time.Second, "10.0.0.1:9001", "10.0.0.1:9002")
	znodes.Delete(t, path(9001))
	endpoints.AwaitPush(t, 30*time.Second, "10.0.0.1:9002")

	file := filepath.Join(mesh.Dir(), host+".yaml")
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	bridge.Kill()
	<-bridge.Exited()
	bridge.Start(t)
	bridge.AwaitReady(t)
	if after, err := os.Stat(file); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a restart wrote the file again, or took it away: %v", err)
	}
	if code, out, _ := bridge.Do(t, "preflight"); code != 0 {
		t.Errorf("preflight ends with %d:\n%s", code, out)
	}
	znodes.Delete(t, path(9002))
	endpoints.AwaitPush(t, 30*time.Second)
	if _, err := os.Stat(filepath.Join(mesh.Dir(), "other.shop.svc.cluster.local.yaml")); err != nil {
		t.Errorf("a file of another: %v", err)
	}
}
