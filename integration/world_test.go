package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

const (
	greetHost    = "greet.shop.svc.cluster.local"
	greetAddress = greetHost + ":20000"
	greetCluster = "outbound|20000||" + greetHost
	greetKey     = "providers:" + harness.DubboInterface + "::"
	providers    = "/dubbo/" + harness.DubboInterface + "/providers"

	// soon is what may pass on a busy machine until something is seen that
	// lasts milliseconds on an idle one.
	soon = time.Minute
)

// world is a mesh, the istiod that serves it, and a ZooKeeper. What the bridge
// sends to either passes a proxy.
type world struct {
	mesh   *harness.Mesh
	istiod *harness.Istiod
	znodes *harness.Znodes

	zookeeper  *harness.ZooKeeper
	toIstiod   *harness.Proxy
	toDebugAPI *harness.Proxy
	writes     *harness.ZooKeeperProxy
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{mesh: harness.NewMesh(t), zookeeper: harness.StartZooKeeper(t)}
	w.istiod = harness.StartIstiod(t, w.mesh)
	w.znodes = harness.Connect(t, w.zookeeper.Address)
	w.toIstiod = harness.StartProxy(t, w.istiod.GRPC)
	w.toDebugAPI = harness.StartProxy(t, w.istiod.HTTP)
	w.writes = harness.StartZooKeeperProxy(t, w.zookeeper.Address)
	return w
}

// config is the configuration of a bridge between both, with a swift guard.
func (w *world) config() harness.BridgeConfig {
	return harness.BridgeConfig{
		Istiod:    w.toIstiod.Address,
		Mapping:   w.overHTTP("connectionGrace: 1s"),
		ZooKeeper: []string{w.writes.Address},
		Guard:     harness.Swift,
	}
}

// overHTTP is a mapping that is read from the debug API over HTTP.
func (w *world) overHTTP(settings string) string {
	return fmt.Sprintf("from: debug-http, addresses: [%q], interval: 200ms, grace: 1s, %s", w.toDebugAPI.Address, settings)
}

// greet puts the service of all tests into the mesh, with endpoints at ports
// of 127.0.0.1, or replaces it.
func (w *world) greet(t *testing.T, ports ...int) {
	t.Helper()
	w.mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(ports...)})
}

// publish has an application publish that the host serves the key of all tests.
func (w *world) publish(t *testing.T) *harness.Provider {
	t.Helper()
	return harness.Publish(t, w.istiod.GRPC, "greet-1", map[string]string{greetKey: greetAddress})
}

// awaitEntries waits until the interface's parent znode names exactly these addresses
// of 127.0.0.1, each once.
func (w *world) awaitEntries(t *testing.T, parent string, ports ...int) {
	t.Helper()
	want := addresses(ports)
	harness.Eventually(t, soon, "entries of "+parent, func() error {
		return harness.Same(entryAddresses(w.znodes.Children(t, parent)), want)
	})
}

// tree is everything in Dubbo's root, with the transactions that touched it.
func (w *world) tree(t *testing.T) map[string]harness.Znode {
	t.Helper()
	return w.znodes.Tree(t, "/dubbo")
}

// untouched does something and fails the test where a znode was touched by it,
// or a write was sent, within some seconds.
func (w *world) untouched(t *testing.T, do func()) {
	t.Helper()
	before := w.tree(t)
	w.writes.Forget()
	do()
	harness.Unchanged(t, "no znode is touched", func() map[string]harness.Znode { return w.tree(t) })
	if err := harness.Same(w.tree(t), before); err != nil {
		t.Error(err)
	}
	if writes := w.writes.Writes("/dubbo"); len(writes) > 0 {
		t.Errorf("writes were sent: %v", writes)
	}
}

func addresses(ports []int) []string {
	var names []string
	for _, p := range ports {
		names = append(names, fmt.Sprintf("127.0.0.1:%d", p))
	}
	slices.Sort(names)
	return names
}

// entryAddresses returns the address of each entry, in order.
func entryAddresses(names []string) []string { return harness.EntryAddresses(names) }

// lacks says whether no entry names the port.
func lacks(port int) func([]string) bool {
	return func(names []string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, fmt.Sprintf("%%3A%d%%2F", port)) })
	}
}
