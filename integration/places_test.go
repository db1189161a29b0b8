package integration_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// TestBridges_OwnPlaces runs bridges that read two environments of one registry, by roots of
// ZooKeeper and by groups of Nacos: into each target goes what its bridge names.
func TestBridges_OwnPlaces(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const prod, gray = "10.0.20.1", "10.0.20.2"
	zookeeper, nacos := harness.StartZooKeeper(t), harness.StartNacos(t, harness.NacosOptions{Version: 2})
	znodes, sdk := harness.Connect(t, zookeeper.Address), nacossdk.Connect(t, nacos.URL)
	for root, host := range map[string]string{"prod": prod, "gray": gray} {
		provider := "dubbo://" + host + ":20880/com.example.Env?application=e&interface=com.example.Env"
		znodes.Create(t, "/from/"+root+"/com.example.Env/providers/"+url.QueryEscape(provider), "")
		sdk.RegisterIn(t, strings.ToUpper(root), "providers:com.example.Env::", model.Instance{
			Ip: host, Port: 20880, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
			Metadata: map[string]string{"protocol": "dubbo", "path": "com.example.Env", "interface": "com.example.Env", "side": "provider", "category": "providers"},
		})
	}
	for _, chroot := range []string{"/to", "/one"} {
		znodes.Create(t, chroot, "")
	}
	directories := map[string]string{"prod": t.TempDir(), "gray": t.TempDir()}
	listeners := map[string]string{"prod": harness.Address(t), "gray": harness.Address(t)}
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  zk: { zookeeper: { servers: ["%[1]s/from"] } }
  zk2: { zookeeper: { servers: ["%[1]s/to"] } }
  zk3: { zookeeper: { servers: ["%[1]s/one"] } }
  nacos: { nacos: { servers: [%[2]q] } }
  copy: { nacos: { servers: [%[2]q], namespace: copy } }
  meshA: { kubernetes: { import: { directory: %[3]q } } }
  meshB: { kubernetes: { import: { directory: %[4]q } } }
  direct: { istiod: { import: { dataPlanes: true } } }
bridges:
  - { name: prod, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /prod }] }
  - { name: gray, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /gray }] }
  - { name: one, from: zk, to: zk3, formats: [{ format: dubbo-interface, root: /prod }, { format: dubbo-interface, root: /gray }] }
  - { name: n-prod, from: nacos, to: zk2, formats: [{ format: dubbo-interface, root: /n-prod, group: PROD }] }
  - { name: n-gray, from: nacos, to: zk2, formats: [{ format: dubbo-interface, root: /n-gray, group: GRAY }] }
  - { name: n-one, from: nacos, to: copy, formats: [{ format: dubbo-interface, group: PROD }, { format: dubbo-interface, group: GRAY }] }
  - { name: mesh-prod, from: zk, to: meshA, formats: [{ format: dubbo-interface, root: /prod }] }
  - { name: mesh-gray, from: zk, to: meshB, formats: [{ format: dubbo-interface, root: /gray }] }
  - { name: direct-prod, from: zk, to: direct, listen: %[5]q, formats: [{ format: dubbo-interface, root: /prod }] }
  - { name: direct-gray, from: zk, to: direct, listen: %[6]q, formats: [{ format: dubbo-interface, root: /gray }] }
`, zookeeper.Address, nacos.URL, directories["prod"], directories["gray"], listeners["prod"], listeners["gray"]))
	bridge.Start(t)
	bridge.AwaitReady(t)
	copied := nacossdk.ConnectTo(t, &harness.Nacos{URL: nacos.URL, Namespace: "copy"})
	for environment, host := range map[string]string{"prod": prod, "gray": gray} {
		at := []string{host + ":20880"}
		want := map[string][]string{"/to/": at, "/to/n-": at, "/one/": at, "files": {host}, "data planes": at}
		look := func() (map[string][]string, error) {
			got := map[string][]string{"files": filesNaming(t, directories[environment], prod, gray)}
			for _, root := range []string{"/to/", "/to/n-", "/one/"} {
				got[root] = harness.EntryAddresses(znodes.Children(t, root+environment+"/com.example.Env/providers"))
			}
			clusters, err := harness.ServedClusters(t, listeners[environment], ".zk.bridge.internal")
			for _, c := range clusters {
				got["data planes"] = append(got["data planes"], slices.Sorted(maps.Keys(c.Endpoints))...)
			}
			return got, err
		}
		same := func() error {
			got, err := look()
			return cmp.Or(err, harness.Same(got, want))
		}
		harness.Eventually(t, 30*time.Second, "the endpoint of "+environment+" alone", same)
		harness.Stays(t, 3*time.Second, "the endpoint of "+environment+" alone", same)
		copied.SubscribeIn(t, strings.ToUpper(environment), "providers:com.example.Env::").Await(t, 10*time.Second, host+":20880")
	}
}

// filesNaming returns which addresses the files of a directory name, each once.
func filesNaming(t *testing.T, dir string, addresses ...string) (named []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), address) && !slices.Contains(named, address) {
				named = append(named, address)
			}
		}
	}
	return named
}
