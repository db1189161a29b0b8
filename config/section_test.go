package config_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
)

// TestRegistry_Part shows that a part has the settings that it depends on, and
// none that can be changed while it runs. A setting too many would restart it
// without need, and after a change of a missing setting it would not restart.
func TestRegistry_Part(t *testing.T) {
	c := parse(t, `
owner: shop
registries:
  mesh: { istiod: { address: "istiod:15010", id: m1, exportAll: true, import: { suffix: sfx.internal, vips: 10.9.0.0/16, dataPlanes: true, rulesFile: /rules.yaml }, limits: { maxServices: 77 } }, timing: { workers: 77 } }
  zk: { zookeeper: { servers: ["zk:2181"], id: z1, limits: { maxServices: 77 } }, timing: { workers: 77 } }
  nacos: { nacos: { servers: ["http://nacos:8848"], id: n1, namespace: ns1, listInterval: 7s, limits: { maxServices: 77 } }, timing: { workers: 77 } }
bridges: [{ name: b, from: mesh, to: zk, formats: [plain] }]
`, nil)
	for name, want := range map[string][4]string{ // the settings in identity, source, connection and loop
		"mesh":  {"m1", "m1 istiod:15010 sfx.internal", "10.9.0.0/16 /rules.yaml", "m1 istiod:15010 sfx.internal 10.9.0.0/16 /rules.yaml"},
		"zk":    {"z1 zk:2181", "z1 zk:2181", "zk:2181", "z1 zk:2181"},
		"nacos": {"n1 nacos:8848 ns1", "n1 nacos:8848 ns1 7s", "nacos:8848 ns1", "n1 nacos:8848 ns1 7s"},
	} {
		for i, part := range []config.Part{config.Identity, config.Source, config.Connection, config.Loop} {
			text, err := json.Marshal(c.Registries[name].Part(part))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for sign := range strings.FieldsSeq("m1 z1 n1 istiod:15010 zk:2181 nacos:8848 ns1 sfx.internal 10.9.0.0/16 /rules.yaml 7s :77") {
				if strings.Contains(string(text), sign) {
					got = append(got, sign)
				}
			}
			if strings.Join(got, " ") != want[i] {
				t.Errorf("part %s of %s holds %q, want %q", part, name, got, want[i])
			}
		}
	}
}

func TestRegistry_Settings_Empty(t *testing.T) {
	if got := (config.Registry{}).Settings(); got.Kind != "" || got.Layout != config.Nowhere {
		t.Errorf("Settings = %+v", got)
	}
}
