package kind

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// ownRegistries are the modules of the frameworks' own registries by which integration/applications
// writes and reads a format, each after its framework.
var ownRegistries = map[string][]string{
	"gozero": {"github.com/zeromicro/go-zero", "github.com/zeromicro/zero-contrib/zrpc/registry/nacos"},
	"hertz":  {"github.com/cloudwego/hertz", "github.com/hertz-contrib/registry/zookeeper", "github.com/hertz-contrib/registry/nacos/v2"},
	"kitex":  {"github.com/cloudwego/kitex", "github.com/kitex-contrib/registry-zookeeper", "github.com/kitex-contrib/registry-nacos/v2"},
	"kratos": {"github.com/go-kratos/kratos/v2", "github.com/go-kratos/kratos/contrib/registry/zookeeper/v2", "github.com/go-kratos/kratos/contrib/registry/nacos/v2"},
}

// writeOwnRegistries writes which versions of the framework's own registries a format was
// tried with.
func writeOwnRegistries(t *testing.T, b *strings.Builder, name string) {
	t.Helper()
	required, err := os.ReadFile("../../integration/applications/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, module := range ownRegistries[name] {
		version := regexp.MustCompile(`(?m)^\s` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(required)
		if version == nil {
			t.Fatalf("integration/applications does not require %s", module)
		}
		all = append(all, fmt.Sprintf("`%s` %s", module, version[1]))
	}
	if len(all) > 0 {
		fmt.Fprintf(b, "\nTested with the framework's own registries: %s.\n", strings.Join(all, ", "))
	}
}

// sample is a service with everything that a service can have.
func sample() *registry.Service {
	return &registry.Service{
		Name: "orders.shop.svc.cluster.local:8080", Namespace: "shop", Application: "orders",
		Interfaces: []registry.Interface{{Name: "api.Orders", Version: "1.0"}},
		Attributes: registry.Attributes{"meshHostAddr": "orders.shop.svc.cluster.local:8080", "team": "blue"},
		Endpoints: []registry.Endpoint{{
			Host: "10.0.0.1", Port: 8080, Weight: 3, Zone: "eu-1/eu-1a/r7", Instance: "pod-1", PortName: "main",
			Health: registry.Degraded, Attributes: registry.Attributes{"version": "v2", "meshSubset": "v2"},
		}},
	}
}

// TestFormatsPage keeps the examples of docs/formats.md as the codecs have them. What the
// page says of each format is written by hand.
func TestFormatsPage(t *testing.T) {
	t.Parallel()
	const file = "../../docs/formats.md"
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(have)
	for _, name := range slices.Sorted(slices.Values(formats.Names())) {
		head := "\n## " + name + "\n"
		before, section, found := strings.Cut(page, head)
		if !found {
			t.Fatalf("%s has no section %s", file, name)
		}
		section, after, more := strings.Cut(section, "\n## ")
		text, _, _ := strings.Cut(section, "\nZooKeeper:")
		text, _, _ = strings.Cut(text, "\nTested with the framework's own registries:")
		var b strings.Builder
		b.WriteString(before + head + text)
		writeOwnRegistries(t, &b, name)
		for _, at := range []string{"zk", "n"} {
			writeForm(t, &b, name, at)
		}
		if more {
			b.WriteString("\n## " + after)
		}
		page = b.String()
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if page != string(have) {
		t.Errorf("%s is stale; run make golden", file)
	}
}

// writeForm writes what a format is in one kind of registry.
func writeForm(t *testing.T, b *strings.Builder, name, at string) {
	t.Helper()
	u, m := pageUse(t, name, at)
	kind := map[string]string{"zk": "ZooKeeper", "n": "Nacos"}[at]
	var c metadata.Codec
	var err error
	if at == "zk" && has(name, format.ZooKeeper) {
		c, err = projection.NewCodec[zookeeperFormat](m, u, format.ZooKeeper)
	} else if at == "n" && has(name, format.Nacos) {
		c, err = projection.NewCodec[nacosFormat](m, u, format.Nacos)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		fmt.Fprintf(b, "\n%s: not supported.\n", kind)
		return
	}
	entries, err := c.Encode(sample())
	if _, beside := errors.AsType[*registry.LeftOut](err); err != nil && !beside {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "\n%s:\n\n```\n", kind)
	for _, e := range entries {
		where, value := stored(t, c, e)
		fmt.Fprintln(b, strings.TrimRight(where+"\n  "+value, " \n"))
	}
	services, _ := c.Decode(entries, entries)
	fmt.Fprintf(b, "```\n\nLost when it is read back: %s.\n", strings.Join(lost(services), ", "))
}

// stored returns where an entry lies and what there is.
func stored(t *testing.T, c metadata.Codec, e registry.Entry) (where, value string) {
	t.Helper()
	switch f := c.(type) {
	case zookeeper.MultiPath:
		if path, value := f.Element(e); path != "" {
			return path, "…," + value
		}
		if name, data, err := f.Node(e); err == nil && strings.HasPrefix(name, "/") {
			return name, string(data)
		}
	case nacos.MultiPath:
		if at, value := f.Config(e); value != "" {
			return "configuration " + at.ID + ", group " + at.Group, "…," + value
		} else if at.ID != "" {
			return "configuration " + at.ID + ", group " + at.Group, e.Value
		}
	}
	z, ok := c.(zookeeperFormat)
	if !ok {
		return "service " + e.Group.Name + ", group " + e.Group.Group, e.Value
	}
	parent, err := z.Parent(e.Group)
	if err != nil {
		t.Fatal(err)
	}
	node, data, err := z.Node(e)
	if err != nil {
		t.Fatal(err)
	}
	return parent + "/" + node, string(data)
}

// lost names what of the sample did not come back.
func lost(back []*registry.Service) []string {
	var out []string
	miss := func(there bool, what string) {
		if !there {
			out = append(out, what)
		}
	}
	if len(back) != 1 || len(back[0].Endpoints) != 1 {
		return []string{"what is elsewhere"}
	}
	s, e := back[0], back[0].Endpoints[0]
	attribute := func(key string) string {
		if v := e.Attributes[key]; v != "" {
			return v
		}
		return s.Attributes[key]
	}
	want := sample()
	miss(s.Application == want.Application, "application")
	miss(len(s.Interfaces) > 0, "interfaces")
	miss(s.Namespace == want.Namespace, "namespace")
	miss(e.Weight == 3, "weight")
	miss(e.Zone == want.Endpoints[0].Zone, "locality")
	miss(e.Instance == "pod-1", "instance")
	miss(e.Health == registry.Degraded, "health (all written endpoints are healthy)")
	miss(e.PortName == "main", "port name")
	miss(attribute("team") == "blue", "attributes")
	miss(attribute("version") == "v2", "an attribute `version`")
	miss(attribute("meshSubset") == "v2", "subset (`subsets: true` of the mesh keeps it)")
	return out
}

// pageUse is a format of a bridge from a mesh to a registry.
func pageUse(t *testing.T, name, at string) (config.Use, projection.Maker) {
	t.Helper()
	text := fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: "istiod:15010" } }
  zk: { zookeeper: { servers: ["zk:2181"] } }
  n: { nacos: { servers: ["http://n:8848"] } }
bridges: [{ name: out, from: mesh, to: %s, formats: [%s] }]
`, at, name)
	if at == "zk" && !has(name, format.ZooKeeper) {
		return config.Use{}, projection.Maker{}
	}
	cfg, err := config.Parse("page.yaml", []byte(text), unset)
	if err != nil {
		t.Fatal(err)
	}
	return config.Use{Bridge: cfg.Bridges[0], Format: cfg.Bridges[0].Formats[0], Registry: at}, projection.Maker{Config: cfg}
}
