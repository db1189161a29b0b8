package dubbo_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

// odd is a service whose endpoints would make entries that hide a service from real
// consumers.
func odd() *registry.Service {
	s := greeter()
	hostile := registry.Attributes{
		"protocol": "", "path": "/", "interface": "x", "category": "consumers", "params": "x", "@class": "x", "enabled": "false",
		"dubbo.metadata.revision": "0", "dubbo.metadata.storage-type": "local", "dubbo.endpoints": "[", "%zz": "\x00", "": "x",
		"xdsb": "!", "dubbo.tag": "gray",
	}
	for i, e := range []registry.Endpoint{
		{Host: "::1", Port: 1},
		{Host: "host.example", Port: 65535, Protocol: "dubbo"},
		{Host: "10.0.0.9", Port: 2, Weight: 4294967295, Protocol: "no scheme"},
		{Host: "10.0.0.8", Port: 3, Attributes: hostile},
	} {
		e.Instance = strings.Repeat("i", i)
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// TestEncode_InvalidEntries shows that real consumers can read each entry of any service
// together with all others.
func TestEncode_InvalidEntries(t *testing.T) {
	for name, c := range map[string]metadata.Codec{
		"interface, ZooKeeper": zookeeper(t, marked()), "interface, Nacos": nacos(t, marked()),
		"application, ZooKeeper": zookeeperApp(t, marked()), "application, Nacos": nacosApp(t, marked()),
	} {
		t.Run(name, func(t *testing.T) {
			entries := encode(t, c, odd())
			for _, e := range entries {
				if registry.IsEndpoint(e.Key) {
					readable(t, c, e)
				}
			}
			if _, failures := c.Decode(entries, entries); len(failures) != 0 {
				t.Errorf("Decode = %v, want no error", failures)
			}
		})
	}
}

// readable fails the test if real consumers cannot read an entry.
func readable(t *testing.T, c metadata.Codec, e registry.Entry) {
	t.Helper()
	switch c := c.(type) {
	case *dubbo.ZooKeeper:
		name, _, err := c.Node(e)
		if err != nil {
			t.Fatal(err)
		}
		text, err := url.QueryUnescape(name)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme == "" || u.Port() == "" || u.Port() == "0" || u.Path != "/api.Greeter" || u.Query().Get("category") != "providers" || u.Query().Has("enabled") {
			t.Errorf("%s: %v", text, err)
		}
	case *dubbo.Nacos:
		in := record(t, e)
		if in.Metadata["protocol"] == "" || in.Metadata["path"] != "api.Greeter" || in.Metadata["interface"] != "api.Greeter" || in.Metadata["category"] != "providers" {
			t.Errorf("%s", e.Value)
		}
	case *dubbo.ZooKeeperApp:
		var node struct {
			Name, ID, Address string
			Port              int
			Payload           struct {
				Class    string `json:"@class"`
				Metadata map[string]string
			}
		}
		_, data, err := c.Node(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &node); err != nil || node.Name == "" || node.ID == "" || node.Address == "" || node.Port == 0 ||
			node.Payload.Class != "org.apache.dubbo.registry.zookeeper.ZookeeperInstance" {
			t.Errorf("%s: %v", data, err)
		}
		applies(t, node.Payload.Metadata)
	case *dubbo.NacosApp:
		applies(t, record(t, e).Metadata)
	}
}

func record(t *testing.T, e registry.Entry) metadata.NacosInstance {
	t.Helper()
	in, err := metadata.ParseNacosInstance(e.Value)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Check(); err != nil || !in.Enabled || !in.Healthy || in.Weight <= 0 {
		t.Errorf("%s: %v", e.Value, err)
	}
	return in
}

// applies fails the test if consumers by application do not use an instance.
func applies(t *testing.T, meta map[string]string) {
	t.Helper()
	var endpoints []struct{ Port int }
	err := json.Unmarshal([]byte(meta["dubbo.endpoints"]), &endpoints)
	if err != nil || len(endpoints) == 0 || len(meta["dubbo.metadata.revision"]) < 20 || meta["dubbo.metadata.storage-type"] != "remote" {
		t.Errorf("%v: %v", meta, err)
	}
}

// TestDecode_InvalidRecord is the counterpart of TestDecode_InvalidEntry and
// TestDecodeApp_InvalidInstance for Nacos.
func TestDecode_InvalidRecord(t *testing.T) {
	for name, test := range map[string]struct {
		codec metadata.Codec
		bad   string // the metadata
	}{
		"interface: no protocol (n03)":        {codec: nacos(t, dubbo.Options{}), bad: `{"path":"api.Greeter"}`},
		"interface: no metadata (n05)":        {codec: nacos(t, dubbo.Options{}), bad: `{}`},
		"application: Spring Cloud's (n24)":   {codec: nacosApp(t, dubbo.Options{}), bad: `{"preserved.register.source":"SPRING_CLOUD"}`},
		"application: no metadata (n25)":      {codec: nacosApp(t, dubbo.Options{}), bad: `{}`},
		"application: endpoints are not JSON": {codec: nacosApp(t, dubbo.Options{}), bad: `{"dubbo.metadata.revision":"x","dubbo.metadata.storage-type":"remote","dubbo.endpoints":"["}`},
		"application: an unknown revision":    {codec: nacosApp(t, dubbo.Options{}), bad: `{"dubbo.metadata.revision":"x","dubbo.metadata.storage-type":"remote"}`},
	} {
		t.Run(name, func(t *testing.T) {
			all := encode(t, test.codec, one(registry.Endpoint{Host: "10.0.0.1", Port: 1}))
			bad := registry.Entry{Group: all[0].Group, Key: "bad", Value: `{"ip":"10.0.0.2","port":1,"weight":1,"healthy":true,"enabled":true,"metadata":` + test.bad + `}`}
			services, failures := test.codec.Decode(append([]registry.Entry{bad}, all...), all)
			if len(services) != 1 || len(services[0].Endpoints) != 1 || services[0].Endpoints[0].Host != "10.0.0.1" {
				t.Errorf("the good one is lost: %s", render(services, failures))
			}
			if len(failures) != 1 || failures[0].Entry != bad {
				t.Errorf("failures: %v", failures)
			}
		})
	}
}
