package app

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// notes is what the page says of each format and its codec cannot.
var notes = map[string]string{
	"dubbo-interface": "Java Dubbo 2.7 and 3, dubbo-go. Needs a service key or a rule with an interface. A provider with a tag is left out, unless `tags: true` carries tags: its tag hides it from consumers that ask for none.",
	"dubbo-application": "Java Dubbo 3 and dubbo-go 3 with application-level discovery, beside `dubbo-interface` if wanted: consumers see no provider twice. " +
		"The application is what the first rule of `names` with a `service` says, or else the application's name, for a mesh the Kubernetes service's. " +
		"A word in a mapping is added by compare-and-swap and never removed. What a revision provides settles for `guard.settle` before it goes. " +
		"Read are instances with remote storage, and those of Dubbo 3.3 that keep what they provide to themselves and speak tri: they are asked. " +
		"Others are skipped with the remedy: `dubbo.application.metadata-type=remote`, or both levels (`register-mode=all` of Java, `registry-type: all` of dubbo-go) and `dubbo-interface`. While an instance is registered whose document is missing, denied or not told, what its application provides is unknown, with the reason and since when in the status: nothing of it is taken back, and other applications go on. " +
		"Each interface is a service of its own; one that two applications provide, or one application in two formats, is one host of a mesh with the endpoints of both. " +
		"Shares `/services` with Spring Cloud by default, where neither bears the other: give one of them another root.",
	"spring-cloud": "Spring Cloud Zookeeper and Spring Cloud Alibaba. An http port is the instance's own, a gRPC port of the same instance is `gRPC_port`; " +
		"other protocols are left out. In Nacos an instance without `preserved.register.source=SPRING_CLOUD` is skipped with that reason: read it as `plain`.",
	"kratos": "Kratos v2. In ZooKeeper all ports of an instance are one node; in Nacos each scheme is a service `<name>.<scheme>`. Only grpc and http are written.",
	"gozero": "go-zero's zrpc in Nacos; it has no client for ZooKeeper. `gRPC_port` takes the place of the port. Consumers look at neither weight nor health.",
	"hertz": "Services lie at the top of ZooKeeper: names that are the roots of other formats are refused, and folders without a node `host:port` are passed over. " +
		"In ZooKeeper the mark stands beside the tags; in Nacos it is one more tag, and a consumer that asks for tags finds none of ours, since it wants exactly these. Only http is written.",
	"kitex": "As hertz, for every protocol but http. A weight of 0 gets no calls and counts as disabled. Hertz and Kitex in one ZooKeeper need a `service` pattern each.",
	"plain": "Hosts and ports for anything else: the names of the nodes are the addresses. What is read may have any data. " +
		"The form is the bridge's own. Go kit's `sd/zk`, which keeps an address as the data of a node of another name, does not share it.",
}

// peers are the modules of the frameworks' own registries by which integration/peers
// writes and reads a format, each after its framework.
var peers = map[string][]string{
	"gozero": {"github.com/zeromicro/go-zero", "github.com/zeromicro/zero-contrib/zrpc/registry/nacos"},
	"hertz":  {"github.com/cloudwego/hertz", "github.com/hertz-contrib/registry/zookeeper", "github.com/hertz-contrib/registry/nacos/v2"},
	"kitex":  {"github.com/cloudwego/kitex", "github.com/kitex-contrib/registry-zookeeper", "github.com/kitex-contrib/registry-nacos/v2"},
	"kratos": {"github.com/go-kratos/kratos/v2", "github.com/go-kratos/kratos/contrib/registry/zookeeper/v2", "github.com/go-kratos/kratos/contrib/registry/nacos/v2"},
}

