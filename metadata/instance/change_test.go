package instance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// hundred is a service with a hundred endpoints.
func hundred() *registry.Service {
	s := one(registry.Endpoint{})
	s.Attributes = registry.Attributes{"meshHostAddr": "greeter.shop.svc.cluster.local:8080"}
	s.Endpoints = nil
	for i := range 100 {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: fmt.Sprintf("10.0.0.%d", i), Port: 8080, Weight: 1, Zone: "eu/a"})
	}
	return s
}

// TestFormats_Changes shows that a change of one field of one endpoint changes, adds or
// removes one entry, and that all other entries stay the same.
func TestFormats_Changes(t *testing.T) {
	for name, change := range map[string]struct {
		of         func(*registry.Endpoint)
		goes, same bool // instead of being changed in place; or nothing shows
	}{
		"weight only":              {of: func(e *registry.Endpoint) { e.Weight = 7 }},
		"metadata only":            {of: func(e *registry.Endpoint) { e.Attributes = registry.Attributes{"color": "blue"} }},
		"locality only":            {of: func(e *registry.Endpoint) { e.Zone = "eu/b" }},
		"tag only":                 {of: func(e *registry.Endpoint) { e.Attributes = registry.Attributes{"dubbo.tag": "gray"} }},
		"health, which removes it": {of: func(e *registry.Endpoint) { e.Health = registry.Unhealthy }, goes: true},
		"healthy as expected":      {of: func(e *registry.Endpoint) { e.Health = registry.Healthy }, same: true},
		"port name only":           {of: func(e *registry.Endpoint) { e.PortName = "x" }, same: true},
		"a user's timestamp":       {of: func(e *registry.Endpoint) { e.Attributes = registry.Attributes{"timestamp": "1"} }},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f format) {
				o := marked()
				o.Tags = true
				c := f.codec(t, o)
				before := encode(t, c, hundred())
				s := hundred()
				change.of(&s.Endpoints[42])
				after := encode(t, c, s)
				changed, gone, came := differences(before, after)
				if want := [3]int{0, 0, 0}; change.same && [3]int{changed, gone, came} != want {
					t.Errorf("changed %d, gone %d, came %d", changed, gone, came)
				}
				if change.goes && (gone != 1 || changed+came != 0) || !change.goes && !change.same && (changed != 1 || gone+came != 0) {
					t.Errorf("changed %d, gone %d, came %d", changed, gone, came)
				}
			})
		})
	}
}

// TestEncode_OneOfHundred shows that a change of one endpoint does not change the others.
func TestEncode_OneOfHundred(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		c := f.codec(t, marked())
		s := hundred()
		s.Endpoints = s.Endpoints[:99]
		all, less := encode(t, c, hundred()), encode(t, c, s)
		if changed, gone, came := differences(less, all); changed+gone != 0 || came != 1 {
			t.Errorf("adding: changed %d, gone %d, came %d", changed, gone, came)
		}
		if changed, gone, came := differences(all, less); changed+came != 0 || gone != 1 {
			t.Errorf("removing: changed %d, gone %d, came %d", changed, gone, came)
		}
	})
}

func differences(before, after []registry.Entry) (changed, gone, came int) {
	key := func(e registry.Entry) registry.Entry { e.Value = ""; return e }
	for _, e := range before {
		switch at := slices.IndexFunc(after, func(a registry.Entry) bool { return key(a) == key(e) }); {
		case at < 0:
			gone++
		case after[at] != e:
			changed++
		}
	}
	return changed, gone, len(after) - len(before) + gone
}

// TestDecode_Tags shows that an endpoint with dubbo.tag is only written with the option.
func TestDecode_Tags(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Attributes: registry.Attributes{"dubbo.tag": "gray"}})
		c := f.codec(t, marked())
		if entries := encode(t, c, s); len(entries) != 0 {
			t.Errorf("written: %v", entries)
		}
		if err := leftOut(c, s); err == nil || !strings.Contains(err.Error(), `10.0.0.1:1: has tag "gray"`) || !strings.Contains(err.Error(), "tags: true") {
			t.Errorf("left out: %v", err)
		}
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0.2", Port: 1})
		if entries := encode(t, c, s); len(entries) != 1 {
			t.Errorf("its neighbour is not written: %v", entries)
		}
		s.Endpoints = s.Endpoints[:1]
		o := marked()
		o.Tags = true
		c = f.codec(t, o)
		if services, _ := c.Decode(encode(t, c, s), nil); services[0].Attributes["dubbo.tag"] != "gray" {
			t.Errorf("has %v", services[0].Attributes)
		}
	})
}

