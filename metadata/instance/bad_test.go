package instance_test

import (
	"encoding/json"
	"net"
	"net/url"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/plain"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestBadNodes shows that a node that hides a whole service from real consumers is one error,
// and that the other nodes are decoded.
func TestBadNodes(t *testing.T) {
	const dubbo = `{"name":"greeter","id":"x","address":"10.0.0.9","port":9,"payload":` +
		`{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"x","name":"greeter","metadata":{}}}`
	bad := map[string]map[string][2]string{ // name and data of a node
		"spring-cloud-zookeeper": {
			"garbage (s06)":                {"x", "garbage"},
			"no data":                      {"x", ""},
			"a node of Dubbo (s07)":        {"x", dubbo},
			"a payload without class (12)": {"x", `{"name":"greeter","id":"x","address":"10.0.0.9","port":9,"payload":{"metadata":{}}}`},
			"no port":                      {"x", `{"name":"greeter","id":"x","address":"10.0.0.9","payload":null}`},
			"another service's":            {"x", `{"name":"other","id":"x","address":"10.0.0.9","port":9,"payload":null}`},
		},
		"kratos-zookeeper": {
			"garbage (k3)":             {"x", "garbage"},
			"no data":                  {"x", ""},
			"no endpoints":             {"x", `{"id":"x","name":"greeter"}`},
			"another name (k2)":        {"x", `{"id":"x","name":"other","endpoints":["grpc://10.0.0.9:9"]}`},
			"an endpoint without port": {"x", `{"id":"x","name":"greeter","endpoints":["grpc://10.0.0.9"]}`},
		},
		"hertz-zookeeper": {
			"garbage (h3)": {"10.0.0.9:9", "garbage"},
			"no data (h5)": {"10.0.0.9:9", ""},
			"a parent":     {"providers", ""},
		},
		"kitex-zookeeper": {
			"garbage (x2)":                  {"10.0.0.9:9", "garbage"},
			"no data (x3)":                  {"10.0.0.9:9", ""},
			"a name that is not an address": {"x", `{"Weight":10}`},
		},
		"plain-zookeeper": {"neither name nor data is an address": {"x", "y"}},
	}
	each(t, func(t *testing.T, f format) {
		z, ok := f.codec(t, marked()).(*instance.ZooKeeper)
		if !ok {
			return
		}
		good := encode(t, z, one(registry.Endpoint{Host: "10.0.0.1", Port: 1}))
		for name, node := range bad[f.name] {
			e, mark := z.Entry(good[0].Group, node[0], []byte(node[1]))
			if mark.Owner != "" {
				t.Errorf("%s: is of %q", name, mark.Owner)
			}
			services, failures := z.Decode(append([]registry.Entry{e}, good...), nil)
			if len(failures) != 1 || len(services) != 1 || len(services[0].Endpoints) != 1 {
				t.Errorf("%s: read as %s", name, render(services, failures))
			}
		}
		if len(bad[f.name]) == 0 {
			t.Error("no bad node is tried")
		}
	})
}

// TestEncode_InvalidNodes shows that real consumers can read each written node of any
// service.
func TestEncode_InvalidNodes(t *testing.T) {
	odd := []registry.Endpoint{
		{Host: "10.0.0.1", Port: 1},
		{Host: "::1", Port: 1, Weight: 1},
		{Host: "host.example", Port: 65535, Protocol: "GRPC"},
		{Host: "10.0.0.2", Port: 2, Instance: "i", Protocol: "http", Weight: 4294967295},
		{Host: "10.0.0.2", Port: 3, Instance: "i", Protocol: "tri"},
		{Host: "10.0.0.2", Port: 4, Instance: "i", Protocol: "https"},
		{Host: "10.0.0.3", Port: 3, Attributes: registry.Attributes{
			"Weight": "0", "@class": "x", "instance_status": "DOWN", "weight": "0", "id": "x", "kind": "x",
			"dubbo.metadata.revision": "1", "preserved.register.source": "x", "secure": "true", "protocol": "x y",
		}},
	}
	each(t, func(t *testing.T, f format) {
		c := f.codec(t, marked())
		s := one(odd[0])
		s.Endpoints = odd
		entries := encode(t, c, s)
		if len(entries) == 0 {
			t.Fatal("nothing was written")
		}
		for _, e := range entries {
			if z, ok := c.(*instance.ZooKeeper); ok {
				name, data, err := z.Node(e)
				if err != nil {
					t.Fatal(err)
				}
				node(t, f, name, data)
			} else {
				record(t, e)
			}
		}
		if services, failures := c.Decode(entries, nil); len(failures) != 0 {
			t.Errorf("Decode = %s, want no error", render(services, failures))
		}
	})
}

// node fails the test if the clients of a format cannot read a node.
func node(t *testing.T, f format, name string, data []byte) {
	t.Helper()
	var all struct {
		Name, ID, Address string
		Port              int
		Endpoints         []string
		Weight            *float64
		Payload           struct {
			Class    string `json:"@class"`
			Metadata map[string]string
		}
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	switch f.name {
	case "spring-cloud-zookeeper":
		if all.Name != "greeter" || all.ID != name || all.Address == "" || all.Port == 0 || all.Payload.Metadata["instance_status"] != "UP" ||
			all.Payload.Class != "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance" || all.Payload.Metadata["dubbo.metadata.revision"] != "" {
			t.Errorf("%s: %s", name, data)
		}
	case "kratos-zookeeper":
		for _, e := range all.Endpoints {
			if u, err := url.Parse(e); err != nil || u.Port() == "" {
				t.Errorf("endpoint %q %v", e, err)
			}
		}
		if all.Name != "greeter" || len(all.Endpoints) == 0 {
			t.Errorf("%s: %s", name, data)
		}
	case "hertz-zookeeper", "kitex-zookeeper":
		if _, _, err := net.SplitHostPort(name); err != nil || all.Weight == nil || *all.Weight < 1 {
			t.Errorf("%s: %s", name, data)
		}
	}
}

// record fails the test if a Nacos server would refuse an instance, or not offer it.
func record(t *testing.T, e registry.Entry) {
	t.Helper()
	in, err := metadata.ParseNacosInstance(e.Value)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Check(); err != nil || in.Weight <= 0 || !in.Enabled || !in.Healthy || in.Metadata["dubbo.metadata.revision"] != "" {
		t.Errorf("%s: %v", e.Value, err)
	}
}

// TestForeignInstances shows that entries of another format in a parent or a service are
// recognised.
func TestForeignInstances(t *testing.T) {
	capture := map[string]string{"spring-cloud-zookeeper": "zk-java335-instance-remote-provider", "kratos-zookeeper": "zk-spring-cloud-zookeeper-provider"}
	each(t, func(t *testing.T, f format) {
		switch c := f.codec(t, marked()).(type) {
		case *instance.ZooKeeper:
			for _, e := range encode(t, c, greeter()) {
				if name, data, _ := c.Node(e); c.Foreign(name, data) != nil {
					t.Errorf("its own node is another's: %v", c.Foreign(name, data))
				}
			}
			for _, n := range nodes(t, capture[f.name]) {
				if c.Foreign("id", []byte(n)) == nil {
					t.Errorf("not known as another format's: %s", n)
				}
			}
		case *instance.Nacos:
			dubbo := metadata.NacosInstance{IP: "10.0.0.1", Port: 1, Metadata: map[string]string{"dubbo.metadata.revision": "1"}}
			if c.Foreign("greeter", dubbo) == nil || c.Foreign("greeter", metadata.NacosInstance{IP: "10.0.0.1", Port: 1}) != nil {
				t.Error("one of Dubbo's application-level discovery is not known as such, or one that says nothing is")
			}
		}
	})
}

// nodes returns the data of the instances of a captured tree.
func nodes(t *testing.T, capture string) (data []string) {
	t.Helper()
	if capture == "" {
		return nil
	}
	everything := format{root: "/services", protocol: "tcp", nodes: plain.NewZooKeeper}
	for _, e := range captured(t, everything.codec(t, instance.Options{}), capture) {
		data = append(data, e.Value)
	}
	if len(data) == 0 {
		t.Fatal("the capture holds no instance")
	}
	return data
}
