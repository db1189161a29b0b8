package instance_test

import (
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// FuzzRoundTrip shows that a decoded service is encoded to the same bytes again, in every
// format.
func FuzzRoundTrip(f *testing.F) {
	f.Add("greeter", "10.0.0.1", uint16(8080), uint32(30), "http", "color", "blue", "eu/a", "i1")
	f.Add("a.b", "2001:db8::1", uint16(1), uint32(0), "grpc", "x", `a"b\`, "", "")
	f.Add("x", "host.example.com", uint16(65535), uint32(4294967295), "thrift", "region", "eu", "eu", "i")
	f.Fuzz(func(t *testing.T, app, host string, port uint16, weight uint32, protocol, key, value, zone, id string) {
		s := &registry.Service{
			Name: "greeter.shop.svc.cluster.local:1", Application: app, Path: registry.Path(metadata.Hop("mesh")),
			Endpoints: []registry.Endpoint{
				{Host: host, Port: port, Weight: weight, Protocol: protocol, Zone: zone, Instance: id, Attributes: registry.Attributes{key: value}},
				{Host: "192.0.2.1", Port: 1, Instance: id},
			},
		}
		for _, f := range formats() {
			entries, err := f.codec(t, marked()).Encode(s)
			if fails(err) {
				continue
			}
			c := f.codec(t, marked())
			services, failures := c.Decode(entries, nil)
			if len(failures) != 0 {
				t.Fatalf("%s: cannot decode its own entries: %v", f.name, failures)
			}
			var back []registry.Entry
			for _, s := range services {
				back = append(back, encode(t, f.codec(t, marked()), s)...)
			}
			slices.SortFunc(back, registry.Entry.Compare)
			if !slices.Equal(back, entries) {
				t.Fatalf("%s: came back as\n%swas\n%s", f.name, text(t, c, back), text(t, c, entries))
			}
		}
	})
}

// FuzzDecode shows that any entry is decoded or is an error, and that decoded entries can be
// encoded.
func FuzzDecode(f *testing.F) {
	for _, capture := range []string{"zk-spring-cloud-zookeeper-provider", "zk-kratos3-hertz-kitex", "nacos-kratos3-hertz-kitex", "nacos-spring-cloud-alibaba-provider"} {
		for _, form := range formats() {
			for _, e := range captured(f, form.codec(f, instance.Options{}), capture) {
				f.Add(e.Key, e.Value)
			}
		}
	}
	f.Add("10.0.0.1:1", `{"Weight":-1}`)
	f.Fuzz(func(t *testing.T, key, value string) {
		for _, form := range formats() {
			c := form.codec(t, instance.Options{})
			e := registry.Entry{Group: registry.Group{Kind: "k", Name: "greeter.grpc"}, Key: key, Value: value}
			if z, ok := c.(*instance.ZooKeeper); ok {
				e, _ = z.Entry(e.Group, key, []byte(value))
				_ = z.Foreign(key, []byte(value))
			}
			services, failures := c.Decode([]registry.Entry{e}, nil)
			if len(services)+len(failures) != 1 {
				t.Fatalf("%s: %d services, %d failures", form.name, len(services), len(failures))
			}
			for _, s := range services {
				if _, err := c.Encode(s); fails(err) {
					_ = metadata.DecodeError{Entry: e, Err: err}.Error()
				}
			}
		}
	})
}
