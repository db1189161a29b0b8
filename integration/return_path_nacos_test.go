package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// nacosHolder is our target in the namespace that a test has of a server.
type nacosHolder struct {
	*nacos.Target

	namespace string
}

func newHolder(t *testing.T, server *harness.Nacos) nacosHolder {
	t.Helper()
	target, _ := nacosTarget(t, at(server))
	return nacosHolder{target, server.Namespace}
}

func (h nacosHolder) group(iface string) registry.Group {
	g := nacosGroup(iface)
	g.Namespace = h.namespace
	return g
}

func (h nacosHolder) keys(t *testing.T, iface string) []string {
	t.Helper()
	return nacosKeys(t, h.Target, h.group(iface))
}

// offers makes a provider's instances of an interface what Nacos has of it.
func offers(t *testing.T, target nacosHolder, iface string, ports ...int) {
	t.Helper()
	g := target.group(iface)
	var entries []registry.Entry
	for _, port := range ports {
		in := metadata.NacosInstance{
			IP: "127.0.0.1", Port: uint16(port), Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
			Metadata: map[string]string{"protocol": "tri", "path": iface, "interface": iface, "category": "providers", "side": "provider"},
		}
		entries = append(entries, registry.Entry{Group: g, Key: in.Key(), Value: in.String()})
	}
	harness.Eventually(t, soon, iface+" is registered", func() error { return target.Write(t.Context(), nacosChange(g, entries...)) })
}

// turns has one of two instances turn into what may not be called, and back.
func turns(t *testing.T, server *harness.Nacos, istiod *harness.Istiod) {
	t.Helper()
	const iface, stays, goes = "api.Turns", "127.0.0.1:20041", "127.0.0.1:20042"
	sdk := nacossdk.ConnectTo(t, server)
	register := func(change func(*model.Instance)) {
		t.Helper()
		first, second := nacosProvider(iface, "127.0.0.1"), nacosProvider(iface, "127.0.0.1")
		first.Port, second.Port = 20041, 20042
		change(&second)
		sdk.Register(t, nacosServiceOf(iface), first, second)
	}
	register(func(*model.Instance) {})
	watch := harness.WatchEndpoints(t, istiod.GRPC, importedCluster("nacos", iface))
	for _, turn := range []func(*model.Instance){
		func(in *model.Instance) { in.Healthy = false },
		func(in *model.Instance) { in.Enable = false },
		func(in *model.Instance) { in.Weight = 0 },
	} {
		watch.AwaitPush(t, soon, stays, goes)
		register(turn)
		watch.AwaitPush(t, soon, stays)
		register(func(*model.Instance) {})
	}
	watch.AwaitPush(t, soon, stays, goes)
	whole := false
	for _, list := range watch.Lists() {
		whole = whole || len(list.Addresses) == 2
		if whole && !slices.Contains(list.Addresses, stays) {
			t.Errorf("the other one was gone too: %v", list.Addresses)
		}
	}
}

func TestReturnPath_Nacos(t *testing.T) {
	t.Parallel()
	eachNacos(t, func(t *testing.T, version int) {
		server := harness.SharedNacos(t, version)
		reach := harness.StartNacosProxy(t, server)
		zookeeper := harness.StartZooKeeper(t)
		znodes := harness.Connect(t, zookeeper.Address)
		provider := newHolder(t, server)
		offers(t, provider, "api.Greeter", 20001, 20002)
		znodes.Create(t, registered("api.Old", 20031), "")

		listen := harness.Address(t)
		mesh := harness.NewMesh(t)
		mesh.From(listen)
		bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: "127.0.0.1:1" } }
  nacos: { nacos: { servers: [%q], namespace: %q, listInterval: 500ms } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: nacos-to-mesh, from: nacos, to: mesh, listen: %q, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %[5]s } }
  - { name: nacos-to-zk, from: nacos, to: zk, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %[5]s } }
  - { name: zk-to-nacos, from: zk, to: nacos, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %[5]s } }`,
			reach.URL, server.Namespace, zookeeper.Address, listen, harness.Swift))
		bridge.Start(t)
		harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, listen) })
		istiod := harness.StartIstiod(t, mesh)
		watch := harness.WatchEndpoints(t, istiod.GRPC, importedCluster("nacos", "api.Greeter"))
		inZooKeeper := func(ports ...int) {
			t.Helper()
			harness.Eventually(t, soon, "the service of Nacos in ZooKeeper", func() error {
				return harness.Same(entryAddresses(znodes.Children(t, "/dubbo/api.Greeter/providers")), addresses(ports))
			})
		}
		t.Run("a provider that only registers in Nacos is served by istiod and kept in ZooKeeper", func(t *testing.T) {
			watch.AwaitPush(t, soon, "127.0.0.1:20001", "127.0.0.1:20002")
			inZooKeeper(20001, 20002)
		})
		t.Run("what goes and comes is gone and there", func(t *testing.T) {
			offers(t, provider, "api.Greeter", 20002, 20003)
			watch.AwaitPush(t, soon, "127.0.0.1:20002", "127.0.0.1:20003")
			inZooKeeper(20002, 20003)
		})
		t.Run("what turns unhealthy or disabled is gone from EDS, alone", func(t *testing.T) { turns(t, server, istiod) })
		t.Run("a provider of ZooKeeper is kept in Nacos", func(t *testing.T) {
			harness.Eventually(t, soon, "the service of ZooKeeper in Nacos", func() error {
				return harness.Same(provider.keys(t, "api.Old"), []string{"127.0.0.1:20031"})
			})
		})
		t.Run("nothing goes round", func(t *testing.T) {
			harness.Unchanged(t, "both registries", func() string {
				return fmt.Sprint(znodes.Children(t, "/dubbo/api.Greeter/providers"), znodes.Children(t, "/dubbo/api.Old/providers"),
					provider.keys(t, "api.Old"), provider.keys(t, "api.Greeter"))
			})
			if names := znodes.Children(t, "/dubbo/api.Old/providers"); len(names) != 1 || strings.Contains(names[0], metadata.MarkKey) {
				t.Errorf("what came from ZooKeeper went back: %v", names)
			}
		})
		t.Run("a Nacos that is away removes nothing", func(t *testing.T) {
			reach.Both((*harness.Proxy).Cut)
			harness.Unchanged(t, "no push of other endpoints", func() int { return watch.Pushes() })
			inZooKeeper(20002, 20003)
		})
	})
}
