package mcp_test

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// BenchmarkTarget_Write is one endpoint of many that changes, from the service to
// what is served.
func BenchmarkTarget_Write(b *testing.B) {
	codec, err := serviceentry.New(serviceentry.Options{
		Namespace: "imported", Hosts: naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}, Mark: metadata.NewMark("shop", "zk-to-mesh"),
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			target := mcp.NewTarget(mcp.Options{Owner: "me"})
			services := make([][]registry.Entry, 2)
			for i := range services {
				s := greeter("api.Greeter")
				first := netip.MustParseAddr("10.0.0.1")
				for range n {
					s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: first.String(), Port: 20001, Weight: 100, Zone: "eu-1/eu-1a"})
					first = first.Next()
				}
				s.Endpoints[n/2].Weight = uint32(100 + i)
				if services[i], err = codec.Encode(s); err != nil {
					b.Fatal(err)
				}
			}
			c := registry.Change{Group: services[0][0].Group, Want: services[0]}
			for _, e := range services[0] {
				c.Put = append(c.Put, registry.Write{New: e})
			}
			if err := target.Write(b.Context(), c); err != nil {
				b.Fatal(err)
			}
			at := 0
			for i := range services[0] {
				if services[0][i] != services[1][i] {
					at = i
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				old, next := services[i%2], services[(i+1)%2]
				c := registry.Change{Group: next[0].Group, Want: next, Put: []registry.Write{{New: next[at], Old: &registry.Held{Entry: old[at]}}}}
				if err := target.Write(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
