package formats_test

import (
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestLeftOut shows that a service whose only provider is left out has the host that it has
// once the provider is repaired, or no host. The default protocol would be another host.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	read, err := dubbo.NewZooKeeper(dubbo.Options{Root: "/dubbo", Protocol: "tri"})
	if err != nil {
		t.Fatal(err)
	}
	write, err := serviceentry.New(serviceentry.Options{
		Namespace: "imported", Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge"}, Protocol: "tri", IPOnly: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	mended := []string{"shop.x-loop.k0-0-dubbo.zk.bridge"}
	for name, tt := range map[string]struct {
		url  string
		only []netip.Prefix
		want []string
	}{
		"none":                      {"dubbo://10.0.0.1:20880/shop.Loop", nil, mended},
		"loopback":                  {"dubbo://127.0.0.1:20880/shop.Loop", nil, mended},
		"unspecified address":       {"dubbo://0.0.0.0:20880/shop.Loop", nil, nil},
		"outside allow of the mesh": {"dubbo://10.0.0.1:20880/shop.Loop", []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, mended},
		"link-local address":        {"dubbo://169.254.1.1:20880/shop.Loop", nil, mended},
		"a host name for proxies":   {"dubbo://orders.example:20880/shop.Loop", nil, mended},
		"disabled":                  {"dubbo://10.0.0.1:20880/shop.Loop?disabled=true", nil, mended},
		"port 0":                    {"dubbo://10.0.0.1:0/shop.Loop", nil, nil},
		"no provider":               {"consumer://10.0.0.1/shop.Loop", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entry, _ := read.Entry(registry.Group{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "shop.Loop"}, url.QueryEscape(tt.url), nil)
			services, _ := read.Decode([]registry.Entry{entry}, nil)
			p := metadata.Projection{Formats: []metadata.Encoder{write}, Reach: &naming.Reach{Only: tt.only}}
			var hosts []string
			for _, s := range services {
				entries, err := p.Entries(s)
				for _, e := range entries {
					if e.Key == serviceentry.HeaderKey {
						hosts = append(hosts, e.Group.Name)
					}
				}
				isOffered := slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) })
				if isOffered != (name == "none") {
					t.Errorf("%d entries, %v; want endpoints if nothing is left out", len(entries), err)
				}
			}
			if !slices.Equal(hosts, tt.want) {
				t.Errorf("hosts %q, want %q", hosts, tt.want)
			}
		})
	}
}
