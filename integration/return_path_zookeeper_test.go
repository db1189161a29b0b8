package integration_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
)

// registered is how a Java provider of an interface is in ZooKeeper.
func registered(iface string, port int) string {
	return fmt.Sprintf("/dubbo/%s/providers/%s", iface,
		url.QueryEscape(fmt.Sprintf("tri://127.0.0.1:%d/%s?application=app&interface=%s&side=provider", port, iface, iface)))
}

// importedCluster is the cluster in which istiod serves an interface of a
// registry.
func importedCluster(registry, iface string) string {
	host := naming.MeshHosts{Registry: registry, Suffix: "bridge.internal"}.Of(naming.MeshName{
		Key: naming.ServiceKey{Category: naming.Providers, Interface: iface}, Protocol: "tri",
	})
	return "outbound|50051||" + host
}

// returnPath is a configuration that serves a ZooKeeper to istiod, and exports
// the mesh into it where it knows the address of the mesh.
func returnPath(zookeeper, listen, istiod, debug string) string {
	text := fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 200ms, connectionGrace: 1s } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }
`, istiod, debug, zookeeper, listen, harness.Swift)
	return text
}

const meshToZooKeeper = `  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }
`

func TestReturnPath_ZooKeeper(t *testing.T) {
	t.Parallel()
	zookeeper := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, zookeeper.Address)
	znodes.Create(t, registered("api.Greeter", 20001), "")
	znodes.Create(t, registered("api.Greeter", 20002), "")
	listen := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	mesh := harness.NewMesh(t)
	mesh.From(listen)
	bridge := harness.ConfiguredBridge(t, returnPath(zookeeper.Address, listen, "127.0.0.1:1", "127.0.0.1:1"))
	bridge.Start(t)
	harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, listen) })
	istiod := harness.StartIstiod(t, mesh)
	watch := harness.WatchEndpoints(t, istiod.GRPC, importedCluster("zk", "api.Greeter"))

	t.Run("a provider that only registers in ZooKeeper is served by istiod", func(t *testing.T) {
		watch.AwaitPush(t, soon, "127.0.0.1:20001", "127.0.0.1:20002")
	})
	t.Run("an endpoint that goes is gone from EDS within a second, alone", func(t *testing.T) {
		before := watch.Pushes()
		began, stopwatch := time.Now(), harness.StartStopwatch()
		znodes.Delete(t, registered("api.Greeter", 20001))
		pushed := watch.AwaitPush(t, soon, "127.0.0.1:20002")
		harness.AtMost(t, "from ZooKeeper to istiod's push", stopwatch.Between(began, pushed), time.Second)
		if n := watch.Pushes() - before; n != 1 {
			t.Errorf("istiod pushed %d times: %v", n, watch.Lists()[before:])
		}
	})
	t.Run("one node that is no provider costs nobody", func(t *testing.T) {
		znodes.Create(t, "/dubbo/api.Greeter/providers/not%20a%20url", "")
		znodes.Create(t, registered("api.Hello", 20003), "")
		harness.WatchEndpoints(t, istiod.GRPC, importedCluster("zk", "api.Hello")).AwaitPush(t, soon, "127.0.0.1:20003")
		watch.AwaitPush(t, soon, "127.0.0.1:20002")
	})
	t.Run("a restart of the bridge is not noticed", func(t *testing.T) {
		before := watch.Pushes()
		bridge.Kill()
		bridge.Start(t)
		bridge.AwaitServed(t)
		harness.Stays(t, 3*time.Second, "no push of other endpoints since it was killed", func() error {
			return harness.Same(watch.Lists()[before:], []harness.Seen{})
		})
		watch.AwaitPush(t, soon, "127.0.0.1:20002")
	})
	t.Run("a ZooKeeper that is away removes nothing", func(t *testing.T) {
		zookeeper.Kill()
		harness.Unchanged(t, "no push of other endpoints", func() int { return watch.Pushes() })
		zookeeper.Start(t)
		zookeeper.AwaitServing(t)
		znodes.Create(t, registered("api.Greeter", 20004), "")
		watch.AwaitPush(t, soon, "127.0.0.1:20002", "127.0.0.1:20004")
	})
}

func TestReturnPath_BothDirections(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	zookeeper := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, zookeeper.Address)
	listen := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	mesh := harness.NewMesh(t)
	mesh.From(listen)
	mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(20011, 20012)})
	// istiod depends on the bridge, and the bridge's mesh depends on istiod: the
	// bridge listens at once, and continues trying.
	address, debug := harness.Address(t), harness.Address(t)
	bridge := harness.ConfiguredBridge(t, returnPath(zookeeper.Address, listen, address, debug)+fmt.Sprintf(meshToZooKeeper, harness.Swift))
	bridge.Start(t)
	harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, listen) })
	istiod := harness.StartIstiodAt(t, mesh, address, debug)
	harness.Publish(t, istiod.GRPC, "greet-1", map[string]string{greetKey: greetAddress})
	znodes.Create(t, registered("api.Back", 20021), "")
	bridge.AwaitReady(t)

	hasGreet := func(ports ...int) func() error {
		return func() error {
			return harness.Same(entryAddresses(znodes.Children(t, providers)), addresses(ports))
		}
	}
	harness.Eventually(t, soon, "the mesh's service is in ZooKeeper", hasGreet(20011, 20012))
	back := harness.WatchEndpoints(t, istiod.GRPC, importedCluster("zk", "api.Back"))
	back.AwaitPush(t, soon, "127.0.0.1:20021")

	t.Run("the service key of what was imported is published through istiod", func(t *testing.T) {
		harness.Eventually(t, soon, "the key in the debug API", func() error {
			keys, err := istiod.PublishedKeys(t)
			if err == nil && !strings.Contains(fmt.Sprint(keys), "providers:api.Back::") {
				err = fmt.Errorf("published: %v", keys)
			}
			return err
		})
	})
	for i := range 100 {
		port := 20100 + i
		znodes.Create(t, registered("api.Back", port), "")
		mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(20011, 20012, port)})
		znodes.Delete(t, registered("api.Back", port))
		mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(20011, 20012)})
	}
	mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(20011, 20013)}) // as it never was before
	back.AwaitPush(t, soon, "127.0.0.1:20021")
	harness.Eventually(t, soon, "the mesh's service is in ZooKeeper as it is", hasGreet(20011, 20013))
	harness.Unchanged(t, "nothing goes round", func() string {
		return fmt.Sprint(znodes.Children(t, "/dubbo/api.Back/providers"), znodes.Children(t, providers))
	})
	if names := znodes.Children(t, "/dubbo/api.Back/providers"); len(names) != 1 || strings.Contains(names[0], "xdsb") {
		t.Errorf("what came from ZooKeeper went back: %v", names)
	}
	loop := harness.WatchEndpoints(t, istiod.GRPC, importedCluster("zk", harness.DubboInterface))
	harness.Unchanged(t, "what came from the mesh is not served to it", func() int { return loop.Endpoints() })
	if n := loop.Endpoints(); n != 0 {
		t.Errorf("%d endpoints of the mesh came back into it", n)
	}
	_, why, _ := bridge.Do(t, "why", harness.DubboInterface)
	if !strings.Contains(why, "loop") {
		t.Errorf("why does not say that the loop was ended:\n%s", why)
	}
}

// TestReturnPath_TwoTargets has two registries come into one mesh by addresses
// of their own: what both give is published as one set of keys, by one node.
func TestReturnPath_TwoTargets(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	one, two := harness.StartZooKeeper(t), harness.StartZooKeeper(t)
	harness.Connect(t, one.Address).Create(t, registered("api.One", 20001), "")
	znodes := harness.Connect(t, two.Address)
	znodes.Create(t, registered("api.Two", 20002), "")
	mesh, ports := harness.NewMesh(t), []string{harness.Address(t), harness.Address(t)}
	for _, at := range ports {
		mesh.From(at)
	}
	xds, debug := harness.Address(t), harness.Address(t)
	imported := "  - { name: %s-to-mesh, from: %[1]s, to: mesh, listen: %[2]q, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %[3]s } }\n"
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf("owner: integration\nregistries:\n  mesh: { istiod: { address: %q } }\n", xds)+
		fmt.Sprintf("  one: { zookeeper: { servers: [%q] } }\n  two: { zookeeper: { servers: [%q] } }\nbridges:\n", one.Address, two.Address)+
		fmt.Sprintf(imported, "one", ports[0], harness.Swift)+fmt.Sprintf(imported, "two", ports[1], harness.Swift))
	bridge.Start(t)
	for _, at := range ports {
		harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, at) })
	}
	istiod := harness.StartIstiodAt(t, mesh, xds, debug)
	shown := func(want ...string) {
		t.Helper()
		harness.Eventually(t, soon, fmt.Sprintf("one node shows %v", want), func() error {
			all, err := istiod.PublishedKeys(t)
			if err != nil {
				return err
			}
			for _, text := range all {
				for _, key := range want {
					if !strings.Contains(text, key) {
						return fmt.Errorf("%v", all)
					}
				}
				if strings.Count(text, "providers:") != len(want) {
					return fmt.Errorf("%v", all)
				}
			}
			return harness.Same(len(all), 1)
		})
	}
	shown("providers:api.One::", "providers:api.Two::")
	znodes.Delete(t, registered("api.Two", 20002))
	znodes.Delete(t, "/dubbo/api.Two/providers")
	znodes.Delete(t, "/dubbo/api.Two")
	shown("providers:api.One::")
}
