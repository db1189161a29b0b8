package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// TestNacos_Protected has a server protect a service, so that it shows unhealthy instances as
// healthy: in ZooKeeper and in a mesh none of them is added and none is deleted, and status
// says why. Healthy ones are still offered.
func TestNacos_Protected(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	eachNacos(t, func(t *testing.T, version int) {
		server, zookeeper := harness.SharedNacos(t, version), harness.StartZooKeeper(t)
		sdk, znodes, mesh := nacossdk.ConnectTo(t, server), harness.Connect(t, zookeeper.Address), t.TempDir()
		register := func(healthy, unhealthy []string) {
			var all []model.Instance
			for _, ip := range healthy {
				all = append(all, nacosProvider("api.P", ip))
			}
			for _, ip := range unhealthy {
				all = append(all, nacosProvider("api.P", ip, func(i *model.Instance) { i.Healthy = false }))
			}
			sdk.Register(t, nacosServiceOf("api.P"), all...)
		}
		const first, second, third, fourth = "10.0.0.21", "10.0.0.22", "10.0.0.23", "10.0.0.24"
		register([]string{first, second}, nil)
		bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  nacos: { nacos: { %s } }
  zk: { zookeeper: { servers: [%q] } }
  mesh: { kubernetes: { import: { directory: %q } } }
bridges:
  - { name: onward, from: nacos, to: zk, formats: [dubbo-interface], guard: { %[4]s } }
  - { name: in, from: nacos, to: mesh, formats: [dubbo-interface], guard: { %[4]s } }`,
			server.Settings(), zookeeper.Address, mesh, harness.Swift))
		bridge.Start(t)
		bridge.AwaitReady(t)
		offered := func(hosts ...string) func() error {
			return func() error {
				var at []string
				for _, host := range hosts {
					at = append(at, host+":20000")
				}
				got := [][]string{harness.EntryAddresses(znodes.Children(t, "/dubbo/api.P/providers")), filesNaming(t, mesh, first, second, third, fourth)}
				return harness.Same(got, [][]string{at, hosts})
			}
		}
		harness.Eventually(t, soon, "the healthy instances are offered", offered(first, second))

		server.Protect(t, nacosServiceOf("api.P"), 0.8)
		register([]string{first}, []string{second})
		harness.Eventually(t, soon, "status says that the service is protected", statusNames(t, bridge, "protects this service"))
		register([]string{first}, []string{second, third})
		harness.Stays(t, 3*time.Second, "no unhealthy instance is added or deleted", offered(first, second))
		register([]string{first, fourth}, []string{second, third})
		harness.Eventually(t, soon, "a healthy instance is offered, and the others stay as they are", offered(first, second, fourth))
		register(nil, []string{first, second, third, fourth})
		harness.Stays(t, 3*time.Second, "what was offered stays", offered(first, second, fourth))

		harness.Eventually(t, soon, "status says that the service is protected", statusNames(t, bridge, "protects this service"))

		register([]string{first, fourth}, nil)
		harness.Eventually(t, soon, "the service is followed again", offered(first, fourth))
		isInSync(t, bridge)
	})
}

// statusNames returns a check that status fails and says something.
func statusNames(t *testing.T, b *harness.Bridge, words string) func() error {
	t.Helper()
	return func() error {
		if code, out, errOut := b.Do(t, "status"); code == 0 || !strings.Contains(out, words) {
			return fmt.Errorf("status %d: %s%s", code, out, errOut)
		}
		return nil
	}
}
