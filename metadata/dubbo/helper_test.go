package dubbo_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

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

func zookeeper(t testing.TB, o dubbo.Options) *dubbo.ZooKeeper {
	t.Helper()
	z, err := dubbo.NewZooKeeper(o)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func nacos(t testing.TB, o dubbo.Options) *dubbo.Nacos {
	t.Helper()
	n, err := dubbo.NewNacos(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
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

// text returns entries in the form of the golden files.
func text(entries []registry.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s\n  %s\n    %s\n", e.Group, e.Key, e.Value)
	}
	return b.String()
}

// render returns decoded services in the form of the golden files.
func render(services []*registry.Service, failures []metadata.DecodeError) string {
	var b strings.Builder
	for _, s := range services {
		fmt.Fprintf(&b, "%s application=%q %v\n", s.Name, s.Application, map[string]string(s.Attributes))
		for _, e := range s.Endpoints {
			fmt.Fprintf(&b, "  %s://%s %s weight=%d path=%q zone=%q %v\n",
				e.Protocol, e.Address(), e.Health, e.Weight, e.Path, e.Zone, map[string]string(e.Attributes))
		}
	}
	for _, f := range failures {
		fmt.Fprintf(&b, "error: %v\n", f)
	}
	return b.String()
}

// readCapture reads a real registration from testdata/captures.
func readCapture(t testing.TB, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "captures", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// zookeeperEntries returns the entries of a captured tree, through the layout.
func zookeeperEntries(t testing.TB, z *dubbo.ZooKeeper, name string) []registry.Entry {
	t.Helper()
	var tree struct{ Nodes []struct{ Path, Data string } }
	readCapture(t, name, &tree)
	var entries []registry.Entry
	for _, n := range tree.Nodes {
		i := strings.LastIndexByte(n.Path, '/')
		if g, ok := z.Group(n.Path[:i]); ok {
			e, _ := z.Entry(g, n.Path[i+1:], []byte(n.Data))
			entries = append(entries, e)
		}
	}
	return entries
}

// nacosEntries returns the entries of the captured services of this format.
func nacosEntries(t testing.TB, name string) []registry.Entry {
	t.Helper()
	var tree struct {
		Services []struct {
			Service, Group string
			Instances      []json.RawMessage
		}
	}
	readCapture(t, name, &tree)
	var entries []registry.Entry
	for _, s := range tree.Services {
		if !strings.HasPrefix(s.Service, "providers:") {
			continue
		}
		for i, raw := range s.Instances {
			entries = append(entries, registry.Entry{
				Group: registry.Group{Kind: dubbo.Kind, Group: s.Group, Name: s.Service},
				Key:   strconv.Itoa(i), Value: string(raw),
			})
		}
	}
	return entries
}

// greeter is a mesh service with all possible fields.
func greeter() *registry.Service {
	return &registry.Service{
		Name: "greeter.shop.svc.cluster.local:20880", Namespace: "shop", Path: registry.Path(metadata.Hop("mesh")),
		Interfaces: []registry.Interface{{Name: "api.Greeter"}, {Name: "api.Greeter", Version: "1.0.0", Group: "g1"}},
		Attributes: registry.Attributes{
			"meshClusterID": "outbound|20880||greeter.shop.svc.cluster.local",
			"meshHostAddr":  "greeter.shop.svc.cluster.local:20880",
		},
		Endpoints: []registry.Endpoint{
			{Host: "10.0.0.1", Port: 20880, Weight: 30, Zone: "region1/zone1/sub1", Attributes: registry.Attributes{"meshSubset": "v1"}},
			{Host: "10.0.0.2", Port: 30880, Weight: 1, Health: registry.Healthy},
			{Host: "10.0.0.3", Port: 20880, Weight: 1, Health: registry.Unhealthy},
			{Host: "10.0.0.4", Port: 20880, Weight: 1, Health: registry.Draining},
			{Host: "2001:db8::1", Port: 20880, Weight: 1},
			{Host: "greeter.example.com", Port: 20880, Weight: 1},
		},
	}
}

func marked() dubbo.Options {
	return dubbo.Options{Mark: metadata.NewMark("shop-migration", "mesh-to-zk")}
}