// TestDecode_Ports shows that the ports of one instance are one node or instance if the
// format allows it, and are decoded as they were encoded.
func TestDecode_Ports(t *testing.T) {
	for name, test := range map[string]struct {
		endpoints []registry.Endpoint
		entries   map[string]int
		back      map[string]string // protocols, where they are not those that were written
	}{
		"http and gRPC": {
			endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 80, Protocol: "http", Instance: "i"}, {Host: "10.0.0.1", Port: 90, Protocol: "grpc", Instance: "i"}},
			entries:   map[string]int{"spring-cloud-zookeeper": 1, "spring-cloud-nacos": 1, "kratos-zookeeper": 1, "kratos-nacos": 2, "plain-nacos": 2},
		},
		"https": {
			endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 443, Protocol: "https"}},
			entries:   map[string]int{"spring-cloud-zookeeper": 1, "spring-cloud-nacos": 1, "kratos-zookeeper": 1, "kratos-nacos": 1, "hertz-zookeeper": 1, "plain-zookeeper": 1},
		},
		"gRPC over IPv6": {
			endpoints: []registry.Endpoint{{Host: "::1", Port: 90, Protocol: "grpc"}},
			entries:   map[string]int{"spring-cloud-zookeeper": 1, "spring-cloud-nacos": 1, "kratos-zookeeper": 1, "kratos-nacos": 1, "gozero-nacos": 0, "kitex-nacos": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f format) {
				want, ok := test.entries[f.name]
				if !ok {
					return
				}
				s := one(registry.Endpoint{})
				s.Endpoints = test.endpoints
				c := f.codec(t, marked())
				entries := encode(t, c, s)
				services, failures := c.Decode(entries, nil)
				var got []string
				for _, s := range services {
					for _, e := range s.Endpoints {
						got = append(got, e.Protocol+"://"+e.Address())
					}
				}
				var expected []string
				for _, e := range test.endpoints[:min(want, 1)*len(test.endpoints)] {
					expected = append(expected, e.Protocol+"://"+e.Address())
				}
				slices.Sort(got)
				slices.Sort(expected)
				if len(entries) != want || len(failures) != 0 || !slices.Equal(got, expected) {
					t.Errorf("%d entries, %v back, want %v", len(entries), got, expected)
				}
			})
		})
	}
}

// TestEncode_UnknownProtocol shows that an endpoint that no consumer of a format can call is
// left out with a reason, and that other formats still have it.
func TestEncode_UnknownProtocol(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "dubbo"})
		c := f.codec(t, marked())
		got := encode(t, c, s)
		if left := leftOut(c, s); len(got) == 0 && left == nil || len(got) == 1 && left != nil {
			t.Errorf("wrote %v, left out %v", got, left)
		}
	})
}

// TestWeights shows that a share that a format can hold is decoded as it was encoded, and
// any other share as the nearest possible one.
func TestWeights(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		c := f.codec(t, instance.Options{})
		weighted := f.name != "spring-cloud-zookeeper" // which has no weight
		for _, share := range []uint32{0, 1, 4, 5, 10, 50, 100, 150, 1000, 9_900, 10_000} {
			services, _ := c.Decode(encode(t, c, one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: share})), nil)
			got := services[0].Endpoints[0].Weight
			least := uint32(1)
			switch f.name[:5] {
			case "hertz", "kitex":
				least = convert.Normal / 10
			}
			want := share
			if want == 0 {
				want = convert.Normal
			}
			if got == 0 { // not reported, which is the normal one
				got = convert.Normal
			}
			if weighted && !services[0].Endpoints[0].Health.Offered() || weighted && max(got, want)-min(got, want) > least {
				t.Errorf("%d came back as %d", share, got)
			}
		}
	})
}
