package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestPreflight_MissingNamespace asks a real Nacos, which accepts
// what is written to any.
func TestPreflight_MissingNamespace(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server, zk := harness.SharedNacos(t, 3), harness.StartZooKeeper(t)
	shop := server.NewNamespace(t)
	for namespace, want := range map[string]struct {
		code int
		out  string
	}{
		shop:              {0, "√ write"},
		"elsewhere":       {1, "the namespace does not exist"},
		"name-of-" + shop: {1, fmt.Sprintf("is the name of the namespace with the id %q", shop)},
	} {
		bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  zk: { zookeeper: { servers: [%q] } }
  nacos: { nacos: { servers: [%q], namespace: %q } }
bridges:
  - { name: onward, from: zk, to: nacos, formats: [dubbo-interface] }`, zk.Address, server.URL, namespace))
		for range 2 { // the first one published and took back
			if code, out, errs := bridge.Do(t, "preflight"); code != want.code || !strings.Contains(out, want.out) {
				t.Errorf("namespace %q: preflight ends with %d:\n%s%s", namespace, code, out, errs)
			}
		}
	}
}
