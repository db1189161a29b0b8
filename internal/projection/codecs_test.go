package projection

import (
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestFormats_SharedNames shows that services share a name if they come from a registry or
// if join is set, and that this is the same for all bridges that write a location.
func TestFormats_SharedNames(t *testing.T) {
	t.Parallel()
	const registries = `owner: shop
registries:
  mesh: { istiod: { address: "istiod:15010" } }
  zk: { zookeeper: { servers: ["zk:2181"] } }
  n: { nacos: { servers: ["http://n:8848"] } }
bridges:
`
	for bridges, want := range map[string]bool{
		"  - { name: a, from: mesh, to: zk, formats: [kratos] }":                                                                            false,
		"  - { name: a, from: mesh, to: zk, formats: [{ format: kratos, join: true }] }":                                                    true,
		"  - { name: a, from: n, to: zk, formats: [kratos] }":                                                                               true,
		"  - { name: a, from: mesh, to: zk, formats: [kratos] }\n  - { name: b, from: n, to: zk, formats: [kratos] }":                       true,
		"  - { name: a, from: mesh, to: zk, formats: [kratos] }\n  - { name: b, from: n, to: zk, formats: [{ format: kratos, root: /k }] }": false,
	} {
		cfg, err := config.Parse("test.yaml", []byte(registries+bridges), unset)
		if err != nil {
			t.Fatal(err)
		}
		if got := sharesName(cfg, config.Use{Bridge: cfg.Bridges[0], Format: cfg.Bridges[0].Formats[0], Registry: "zk"}); got != want {
			t.Errorf("sharesName of %s = %t, want %t", bridges, got, want)
		}
	}
}

func TestServiceEntries_ExportTo(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("t.yaml", []byte(`owner: shop
registries:
  zk: { zookeeper: { servers: [10.0.0.1:2181] } }
  mesh: { istiod: { address: istiod.istio-system.svc:15010, import: { exportTo: [shop, web] } } }
bridges: [{ name: a, from: zk, to: mesh, listen: "127.0.0.1:15051", formats: [kratos] }]
`), unset)
	if err != nil {
		t.Fatal(err)
	}
	codecs, err := ServiceEntries(cfg, &cfg.Registries["mesh"].Istiod.Import.Hosts, "", cfg.Bridges)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := codecs[0][0].Encode(&registry.Service{Name: "greeter", Protocol: "grpc"})
	if err != nil {
		t.Fatal(err)
	}
	header, err := serviceentry.ParseHeader(entries[0])
	if err != nil || !slices.Equal(header.ExportTo, []string{"shop", "web"}) {
		t.Errorf("exportTo = %q, %v, want shop and web", header.ExportTo, err)
	}
}

// unset is an environment without variables.
func unset(string) (string, bool) { return "", false }
