package instance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/cloudwego"
	"github.com/xds-bridge/xds-bridge/metadata/gozero"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/kratos"
	"github.com/xds-bridge/xds-bridge/metadata/plain"
	"github.com/xds-bridge/xds-bridge/metadata/springcloud"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A format is one plain format in one kind of registry.
type format struct {
	name, root, protocol string
	nodes                func(instance.Options) (*instance.ZooKeeper, error) // one of the two
	records              func(instance.Options) (*instance.Nacos, error)
}

// formats returns all of them.
func formats() []format {
	return []format{
		{name: "spring-cloud-zookeeper", root: "/services", protocol: "http", nodes: springcloud.NewZooKeeper},
		{name: "spring-cloud-nacos", protocol: "http", records: springcloud.NewNacos},
		{name: "kratos-zookeeper", root: "/microservices", protocol: "grpc", nodes: kratos.NewZooKeeper},
		{name: "kratos-nacos", protocol: "grpc", records: kratos.NewNacos},
		{name: "gozero-nacos", protocol: "grpc", records: gozero.NewNacos},
		{name: "hertz-zookeeper", root: "/", protocol: "http", nodes: cloudwego.NewZooKeeper(cloudwego.Hertz)},
		{name: "hertz-nacos", protocol: "http", records: cloudwego.NewNacos(cloudwego.Hertz)},
		{name: "kitex-zookeeper", root: "/", protocol: "thrift", nodes: cloudwego.NewZooKeeper(cloudwego.Kitex)},
		{name: "kitex-nacos", protocol: "thrift", records: cloudwego.NewNacos(cloudwego.Kitex)},
		{name: "plain-zookeeper", root: "/plain", protocol: "tcp", nodes: plain.NewZooKeeper},
		{name: "plain-nacos", protocol: "tcp", records: plain.NewNacos},
	}
}

// limit returns the limit of the metadata of an instance.
func (f format) limit() int {
	if f.nodes != nil {
		return 8192
	}
	return metadata.MaxNacosMetadata
}

// codec returns the codec of a format.
func (f format) codec(t testing.TB, o instance.Options) metadata.Codec {
	t.Helper()
	o.Root, o.Protocol = f.root, f.protocol
	if f.nodes != nil {
		z, err := f.nodes(o)
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	n, err := f.records(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// each runs a test for every format.
func each(t *testing.T, test func(t *testing.T, f format)) {
	t.Helper()
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

func marked() instance.Options {
	return instance.Options{Mark: metadata.NewMark("shop-migration", "mesh-out")}
}

// one is a mesh service without interfaces and with one endpoint.
func one(e registry.Endpoint) *registry.Service {
	return &registry.Service{Name: "greeter.shop.svc.cluster.local:8080", Application: "greeter", Endpoints: []registry.Endpoint{e}}
}

func encode(t testing.TB, c metadata.Codec, s *registry.Service) []registry.Entry {
	t.Helper()
	entries, err := c.Encode(s)
	if fails(err) {
		t.Fatal(err)
	}
	return entries
}

// fails reports whether an error means that no endpoint can be written.
func fails(err error) bool {
	left := registry.LeftOutBy(err)
	return left != nil && left.All == registry.Unwritable
}

// leftOut returns why a codec leaves out parts of a service, or all of it.
func leftOut(c metadata.Encoder, s *registry.Service) error {
	_, err := c.Encode(s)
	return err
}

// text returns entries in the form of the golden files, with the nodes that store them if
// there are any.
func text(t testing.TB, c metadata.Codec, entries []registry.Entry) string {
	t.Helper()
	var b strings.Builder
	for _, e := range entries {
		at := e.Group.String()
		if z, ok := c.(*instance.ZooKeeper); ok {
			parent, err := z.Parent(e.Group)
			if err != nil {
				t.Fatal(err)
			}
			node, _, err := z.Node(e)
			if err != nil {
				t.Fatal(err)
			}
			at = parent + "/" + node
		}
		fmt.Fprintf(&b, "%s\n  %s\n    %s\n", at, e.Key, e.Value)
	}
	return b.String()
}

// render returns services in the form of the golden files.
func render(services []*registry.Service, failures []metadata.DecodeError) string {
	var b strings.Builder
	for _, s := range services {
		fmt.Fprintf(&b, "%s application=%q %v\n", s.Name, s.Application, map[string]string(s.Attributes))
		for _, e := range s.Endpoints {
			fmt.Fprintf(&b, "  %s://%s %s weight=%d zone=%q instance=%q path=%q %v\n",
				e.Protocol, e.Address(), e.Health, e.Weight, e.Zone, e.Instance, e.Path, map[string]string(e.Attributes))
		}
	}
	for _, f := range failures {
		fmt.Fprintf(&b, "error: %v\n", f)
	}
	return b.String()
}

// golden compares text with a golden file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (make golden rewrites it)\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

// captured returns the entries that a codec finds in a captured registry.
func captured(t testing.TB, c metadata.Codec, capture string) []registry.Entry {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "captures", capture+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Nodes    []struct{ Path, Data string }
		Services []struct {
			Service, Group string
			Instances      []metadata.NacosInstance
		}
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	var entries []registry.Entry
	switch c := c.(type) {
	case *instance.ZooKeeper:
		for _, n := range all.Nodes {
			at := strings.LastIndexByte(n.Path, '/')
			if g, ok := c.Group(n.Path[:at]); ok && c.Named(n.Path[at+1:]) {
				e, _ := c.Entry(g, n.Path[at+1:], []byte(n.Data))
				entries = append(entries, e)
			}
		}
	case *instance.Nacos:
		for _, s := range all.Services {
			for _, in := range s.Instances {
				if g, ok := c.GroupOf("", s.Group, s.Service); ok {
					entries = append(entries, registry.Entry{Group: g, Key: in.Key(), Value: in.String()})
				}
			}
		}
	}
	return entries
}
