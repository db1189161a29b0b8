package app

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
)

// TestFormats_SharedNames: what is copied from a registry does, what a mesh has two
// of does not, and a place has one answer for all that write to it.
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
		cfg, err := config.Parse("test.yaml", []byte(registries+bridges), noEnv)
		if err != nil {
			t.Fatal(err)
		}
		if got := sharesName(cfg, config.Use{Bridge: cfg.Bridges[0], Format: cfg.Bridges[0].Formats[0], Registry: "zk"}); got != want {
			t.Errorf("sharesName of %s = %t, want %t", bridges, got, want)
		}
	}
}
