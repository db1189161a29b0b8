package projection

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An entry of a service in a mesh names that service.
func TestTrace(t *testing.T) {
	t.Parallel()
	of, none := OriginReader{mesh: true}, OriginReader{}
	for value, want := range map[string]registry.Name{
		"dubbo://10.0.0.1:20880/api.A?meshHostAddr=a.shop:20880&side=provider": "a.shop:20880",
		`{"metadata":{"meshHostAddr":"a.shop:1"}}`:                             "a.shop:1",
		`{}`: "",
	} {
		if got := of.Origin(registry.Entry{Value: value}); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
		if got := none.Origin(registry.Entry{Value: value}); got != "" {
			t.Errorf("Origin(%s) = %q, want none", value, got)
		}
	}
	if !of.Service("a.shop:1") || of.Service("service keys") || none.Service("a") {
		t.Error("Service of a scope that covers no service by name = true, want false")
	}
}

// TestTrace_Registry shows that the service of an entry is found in each format that names
// it.
func TestTrace_Registry(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("t.yaml", []byte(`owner: shop
registries:
  zk: { zookeeper: { servers: [10.0.0.1:2181] } }
  zk2: { zookeeper: { servers: [10.0.0.2:2181] } }
  nacos: { nacos: { servers: ["http://10.0.0.3:8848"] } }
  other: { nacos: { servers: ["http://10.0.0.4:8848"], namespace: other } }
  mesh: { istiod: { address: istiod.istio-system.svc:15010, import: { keys: off } } }
bridges:
  - { name: a, from: zk, to: zk2, formats: [dubbo-interface] }
  - { name: b, from: zk, to: nacos, formats: [dubbo-interface] }
  - { name: c, from: zk, to: mesh, listen: "127.0.0.1:15051", formats: [dubbo-interface] }
  - { name: d, from: other, to: zk2, formats: [dubbo-interface] }
  - { name: e, from: nacos, to: mesh, listen: "127.0.0.1:15051", formats: [dubbo-interface, dubbo-application] }
  - { name: f, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /prod }, { format: dubbo-interface, root: /gray }, kratos] }
  - { name: g, from: zk, to: nacos, formats: [{ format: dubbo-interface, root: /prod, group: PROD }] }
  - { name: h, from: zk, to: nacos, formats: [{ format: dubbo-interface, root: /prod }, { format: dubbo-interface, root: /gray }] }
  - { name: i, from: zk, to: zk2, reads: [{ format: dubbo-interface, root: /prod }], formats: [{ format: dubbo-interface, root: /gray }] }
`), unset)
	if err != nil {
		t.Fatal(err)
	}
	m := Maker{Config: cfg}
	for _, x := range cfg.Bridges {
		codecs := codecsOf(t, m, x)
		from := LocationOf(cfg.Registries[x.From], x.Read()[0])
		for _, i := range []registry.Interface{{Name: "api.Orders"}, {Name: "org.acme.A$B", Version: "1.0-SNAPSHOT"}, {Name: "x", Version: "2", Group: "g.a-b$"}} {
			s := &registry.Service{
				Name:       dubbo.NameOf(registry.Group{Kind: from.Kind, Namespace: from.Namespace, Group: from.Group}, i),
				Interfaces: []registry.Interface{i}, Protocol: "tri",
				Endpoints: []registry.Endpoint{{Host: "10.1.0.1", Port: 20880, Weight: 100, Health: registry.Healthy}},
			}
			want := s.Name
			if x.Name == "e" || x.Name == "h" {
				want = "" // an application may provide it, or either place have it
			}
			for _, c := range codecs[:1] {
				entries, err := c.Encode(s)
				if _, leftOut := errors.AsType[*registry.LeftOut](err); err != nil && !leftOut && x.To != "nacos" {
					t.Fatal(err)
				}
				for _, e := range entries {
					if got := NewOriginReader(cfg, x, codecs).Origin(e); got != want {
						t.Errorf("%s, %s: %q, want %q", x.Name, e.Key, got, want)
					}
				}
			}
		}
	}
}

// codecsOf returns the codecs with which a bridge writes.
func codecsOf(t *testing.T, m Maker, x config.Bridge) []metadata.Encoder {
	t.Helper()
	var all [][]metadata.Encoder
	var err error
	switch r := m.Config.Registries[x.To]; {
	case r.Istiod != nil:
		all, err = ServiceEntries(m.Config, &r.Istiod.Import.Hosts, "", []config.Bridge{x})
	case r.ZooKeeper != nil:
		all, _, err = NewCodecs[metadata.Codec](m, x.To, format.ZooKeeper, []config.Bridge{x}, nil)
	default:
		all, _, err = NewCodecs[metadata.Codec](m, x.To, format.Nacos, []config.Bridge{x}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}
