package formats_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ofMesh is a mesh service with a hundred endpoints.
func ofMesh() *registry.Service {
	s := &registry.Service{
		Name: "orders.shop.svc.cluster.local:20880", Namespace: "shop", Application: "orders", Protocol: "tri",
		Interfaces: []registry.Interface{{Name: "org.acme.shop.Orders", Version: "1.0.0", Group: "blue"}},
		Attributes: registry.Attributes{
			"meshClusterID": "outbound|20880||orders.shop.svc.cluster.local", "meshHostAddr": "orders.shop.svc.cluster.local:20880",
		},
	}
	for i := range 100 {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{
			Host: fmt.Sprint("10.0.0.", i+1), Port: 20880, Weight: uint32(1 + i%2), Zone: "eu-1/eu-1a", Attributes: registry.Attributes{"tlsMode": "istio"},
		})
	}
	return s
}

// ofRegistry is a service of a registry, whose endpoints have more attributes.
func ofRegistry() *registry.Service {
	s := ofMesh()
	s.Name, s.Attributes = "spring-cloud:/services/orders", nil
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Weight, e.Instance, e.Path = 100, fmt.Sprint("orders-", i), "0123"
		e.Attributes = registry.Attributes{"team": "blue", "build": "2.1", "release": "3.3.0", "methods": "create,get,list", "zone": "eu-1a"}
	}
	return s
}

func encoders(tb testing.TB) map[string]metadata.Encoder {
	tb.Helper()
	all := make(map[string]metadata.Encoder)
	mark := metadata.NewMark("shop", "mesh-to-zk")
	add := func(name string, c metadata.Encoder, err error) {
		if err != nil {
			tb.Fatal(err)
		}
		all[name] = c
	}
	for _, d := range formats.All() {
		o := format.Options{Root: d.Root, Documents: "/dubbo", Protocol: d.Protocol, Mark: mark}
		for _, protocol := range []string{"http", "thrift"} {
			if (d.Name == "hertz" || d.Name == "spring-cloud") == (protocol == "http") {
				o.Protocols = []format.ProtocolRule{{Host: "*", Protocol: protocol}}
			}
		}
		if d.Lookup != format.ByName || d.Name == "kratos" || d.Name == "gozero" {
			o.Protocols = nil
		}
		for kind, construct := range d.Forms {
			c, err := construct(o)
			add(kind+"/"+d.Name, c, err)
		}
	}
	s, err := serviceentry.New(serviceentry.Options{Namespace: "imported", Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge"}, Mark: mark})
	add("mesh/service-entry", s, err)
	return all
}

func BenchmarkProjection(b *testing.B) {
	all := encoders(b)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for from, s := range map[string]*registry.Service{"mesh": ofMesh(), "registry": ofRegistry()} {
			b.Run(name+"/"+from, func(b *testing.B) {
				project := (&metadata.Projection{
					Route: func() metadata.Route { return metadata.Route{From: "mesh", To: "zook"} }, Formats: []metadata.Encoder{all[name]},
				}).Entries
				if entries, err := project(s); len(entries) < 100 {
					b.Fatal(len(entries), err)
				}
				b.ReportAllocs()
				for b.Loop() {
					_, _ = project(s)
				}
			})
		}
	}
}

// BenchmarkProjection_Rules selects, checks addresses and renames before it encodes.
func BenchmarkProjection_Rules(b *testing.B) {
	include, err := naming.ParsePattern("*")
	if err != nil {
		b.Fatalf("ParsePattern = %v", err)
	}
	all := encoders(b)
	for from, s := range map[string]*registry.Service{"mesh": ofMesh(), "registry": ofRegistry()} {
		b.Run(from, func(b *testing.B) {
			p := metadata.Projection{
				Select: metadata.Selection{Include: []naming.Pattern{include}},
				Reach:  &naming.Reach{},
				Route:  func() metadata.Route { return metadata.Route{From: "mesh", To: "zook"} },
				Rules: metadata.Rules{
					Drop: []string{"zone", "bind.*"}, Rename: map[string]string{"team": "squad", "tlsMode": "tls"},
					Values: []metadata.ValueRule{{Key: "squad", From: "blue", To: "azure"}},
				},
				Formats: []metadata.Encoder{all["zookeeper/dubbo-interface"]},
			}
			if entries, err := p.Entries(s); len(entries) != 100 || err != nil {
				b.Fatalf("Entries = %d entries, %v; want 100", len(entries), err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = p.Entries(s)
			}
		})
	}
}