// writePeers writes which versions of the framework's own registries a format was
// tried with.
func writePeers(t *testing.T, b *strings.Builder, name string) {
	t.Helper()
	required, err := os.ReadFile("../../integration/peers/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, module := range peers[name] {
		version := regexp.MustCompile(`(?m)^\s` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(required)
		if version == nil {
			t.Fatalf("integration/peers does not require %s", module)
		}
		all = append(all, fmt.Sprintf("`%s` %s", module, version[1]))
	}
	if len(all) > 0 {
		fmt.Fprintf(b, "\nTried with the framework's own registries: %s.\n", strings.Join(all, ", "))
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

// TestFormatsPage keeps docs/formats.md as the codecs have it.
func TestFormatsPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(pageHead)
	for _, name := range slices.Sorted(maps.Keys(forms())) {
		if notes[name] == "" {
			t.Errorf("no note on %s", name)
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, notes[name])
		writePeers(t, &b, name)
		for _, at := range []string{"zk", "n"} {
			writeForm(t, &b, name, at)
		}
	}
	const file = "../../docs/formats.md"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != b.String() {
		t.Errorf("%s is stale (%v); run make golden", file, err)
	}
}

// writeForm writes what a format is in one kind of registry.
func writeForm(t *testing.T, b *strings.Builder, name, at string) {
	t.Helper()
	u, builder := pageUse(t, name, at)
	kind := map[string]string{"zk": "ZooKeeper", "n": "Nacos"}[at]
	var c metadata.Codec
	var err error
	if at == "zk" && forms()[name].zookeeper != nil {
		c, err = builder.zookeeperForm(u)
	} else if at == "n" && forms()[name].nacos != nil {
		c, err = builder.nacosForm(u)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		fmt.Fprintf(b, "\n%s: has no form there.\n", kind)
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
	fmt.Fprintf(b, "```\n\nRead back it is without: %s.\n", strings.Join(lost(services), ", "))
}

// stored returns where an entry lies and what there is.
func stored(t *testing.T, c metadata.Codec, e registry.Entry) (where, value string) {
	t.Helper()
	switch f := c.(type) {
	case zookeeper.MultiPath:
		if path, word := f.Word(e); path != "" {
			return path, "…," + word
		}
		if name, data, err := f.Node(e); err == nil && strings.HasPrefix(name, "/") {
			return name, string(data)
		}
	case nacos.MultiPath:
		if at, word := f.Config(e); word != "" {
			return "configuration " + at.ID + ", group " + at.Group, "…," + word
		} else if at.ID != "" {
			return "configuration " + at.ID + ", group " + at.Group, e.Value
		}
	}
	z, ok := c.(zookeeperFormat)
	if !ok {
		return "service " + e.Group.Name + ", group " + e.Group.Group, e.Value
	}
	folder, err := z.Folder(e.Group)
	if err != nil {
		t.Fatal(err)
	}
	node, data, err := z.Node(e)
	if err != nil {
		t.Fatal(err)
	}
	return folder + "/" + node, string(data)
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
		return []string{"what stands elsewhere"}
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
	miss(e.Health == registry.Degraded, "health (what is written is healthy)")
	miss(e.PortName == "main", "port name")
	miss(attribute("team") == "blue", "attributes")
	miss(attribute("version") == "v2", "an attribute `version`")
	miss(attribute("meshSubset") == "v2", "subset (`subsets: true` of the mesh keeps it)")
	return out
}

// pageUse is a format of a bridge from a mesh to a registry.
func pageUse(t *testing.T, name, at string) (use, *builder) {
	t.Helper()
	text := fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: "istiod:15010" } }
  zk: { zookeeper: { servers: ["zk:2181"] } }
  n: { nacos: { servers: ["http://n:8848"] } }
bridges: [{ name: out, from: mesh, to: %s, formats: [%s] }]
`, at, name)
	if at == "zk" && forms()[name].zookeeper == nil {
		return use{}, nil
	}
	cfg, err := config.Parse("page.yaml", []byte(text), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{cfg: cfg, process: &process{log: slog.New(slog.DiscardHandler)}}
	return use{bridge: cfg.Bridges[0], format: cfg.Bridges[0].Formats[0], registry: at}, b
}

const pageHead = `# Formats

Generated by ` + "`make golden`" + ` from the codecs; do not edit. A bridge names any number of them in ` + "`formats`" + `;
their options are in the [configuration reference](reference/config.md).

Each example is one endpoint of a mesh host ` + "`orders.shop.svc.cluster.local:8080`" + ` that provides ` + "`api.Orders`" + ` 1.0, of
weight 3 and locality ` + "`eu-1/eu-1a/r7`" + `. ` + "`xdsb`" + ` is the mark by which a bridge knows its entries; what bears no mark is
another's and is never touched.

## Names

Dubbo's formats name services by service keys. All others have plain names: what the first rule of
` + "`bridges[].names`" + ` with a ` + "`service`" + ` says, or else the name of the application, which for a mesh is the name of the
Kubernetes service. The format's ` + "`service`" + ` pattern is put around it. Read back, the pattern is taken off again.

` + "```yaml" + `
bridges:
  - name: mesh-to-nacos
    from: mesh
    to: nacos
    formats: [dubbo-interface, spring-cloud, kratos, { format: hertz, group: HERTZ }]
    names:
      - { host: "orders.shop.svc.cluster.local", port: 8080, service: orders }
      - { host: "*.shop.svc.cluster.local", service: "shop-*" }     # hosts that publish no service key are exported too
` + "```" + `

Two services of a mesh with one name, such as one of each of two namespaces: the second is refused whole, and status
tells of it, unless the format says ` + "`join: true`" + `. Of a registry all that has one name is put together.

## How a change is written

Who reads a format decides how a changed entry takes the place of the one before, so that running consumers see it and
fail no call ([decision 35](adr/0035-how-an-entry-is-replaced-follows-who-reads-it.md)). In ZooKeeper:

| | a change is | because consumers |
|---|---|---|
| dubbo-interface | another node; the one before goes three seconds later | know nodes by their names, and dubbo-go reads the end of one before the beginning of the other |
| kratos | the node deleted and made anew, in one transaction | watch the names of the nodes alone |
| all others | the data of the node | watch the data, or ask again and again |

In Nacos a service is published as a whole: consumers have the list before or the one after. Tests change weights, zones and
metadata under dubbo-go 3.3.1 and Kratos 2.8 in both, where a stand-in watches as Kratos' own registries do.

## Where two formats meet

One entry of another format costs real consumers a whole service, or keeps them from starting. So formats that would
meet in one folder of ZooKeeper or one service of Nacos are refused by ` + "`xds-bridge validate`" + `, and a folder or service
in which an entry of another format stands takes nothing new; ` + "`xds-bridge why`" + ` names it. Entries that cannot be read
are skipped one by one, with their reasons in status, and cost their neighbours nothing.

Measured with Java Dubbo 3.2 and 3.3, dubbo-go 3.3, Spring Cloud 2023 and the registries of Kratos, Hertz and Kitex; the bridge writes
none of these:

| what stands there | who suffers |
|---|---|
| ZooKeeper, ` + "`" + `/dubbo/<interface>/providers` + "`" + `: a name that is no URL | Java Dubbo: all providers lost at the subscription |
| ZooKeeper, ` + "`" + `/services/<application>` + "`" + `: garbage, an empty node, or one of Spring Cloud, beside Dubbo's | Java Dubbo does not start; dubbo-go loses the application |
| the same folder: garbage or a node of Dubbo beside Spring Cloud's | Spring Cloud: every query fails |
| an instance without ` + "`" + `payload.@class` + "`" + `, or without a payload | Java Dubbo does not start; Spring Cloud: every query fails |
| a document of a revision without ` + "`" + `params` + "`" + ` | Java Dubbo 3.3 does not start, 3.2 has no provider |
| an instance before its document | Java Dubbo waits and asks again |
| Nacos, ` + "`" + `providers:<interface>:…` + "`" + `: an instance without ` + "`" + `protocol` + "`" + ` | Java Dubbo: all providers lost |
| Nacos, an application: an instance of Spring Cloud, or without metadata, beside Dubbo's | Java Dubbo bears it |
| ZooKeeper, Hertz and Kitex: a node that is no JSON or empty; for Kitex a name that is no ` + "`" + `host:port` + "`" + ` | both: the service cannot be resolved |
| ZooKeeper, Kratos: a node that is no JSON | Kratos: neither asked for nor watched |
| a node that is made empty and filled later | whoever reads it in between |

Bridges may share a place, the same format in the same folder or group. It is read once for all of them, so that
they have to agree on the protocol of what does not say its own, and on ` + "`metadataRoot`" + `.

## Weights

Inside the bridge a weight is a share, in hundredths of the normal one. Formats with whole numbers round, and never to 0. A
provider of Dubbo whose weight is 0 keeps it in Dubbo's formats, and has the least weight in all others.

| | normal | least | most | absent means | 0 means |
|---|---|---|---|---|---|
| istio | 1 | 1 | 2^32-1 | 1 | as absent |
| dubbo-interface, dubbo-application | 100 | 0 | 1,000,000 | 100 | no calls while others have a weight; as absent where dubbo-go says so of itself |
| spring-cloud, gozero, plain in Nacos | 1.0 | 0.01 | 10,000 | 1.0 | disabled |
| kratos | 100 | 1 | 1,000,000 (Nacos: 10,000) | 100 | disabled |
| hertz | 10 | 1 | 1,000,000 (Nacos: 10,000) | 10 | as absent (Nacos: disabled) |
| kitex | 10 | 1 | 1,000,000 (Nacos: 10,000) | disabled | disabled |

Dubbo's weight is always written, because Java looks at no weights where its first provider has none. At application level in
Nacos the instance has it too, of at least 1 and at most 10,000, because dubbo-go from 3.3.1 on looks there; in ZooKeeper it looks at
no weights at that level. An instance that has 0 as its weight in Nacos itself, as an operator may set it there, is disabled in every
format. Kratos' consumers that watch a service see the weight in the metadata alone. Spring Cloud has no
weight in ZooKeeper; the mesh's own stands in ` + "`endPointWeight`" + ` in every format.

## Metadata

An instance may have 1,024 bytes of keys and values in Nacos and 8,192 in ZooKeeper (Dubbo: 2,048, all of it in the
name of a node). What has no room is trimmed, and named in status, in this order, the last first: what the format
itself needs and the mark, which are never trimmed; version and group; the mesh's weight and locality; region and zone;
the instance; subset, host and cluster of the mesh; the tag; all other keys by name. ` + "`bridges[].metadata`" + ` says which
keys pass at all, what they are called and which values they have. A key of a user that consumers of the other format
read something else into, such as ` + "`weight`" + ` for Kratos, is left out with that reason in status.
What a registrar tells its own registry (` + "`timestamp`, `pid`, `bind.*`, `qos.enable`" + ` of Dubbo; ` + "`preserved.*`" + ` in Nacos), keys without a value
and ` + "`tlsMode`" + ` of a mesh's endpoints are not carried.

Endpoints that are unhealthy, draining or disabled are not written in any format. What is written is healthy.
`
