package integration_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// TestRegisteredOtherwise has a process register itself in each target under one version and
// one interface, while the source has others for its address: plan, status and why show that.
func TestRegisteredOtherwise(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	from := harness.StartZooKeeper(t)
	source := harness.Connect(t, from.Address)
	provider := func(host, iface, version string) string {
		return "/dubbo/" + iface + "/providers/" + url.QueryEscape("dubbo://"+host+":20880/"+iface+"?application=e&interface="+iface+"&side=provider&version="+version)
	}
	source.Create(t, provider("10.0.0.5", "shop.Orders", "1.0.0"), "")
	source.Create(t, provider("10.0.0.6", "shop.Carts", "1.0.0"), "")
	shows := func(t *testing.T, target, version, iface string) {
		t.Helper()
		bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  from: { zookeeper: { servers: [%q] } }
  to: { %s }
bridges:
  - { name: copy, from: from, to: to, formats: [dubbo-interface] }
`, from.Address, target))
		harness.Eventually(t, 30*time.Second, "plan shows both", func() error {
			_, out, failed := bridge.Do(t, "plan")
			return contains(out+failed, version, iface, "2 to create")
		})
		bridge.Start(t)
		bridge.AwaitReady(t)
		for command, service := range map[string]string{"status": "", "why": "shop.Orders"} {
			harness.Eventually(t, 10*time.Second, command+" shows it", func() error {
				_, out, failed := bridge.Do(t, command, strings.Fields(service)...)
				return contains(out+failed, version)
			})
		}
	}
	const at = "10.0.0.5:20880 registers itself as dubbo-interface:"
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		to := harness.StartZooKeeper(t)
		znodes := harness.Connect(t, to.Address)
		znodes.Create(t, provider("10.0.0.5", "shop.Orders", "2.0.0"), "")
		znodes.Create(t, provider("10.0.0.6", "shop.Cart", "1.0.0"), "")
		shows(t, fmt.Sprintf("zookeeper: { servers: [%q] }", to.Address),
			at+"/dubbo/shop.Orders dubbo://10.0.0.5:20880?version=2.0.0, not as", "10.0.0.6:20880 registers itself as dubbo-interface:/dubbo/shop.Cart ")
	})
	eachNacos(t, func(t *testing.T, version int) {
		server := harness.StartNacos(t, harness.NacosOptions{Version: version, PushDelay: swift})
		sdk := nacossdk.ConnectTo(t, server)
		for service, host := range map[string]string{"shop.Orders:2.0.0:": "10.0.0.5", "shop.Cart:1.0.0:": "10.0.0.6"} {
			iface, _, _ := strings.Cut(service, ":")
			sdk.RegisterIn(t, "DEFAULT_GROUP", "providers:"+service, model.Instance{
				Ip: host, Port: 20880, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
				Metadata: map[string]string{"protocol": "dubbo", "path": iface, "interface": iface, "side": "provider", "category": "providers"},
			})
		}
		shows(t, fmt.Sprintf("nacos: { %s }", server.Settings()),
			at, "/providers:shop.Cart:1.0.0: 10.0.0.6:20880, not as")
	})
}

// contains returns an error if a text lacks one of its parts.
func contains(text string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("no %q in %s", part, text)
		}
	}
	return nil
}
