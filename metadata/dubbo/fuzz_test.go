package dubbo_test

import (
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

// FuzzRoundTrip shows that a decoded service is encoded to the same bytes again.
func FuzzRoundTrip(f *testing.F) {
	f.Add("api.Greeter", "1.0.0", "g1", "10.0.0.1", uint16(20880), uint32(30), "serialization", "hessian2", "region1/zone1/")
	f.Add("api.Outer$Inner", "", "", "2001:db8::1", uint16(1), uint32(0), "x", "a&b=c?d#e%f+g;h", "")
	f.Add("a", "1", "", "host.example.com", uint16(65535), uint32(4294967295), "methods", "a,b", "\x00")
	f.Fuzz(func(t *testing.T, iface, version, group, host string, port uint16, weight uint32, key, value, zone string) {
		s := &registry.Service{
			Name: "greeter.shop.svc.cluster.local:1", Application: "shop", Path: registry.Path(metadata.Hop("mesh")),
			Interfaces: []registry.Interface{{Name: iface, Version: version, Group: group}},
			Attributes: registry.Attributes{"meshHostAddr": "greeter.shop.svc.cluster.local:1"},
			Endpoints: []registry.Endpoint{
				{Host: host, Port: port, Weight: weight, Zone: zone, Attributes: registry.Attributes{key: value}},
				{Host: "192.0.2.1", Port: 1},
			},
		}
		o := marked()
		for _, c := range []metadata.Codec{zookeeper(t, o), nacos(t, o)} {
			entries, err := c.Encode(s)
			if fails(err) {
				continue
			}
			services, failures := c.Decode(entries, nil)
			if len(failures) != 0 {
				t.Fatalf("cannot decode its own entries: %v", failures)
			}
			var again []registry.Entry
			for _, s := range services {
				again = append(again, encode(t, c, s)...)
			}
			slices.SortFunc(again, registry.Entry.Compare)
			if !slices.Equal(again, entries) {
				t.Fatalf("came back as\n%swas\n%s", text(again), text(entries))
			}
		}
	})
}

func FuzzDecodeZooKeeper(f *testing.F) {
	z := zookeeper(f, dubbo.Options{})
	for _, name := range []string{"zk-java335-interface-provider", "zk-dubbogo332-all-remote-provider"} {
		for _, e := range zookeeperEntries(f, z, name) {
			node, _, err := z.Node(e)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(node)
		}
	}
	f.Add("%00")
	f.Add("tri%3A%2F%2F%5B%3A%3A1%5D%3A1%2Fapi.Greeter")
	f.Fuzz(func(t *testing.T, node string) {
		g := registry.Group{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "org.bridge.demo.GreetService"}
		e, _ := z.Entry(g, node, nil)
		services, failures := z.Decode([]registry.Entry{e}, nil)
		if len(services)+len(failures) != 1 {
			t.Fatalf("%d services, %d failures", len(services), len(failures))
		}
		for _, s := range services {
			if _, err := z.Encode(s); fails(err) && s.Endpoints[0].Health.Offered() {
				t.Fatalf("cannot encode decoded services: %v", err)
			}
		}
	})
}

func FuzzDecodeNacos(f *testing.F) {
	for _, name := range []string{"nacos-java335-interface-provider", "nacos-dubbogo332-interface-local-provider"} {
		for _, e := range nacosEntries(f, name) {
			f.Add(e.Value)
		}
	}
	n := nacos(f, dubbo.Options{Reserve: metadata.MaxNacosMetadata - 1<<20})
	f.Fuzz(func(t *testing.T, value string) {
		g := registry.Group{Kind: dubbo.Kind, Group: "DEFAULT_GROUP", Name: "providers:org.bridge.demo.GreetService::"}
		services, failures := n.Decode([]registry.Entry{{Group: g, Key: "k", Value: value}}, nil)
		if len(services)+len(failures) != 1 {
			t.Fatalf("%d services, %d failures", len(services), len(failures))
		}
	})
}
