package integration_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// TestRemoval_Order has endpoints go and come in turn, and expects that the removals keep
// up with the additions in each target that records losses. Only their order counts: no
// machine is too slow for it.
func TestRemoval_Order(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		to := harness.StartZooKeeper(t)
		target := harness.Connect(t, to.Address)
		removesInOrder(t, fmt.Sprintf("zookeeper: { servers: [%q], sessionTimeout: 6s }", to.Address), func(t *testing.T, iface string) func() []string {
			t.Helper()
			return func() (all []string) {
				for _, name := range target.Children(t, "/dubbo/"+iface+"/providers") {
					if text, err := url.QueryUnescape(name); err == nil {
						if u, err := url.Parse(text); err == nil {
							all = append(all, u.Host)
						}
					}
				}
				return all
			}
		})
	})
	eachNacos(t, func(t *testing.T, version int) {
		server := harness.StartNacos(t, harness.NacosOptions{Version: version, PushDelay: swift})
		consumer := nacossdk.ConnectTo(t, server)
		removesInOrder(t, fmt.Sprintf("nacos: { %s }", server.Settings()), func(t *testing.T, iface string) func() []string {
			t.Helper()
			return consumer.Subscribe(t, "providers:"+iface+"::").Last
		})
	})
}

// removesInOrder removes an endpoint of one service after the other, and adds one to
// another each time. The next two wait until the addition is seen, so that additions
// measure how fast everything is here; no removal may be further behind than lag of them.
func removesInOrder(t *testing.T, target string, watch func(t *testing.T, iface string) func() []string) {
	t.Helper()
	const (
		services, each = 40, 3
		lag            = 15 // a removal waits for two records, and is a write as an addition is
	)
	from := harness.StartZooKeeper(t)
	source := harness.Connect(t, from.Address)
	iface := func(i int) string { return fmt.Sprintf("order.Api%02d", i%services) }
	address := func(i, n int) string { return fmt.Sprintf("10.1.%d.%d:20880", i%services, n+1) }
	path := func(i, n int) string {
		return "/dubbo/" + iface(i) + "/providers/" + url.QueryEscape(fmt.Sprintf("tri://%s/%s?application=shop&category=providers&interface=%[2]s&side=provider", address(i, n), iface(i)))
	}
	seen := make([]func() []string, services)
	for i := range services {
		for n := range each {
			source.Create(t, path(i, n), "")
		}
		seen[i] = watch(t, iface(i))
	}
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: order
registries:
  from: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
  to: { %s }
bridges:
  - { name: copy, from: from, to: to, formats: [dubbo-interface] }
`, from.Address, target))
	bridge.Start(t)
	bridge.AwaitReady(t)
	for i := range services {
		harness.Eventually(t, soon, "the endpoints of "+iface(i), func() error { return harness.Same(len(seen[i]()), each) })
	}
	for k := range services {
		to := (k + services/2) % services
		source.Delete(t, path(k, 0))
		source.Create(t, path(to, each), "")
		harness.Eventually(t, soon, "the new endpoint of "+iface(to), func() error {
			if all := seen[to](); !slices.Contains(all, address(to, each)) {
				return fmt.Errorf("it has %q", all)
			}
			return nil
		})
		if i := k - lag; i >= 0 && slices.Contains(seen[i](), address(i, 0)) {
			t.Fatalf("%s is still there after %d later additions", address(i, 0), lag)
		}
	}
	for i := range services {
		harness.Eventually(t, soon, "the removed endpoint of "+iface(i), func() error {
			if slices.Contains(seen[i](), address(i, 0)) {
				return fmt.Errorf("%s is still there", address(i, 0))
			}
			return nil
		})
	}
}
