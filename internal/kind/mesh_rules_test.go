package kind_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/kind"
)

// TestCheckFiles_Rules: each document of a rules file that is refused is named by its
// line, also one that is no YAML.
func TestCheckFiles_Rules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const text = `# rules
apiVersion: networking.istio.io/v1
kind: DestinationRule
spec:
  host: a
  subsets:
    - name: v1
    - name: v1
---
kind: VirtualService
spec: { hosts: [a
--- # one more
kind: VirtualService
spec:
  hosts: [a]
  http:
    - route:
        - destination: { host: a, subset: v9 }
        - destination:
            host: a
            port: { number: 70000 }
          weight: 1
---
kind: Service
---
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("config.yaml", []byte(`
owner: shop
registries:
  mesh: { istiod: { import: { dataPlanes: true, rulesFile: "`+path+`" } } }
  zk: { zookeeper: { servers: ["127.0.0.1:2181"] } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: ":15031", formats: [kratos] }
`), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range kind.CheckFiles(cfg) {
		got = append(got, strings.TrimPrefix(e.Error(), path))
	}
	want := []string{
		`:11:16: document is ignored: `,
		`:8:13: DestinationRule of "a" is ignored: spec.subsets[1].name: "v1" is defined twice`,
		`:18:43: VirtualService of "a" is ignored: spec.http[0].route[0].destination.subset: subset "v9" of "a" is unknown: DestinationRule of "a" is ignored`,
		`:21:19: VirtualService of "a" is ignored: spec.http[0].route[1].destination.port: 70000 is not within 1 to 65535`,
		`:24:7: document is ignored: kind: "Service": expected DestinationRule or VirtualService`,
	}
	if len(got) != len(want) {
		t.Fatalf("errors:\n%s", strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("error %d is %s, want %s", i, got[i], want[i])
		}
	}
}
