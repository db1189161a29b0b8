package instance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	metaformat "github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// greeter is a mesh service without a published service key and with all possible fields.
func greeter() *registry.Service {
	return &registry.Service{
		Name: "greeter.shop.svc.cluster.local:8080", Namespace: "shop", Application: "greeter", Path: registry.Path(metadata.Hop("mesh")),
		Attributes: registry.Attributes{
			"meshClusterID": "outbound|8080||greeter.shop.svc.cluster.local",
			"meshHostAddr":  "greeter.shop.svc.cluster.local:8080",
		},
		Endpoints: []registry.Endpoint{
			{Host: "10.0.0.1", Port: 8080, Weight: 3, Zone: "eu-1/eu-1a", Attributes: registry.Attributes{"meshSubset": "v1", "tlsMode": "istio"}},
			{Host: "10.0.0.2", Port: 8080, Weight: 1, Health: registry.Healthy},
			{Host: "10.0.0.3", Port: 8080, Weight: 1, Health: registry.Unhealthy},
			{Host: "10.0.0.4", Port: 8080, Weight: 1, Health: registry.Draining},
			{Host: "2001:db8::1", Port: 8080, Weight: 1},
		},
	}
}

// TestFormats_PlainRules shows that a mesh host without a published key is exported under
// the name that a rule gives it, in every format.
func TestFormats_PlainRules(t *testing.T) {
	const host = "*.shop.svc.cluster.local"
	each(t, func(t *testing.T, f format) {
		o := marked()
		o.Names = []metaformat.Name{{Host: host, Port: 9, Service: "no"}, {Host: host, Service: "shop-*"}}
		c := f.codec(t, o)
		got := text(t, c, encode(t, c, greeter()))
		left := map[string]string{
			"gozero-nacos": "[2001:db8::1]:8080: clients of", "kitex-nacos": "[2001:db8::1]:8080: clients of",
			"spring-cloud-zookeeper": "weight left out of 1 endpoint",
		}[f.name]
		if err := leftOut(c, greeter()); (err != nil) != (left != "") || err != nil && !strings.Contains(err.Error(), left) {
			t.Errorf("left out: %v", err)
		}
		golden(t, f.name, got)
	})
}

func TestDecode_Captures(t *testing.T) {
	captures := map[string][]string{
		"spring-cloud-zookeeper": {"zk-spring-cloud-zookeeper-provider", "zk-java335-instance-remote-provider"},
		"spring-cloud-nacos":     {"nacos-spring-cloud-alibaba-provider", "nacos-kratos3-hertz-kitex", "nacos-java335-all-remote-version-group"},
		"kratos-zookeeper":       {"zk-kratos3-hertz-kitex"},
		"kratos-nacos":           {"nacos-kratos3-hertz-kitex", "nacos-java335-all-remote-version-group"},
		"gozero-nacos":           {"nacos-java335-all-remote-version-group"},
		"hertz-zookeeper":        {"zk-kratos3-hertz-kitex", "zk-java335-instance-remote-provider"},
		"hertz-nacos":            {"nacos-kratos3-hertz-kitex"},
		"kitex-zookeeper":        {"zk-kratos3-hertz-kitex"},
		"kitex-nacos":            {"nacos-kratos3-hertz-kitex"},
		"plain-nacos":            {"nacos-kratos3-hertz-kitex"},
	}
	each(t, func(t *testing.T, f format) {
		var b strings.Builder
		for _, capture := range captures[f.name] {
			c := f.codec(t, instance.Options{})
			services, failures := c.Decode(captured(t, c, capture), nil)
			fmt.Fprintf(&b, "-- %s\n%s", capture, render(services, failures))
		}
		golden(t, "captures-"+f.name, b.String())
	})
}

// TestFormats_RoundTrip shows that an encoded service is decoded with all its fields, except
// for those that the golden files of this test show as lost.
func TestFormats_RoundTrip(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		o := marked()
		o.Subsets = true
		c := f.codec(t, o)
		entries := encode(t, c, greeter())
		services, failures := c.Decode(entries, nil)
		golden(t, "back-"+f.name, render(services, failures))
		if again := encode(t, f.codec(t, o), services[0]); text(t, c, again) != text(t, c, entries) {
			t.Errorf("written again it is\n%swas\n%s", text(t, c, again), text(t, c, entries))
		}
	})
}

// TestMarks shows that the bridge recognises its own mark at every node.
func TestMarks(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		c := f.codec(t, marked())
		for _, e := range encode(t, c, greeter()) {
			if mark, err := metadata.MarkOf(e); err != nil || mark.Owner != marked().Mark.Owner || mark.Path.Hops() != 1 {
				t.Errorf("mark %v %v in %s", mark, err, e.Value)
			}
			z, ok := c.(*instance.ZooKeeper)
			if !ok {
				continue
			}
			name, data, err := z.Node(e)
			if err != nil {
				t.Fatal(err)
			}
			if back, mark := z.Entry(e.Group, name, data); back != e || mark.Owner != marked().Mark.Owner {
				t.Errorf("read back %+v %v, want %+v", back, mark, e)
			}
		}
	})
}
