package formats_test

import (
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestEncoders_Unwritable shows that a service with endpoints that a format cannot hold has
// the entries of a service without them, and an error that names them.
func TestEncoders_Unwritable(t *testing.T) {
	t.Parallel()
	candidates := []registry.Endpoint{
		{Host: "10.0.0.1", Port: 80},
		{Host: "10.0.0.2", Port: 80, Weight: 7},
		{Host: "app.example.com", Port: 443},
		{Host: "10.0.0.3"},
		{Host: "256.1.1.1", Port: 80},
		{Host: "fe80::1%eth0", Port: 80},
		{Host: "10.0.0.4", Port: 80, Protocol: "a b"},
		{Host: "fd00::1", Port: 80},
	}
	for name, c := range encoders(t) {
		for from, s := range map[string]*registry.Service{"mesh": ofMesh(), "registry": ofRegistry()} {
			t.Run(name+"/"+from, func(t *testing.T) {
				t.Parallel()
				with := func(endpoints []registry.Endpoint) *registry.Service {
					out := *s
					out.Endpoints = endpoints
					return &out
				}
				writable := func(e registry.Endpoint) bool {
					entries, _ := c.Encode(with([]registry.Endpoint{e}))
					return slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) })
				}
				for mask := range 1 << len(candidates) {
					var all, rest []registry.Endpoint
					for i, e := range candidates {
						if mask&(1<<i) == 0 {
							continue
						}
						all = append(all, e)
						if writable(e) {
							rest = append(rest, e)
						}
					}
					got, err := c.Encode(with(all))
					want, _ := c.Encode(with(rest))
					if !slices.Equal(got, want) {
						t.Fatalf("entries of %v are\n%v\nwant\n%v", all, got, want)
					}
					left := registry.LeftOutBy(err)
					if len(rest) < len(all) && left == nil {
						t.Fatalf("Encode(%v) = %v, want an error that names the omissions", all, err)
					}
				}
			})
		}
	}
}

// TestProjection_OneFormatRefuses shows that other formats have the endpoints that one format
// cannot hold.
func TestProjection_OneFormatRefuses(t *testing.T) {
	t.Parallel()
	all := encoders(t)
	s := ofRegistry()
	s.Application = "a name/that is unfit"
	p := metadata.Projection{Formats: []metadata.Encoder{all["zookeeper/plain"], all["zookeeper/dubbo-interface"]}}
	entries, err := p.Entries(s)
	if left := registry.LeftOutBy(err); len(entries) != len(s.Endpoints) || left == nil || left.All != registry.Unwritable {
		t.Errorf("Entries = %v, %v; want that of one format, and that the other has none", entries, err)
	}
}
