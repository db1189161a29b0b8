package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestApplication_SharedInterface: whoever provides an interface, under
// any application and by interface or by application, is called under its one
// host in the mesh, and none that goes removes another.
func TestApplication_SharedInterface(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	zookeeper := harness.StartZooKeeper(t)
	listen := harness.Address(t)
	mesh := harness.NewMesh(t)
	mesh.From(listen)
	text := returnPath(zookeeper.Address, listen, "127.0.0.1:1", "127.0.0.1:1")
	bridge := harness.ConfiguredBridge(t, strings.Replace(text, "[dubbo-interface]", "[dubbo-application, dubbo-interface]", 1))
	bridge.Start(t)
	harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, listen) })
	istiod := harness.StartIstiod(t, mesh)
	java, ip := harness.StartDubbo(t), harness.OwnIP(t)
	provide := func(t *testing.T, app, register string) (port int) {
		t.Helper()
		return java.Provide(t, "tri", "host="+ip, "app="+app, "metadata=remote", "register="+register, "registry=zookeeper://"+zookeeper.Address)
	}
	first := provide(t, "app-a", "instance")
	watch := harness.WatchEndpoints(t, istiod.GRPC, importedCluster("zk", harness.DubboInterface))
	served := func(t *testing.T, ports ...int) {
		t.Helper()
		var all []string
		for _, p := range ports {
			all = append(all, fmt.Sprintf("%s:%d", ip, p))
		}
		slices.Sort(all)
		watch.AwaitPush(t, soon, all...)
	}
	served(t, first)
	second := provide(t, "app-b", "instance")
	t.Run("both are served", func(t *testing.T) { served(t, first, second) })
	third := provide(t, "app-c", "interface")
	t.Run("so is one that registers by interface alone", func(t *testing.T) { served(t, first, second, third) })
	t.Run("nothing is in conflict", func(t *testing.T) {
		harness.Eventually(t, soon, "all is in sync", func() error {
			_, out, errOut := bridge.Do(t, "status")
			if strings.Contains(out+errOut, "conflict") || !strings.Contains(out, "in sync") {
				return fmt.Errorf("status says:\n%s%s", out, errOut)
			}
			return nil
		})
	})
	fourth := provide(t, "app-d", "all")
	t.Run("and one that registers at both levels, once", func(t *testing.T) { served(t, first, second, third, fourth) })
	t.Run("the first that goes removes no other", func(t *testing.T) {
		java.StopProvider(t, first)
		served(t, second, third, fourth)
	})
	t.Run("nor does any other", func(t *testing.T) {
		java.StopProvider(t, third)
		served(t, second, fourth)
		java.StopProvider(t, fourth)
		served(t, second)
	})
}
