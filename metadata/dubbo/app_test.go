package dubbo_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/registry"
)

func zookeeperApp(t testing.TB, o dubbo.Options) *dubbo.ZooKeeperApp {
	t.Helper()
	z, err := dubbo.NewZooKeeperApp(o)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func nacosApp(t testing.TB, o dubbo.Options) *dubbo.NacosApp {
	t.Helper()
	n, err := dubbo.NewNacosApp(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// capturedApps returns the instances of a captured tree, and their dependencies in the
// tree.
func capturedApps(t testing.TB, z *dubbo.ZooKeeperApp, name string) (entries, extras []registry.Entry) {
	t.Helper()
	var tree struct{ Nodes []struct{ Path, Data string } }
	readCapture(t, name, &tree)
	data := make(map[string]string)
	for _, n := range tree.Nodes {
		data[n.Path] = n.Data
		i := strings.LastIndexByte(n.Path, '/')
		if g, ok := z.Group(n.Path[:i]); ok {
			e, _ := z.Entry(g, n.Path[i+1:], []byte(n.Data))
			entries = append(entries, e)
		}
	}
	for _, ref := range z.Dependencies(entries) {
		for _, p := range z.Places(ref) {
			if text := data[p]; text != "" {
				extras = append(extras, registry.Entry{Group: ref.Group, Key: ref.Key, Value: text})
			}
		}
	}
	return entries, extras
}

// capturedServices returns the instances of captured services that are applications, and
// their dependencies.
func capturedServices(t testing.TB, n *dubbo.NacosApp, name string) (entries, extras []registry.Entry) {
	t.Helper()
	var tree struct {
		Services []struct {
			Service, Group string
			Instances      []json.RawMessage
		}
		Configs []struct{ DataID, Group, Content string }
	}
	readCapture(t, name, &tree)
	for _, s := range tree.Services {
		g, ok := n.GroupOf("", s.Group, s.Service)
		if !ok {
			continue
		}
		for _, raw := range s.Instances {
			in, err := metadata.ParseNacosInstance(string(raw))
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, registry.Entry{Group: g, Key: in.Key(), Value: in.String()})
		}
	}
	for _, ref := range n.Dependencies(entries) {
		at, _ := n.Config(registry.Entry{Group: ref.Group, Key: ref.Key})
		for _, c := range tree.Configs {
			if at.ID != "" && c.DataID == at.ID && c.Group == at.Group {
				extras = append(extras, registry.Entry{Group: ref.Group, Key: ref.Key, Value: c.Content})
			}
		}
	}
	return entries, extras
}

func TestGoldenEncodeApplications(t *testing.T) {
	ruled := marked()
	ruled.Names = []format.Name{{Host: "*.other.svc", Service: "no"}, {Host: "*.shop.svc.cluster.local", Service: "shop-*"}}
	for name, c := range map[string]metadata.Codec{
		"application-zookeeper":       zookeeperApp(t, marked()),
		"application-zookeeper-rules": zookeeperApp(t, ruled),
		"application-nacos":           nacosApp(t, marked()),
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "encode-"+name, text(encode(t, c, greeter())))
			if again := encode(t, c, greeter()); text(again) != text(encode(t, c, greeter())) {
				t.Error("two replicas write different bytes")
			}
		})
	}
}

func TestDecodeApp_Golden(t *testing.T) {
	for _, name := range []string{
		"zk-java335-instance-remote-provider", "zk-java335-instance-local-provider", "zk-java335-instance-local-provider+consumer",
		"zk-dubbogo332-all-remote-provider", "zk-java335-all-local-version-group",
		"nacos-java335-all-remote-version-group", "nacos-java335-instance-local-provider",
	} {
		t.Run(name, func(t *testing.T) {
			var c metadata.Codec
			var entries, extras []registry.Entry
			if strings.HasPrefix(name, "zk-") {
				z := zookeeperApp(t, dubbo.Options{})
				c = z
				entries, extras = capturedApps(t, z, name)
			} else {
				n := nacosApp(t, dubbo.Options{})
				c = n
				entries, extras = capturedServices(t, n, name)
			}
			services, failures := c.Decode(entries, extras)
			var dependencies strings.Builder
			for _, ref := range c.Dependencies(entries) {
				dependencies.WriteString("depends on " + ref.Key + "\n")
			}
			golden(t, "decode-application-"+name, dependencies.String()+render(services, failures))
		})
	}
}

// app returns a valid instance of an application and its document.
func app() (instance, report registry.Entry) {
	g := registry.Group{Kind: dubbo.KindApplication, Namespace: "/services", Name: "shop"}
	return registry.Entry{Group: g, Key: "10.0.0.1:20000", Value: `{"name":"shop","id":"10.0.0.1:20000","address":"10.0.0.1","port":20000,` +
			`"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"10.0.0.1:20000","name":"shop","metadata":{` +
			`"dubbo.metadata.revision":"r1","dubbo.metadata.storage-type":"remote"}}}`},
		registry.Entry{Group: g, Key: "#metadata/r1", Value: `{"app":"shop","revision":"r1","services":{"api.Greeter:tri":` +
			`{"name":"api.Greeter","path":"api.Greeter","protocol":"tri","params":{}}}}`}
}

func before(s, sep string) string {
	s, _, _ = strings.Cut(s, sep)
	return s
}

func TestDecodeApp_InvalidInstance(t *testing.T) {
	good, report := app()
	second := strings.ReplaceAll(good.Value, "10.0.0.1", "10.0.0.2")
	z := zookeeperApp(t, dubbo.Options{})
	for name, tt := range map[string]struct {
		value  string
		extras []registry.Entry
	}{
		"garbage":              {value: "garbage"},
		"empty":                {value: ""},
		"Spring Cloud's":       {value: strings.Replace(second, "apache.dubbo.registry.zookeeper", "springframework.cloud.zookeeper.discovery", 1)},
		"without a class":      {value: strings.Replace(second, `"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance",`, "", 1)},
		"without a payload":    {value: before(second, `,"payload"`) + `,"payload":null}`},
		"port 0":               {value: strings.Replace(second, `"port":20000`, `"port":0`, 1)},
		"without a revision":   {value: strings.Replace(second, `"dubbo.metadata.revision":"r1",`, "", 1)},
		"without its document": {value: strings.Replace(second, `"r1"`, `"r2"`, 1)},
		"local, and says not":  {value: strings.Replace(second, `"remote"`, `"local"`, 1)},
		"endpoints not JSON":   {value: strings.Replace(second, `"dubbo.metadata.revision"`, `"dubbo.endpoints":"[","dubbo.metadata.revision"`, 1)},
		"of a broken document": {
			value:  strings.Replace(second, `"r1"`, `"r2"`, 1),
			extras: []registry.Entry{{Group: good.Group, Key: "#metadata/r2", Value: "{"}},
		},
		"of a document without a path": {
			value:  strings.Replace(second, `"r1"`, `"r2"`, 1),
			extras: []registry.Entry{{Group: good.Group, Key: "#metadata/r2", Value: strings.Replace(report.Value, `"path":"api.Greeter",`, "", 1)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := registry.Entry{Group: good.Group, Key: "bad", Value: tt.value}
			services, failures := z.Decode([]registry.Entry{bad, good}, append(tt.extras, report))
			if len(services) != 1 || len(services[0].Endpoints) != 1 || services[0].Endpoints[0].Host != "10.0.0.1" {
				t.Errorf("the good one is lost: %s", render(services, failures))
			}
			if len(failures) != 1 || failures[0].Entry != bad {
				t.Errorf("failures: %v", failures)
			}
		})
	}
}

func TestEncodeApp_Golden(t *testing.T) {
	good, report := app()
	z := zookeeperApp(t, dubbo.Options{})
	t.Run("a document without params is read, though Java does not write one", func(t *testing.T) {
		report := report
		report.Value = strings.Replace(report.Value, `,"params":{}`, "", 1)
		if services, failures := z.Decode([]registry.Entry{good}, []registry.Entry{report}); len(services) != 1 || len(failures) != 0 {
			t.Errorf("Decode = %s, want one service", render(services, failures))
		}
	})
	t.Run("an instance with a port of each protocol", func(t *testing.T) {
		good, report := good, report
		good.Value = strings.Replace(good.Value, `"dubbo.metadata.revision"`,
			`"dubbo.endpoints":"[{\"port\":20001,\"protocol\":\"dubbo\"},{\"port\":20002,\"protocol\":\"tri\"}]","dubbo.metadata.revision"`, 1)
		report.Value = strings.Replace(report.Value, `"services":{`,
			`"services":{"api.Greeter:dubbo":{"name":"api.Greeter","path":"api.Greeter","protocol":"dubbo","params":{"weight":"30"}},`, 1)
		services, failures := z.Decode([]registry.Entry{good}, []registry.Entry{report})
		if len(services) != 1 || len(failures) != 0 || len(services[0].Endpoints) != 2 {
			t.Fatalf("Decode = %s, want one service with two endpoints", render(services, failures))
		}
		first, second := services[0].Endpoints[0], services[0].Endpoints[1]
		if first.Port != 20001 || first.Protocol != "dubbo" || first.Weight != 30 || second.Port != 20002 || second.Weight != 100 ||
			first.Instance == "" || first.Instance != second.Instance {
			t.Errorf("Decode = %s, want ports 20001 and 20002 of one instance, weights 30 and 100", render(services, nil))
		}
	})
	t.Run("a consumer is not a provider", func(t *testing.T) {
		good := good
		good.Value = strings.Replace(good.Value, `"r1"`, `"0"`, 1)
		if services, failures := z.Decode([]registry.Entry{good}, nil); len(services)+len(failures) != 0 || len(z.Dependencies([]registry.Entry{good})) != 0 {
			t.Errorf("Decode = %s, want nothing and no dependencies", render(services, failures))
		}
	})
	t.Run("what an instance says is read where the document does not", func(t *testing.T) {
		good := good
		good.Value = strings.Replace(good.Value, `"dubbo.metadata.revision"`, `"weight":"7","dubbo.tag":"gray","meta-v":"2.0.0","dubbo.metadata.revision"`, 1)
		services, _ := z.Decode([]registry.Entry{good}, []registry.Entry{report})
		if len(services) != 1 || services[0].Endpoints[0].Weight != 7 || services[0].Attributes["dubbo.tag"] != "gray" || services[0].Attributes["meta-v"] != "" {
			t.Errorf("Decode = %s, want only weight 7 and dubbo.tag gray", render(services, nil))
		}
		if got := text(encode(t, z, services[0])); strings.Contains(got, "gray") {
			t.Errorf("a tag is written without the option: %s", got)
		}
		if got := text(encode(t, zookeeperApp(t, dubbo.Options{Tags: true}), services[0])); !strings.Contains(got, `"dubbo.tag":"gray"`) {
			t.Errorf("a tag that was asked for is not: %s", got)
		}
	})
}

func TestEncodeApp_Readers(t *testing.T) {
	for _, e := range encode(t, zookeeperApp(t, marked()), greeter()) {
		switch {
		case strings.HasPrefix(e.Key, "#metadata/"):
			for _, part := range []string{`"params":{`, `"path":"`, `"protocol":"`, `"name":"`} {
				if strings.Count(e.Value, part) != strings.Count(e.Value, `"path":"`) {
					t.Errorf("%s lacks %s: %s", e.Key, part, e.Value)
				}
			}
		case registry.IsEndpoint(e.Key):
			for _, part := range []string{`"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance"`, "dubbo.metadata.revision", `"dubbo.metadata.storage-type":"remote"`} {
				if !strings.Contains(e.Value, part) {
					t.Errorf("%s lacks %s: %s", e.Key, part, e.Value)
				}
			}
		}
	}
}

func TestEncodeApp_Order(t *testing.T) {
	entries := encode(t, zookeeperApp(t, marked()), greeter())
	if !slices.IsSortedFunc(entries, registry.Entry.Compare) {
		t.Error("not in order")
	}
	after := false
	for _, e := range entries {
		if after && registry.IsPart(e.Key) {
			t.Errorf("%s comes after an instance", e.Key)
		}
		after = after || registry.IsEndpoint(e.Key)
	}
}

func TestEncodeApp_Revision(t *testing.T) {
	z := zookeeperApp(t, marked())
	first := encode(t, z, one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: 1}))
	after := encode(t, z, one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: 2}))
	zone := encode(t, z, one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: 1, Zone: "a/b"}))
	key := func(entries []registry.Entry) string { return entries[1].Key }
	if key(first) == key(after) || key(first) != key(zone) {
		t.Errorf("revisions %s, weight %s, zone %s", key(first), key(after), key(zone))
	}
	last := func(entries []registry.Entry) registry.Entry { return entries[len(entries)-1] }
	if last(first).Key != last(after).Key || last(first) == last(zone) {
		t.Error("the instance has to keep its key and to change its value")
	}
}

func TestApplicationNames(t *testing.T) {
	for name, bad := range hostile() {
		t.Run(name, func(t *testing.T) {
			s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
			s.Application = bad
			for _, c := range []metadata.Codec{zookeeperApp(t, marked()), nacosApp(t, marked())} {
				if got, err := c.Encode(s); !fails(err) {
					t.Errorf("wrote %v", got)
				} else if len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x00\r\x1b\u202e") {
					t.Errorf("error %q", err)
				}
			}
		})
	}
}

func TestEncodeApp_ManyInterfaces(t *testing.T) {
	z := zookeeperApp(t, marked())
	var keys []string
	for _, iface := range []string{"api.A", "api.B"} {
		s := &registry.Service{
			Name: registry.Name("dubbo-application:/services/shop/providers:" + iface + "::"), Application: "shop",
			Interfaces: []registry.Interface{{Name: iface}}, Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 1, Protocol: "tri"}},
		}
		for _, e := range encode(t, z, s) {
			keys = append(keys, e.Key)
		}
	}
	slices.Sort(keys)
	if len(slices.Compact(keys)) != 8 {
		t.Errorf("services of one application and address meet: %v", keys)
	}
}

func TestLayoutOfApplications(t *testing.T) {
	z := zookeeperApp(t, marked())
	for _, e := range encode(t, z, greeter()) {
		if path, element := z.Element(e); path != "" {
			if path != "/dubbo/mapping/api.Greeter" || element != "greeter" {
				t.Errorf("Element = %s, %s", path, element)
			}
			continue
		}
		name, data, err := z.Node(e)
		if err != nil {
			t.Fatal(err)
		}
		back, mark := z.Entry(e.Group, name, data)
		if back != e || mark.Owner != marked().Mark.Owner {
			t.Errorf("%s: came back as %+v of %q", name, back, mark.Owner)
		}
	}
	g, ok := z.Group("/services/greeter")
	parent, err := z.Parent(g)
	if !ok || err != nil || parent != "/services/greeter" {
		t.Errorf("parent %s %v", parent, err)
	}
	for _, bad := range []string{"/services/a b", "/services/a/b", "/services/mapping", "/other/a"} {
		if _, ok := z.Group(bad); ok {
			t.Errorf("%s is a parent of applications", bad)
		}
	}
}

// FuzzApplicationRoundTrip shows that encoding and decoding keeps the endpoints. A service
// without an application belongs to an application with the host's name.
func FuzzApplicationRoundTrip(f *testing.F) {
	f.Add("api.Greeter", "1.0.0", "g1", "10.0.0.1", uint16(20880), uint32(30), "k", "v", "shop")
	f.Add("api.Outer$Inner", "", "", "2001:db8::1", uint16(1), uint32(0), "x", "a&b=\"c\"", "a")
	f.Fuzz(func(t *testing.T, iface, version, group, host string, port uint16, weight uint32, key, value, app string) {
		s := &registry.Service{
			Name: "greeter.shop.svc.cluster.local:1", Application: app, Interfaces: []registry.Interface{{Name: iface, Version: version, Group: group}},
			Endpoints: []registry.Endpoint{
				{Host: host, Port: port, Weight: weight, Attributes: registry.Attributes{key: value}},
				{Host: "192.0.2.1", Port: 1},
			},
		}
		for _, c := range []metadata.Codec{zookeeperApp(t, marked()), nacosApp(t, marked())} {
			entries, err := c.Encode(s)
			if fails(err) {
				continue
			}
			services, failures := c.Decode(entries, entries)
			if len(failures) != 0 {
				t.Fatalf("cannot decode its own entries: %v", failures)
			}
			instances, name := 0, cmp.Or(app, entries[0].Group.Name)
			for _, e := range entries {
				if registry.IsEndpoint(e.Key) {
					instances++
				}
			}
			if len(services) != 1 || len(services[0].Endpoints) != instances || services[0].Interfaces[0] != s.Interfaces[0] || services[0].Application != name {
				t.Fatalf("came back as %s from\n%s", render(services, nil), text(entries))
			}
		}
	})
}

func FuzzDecodeApplication(f *testing.F) {
	good, report := app()
	f.Add(good.Value, report.Value)
	z := zookeeperApp(f, dubbo.Options{})
	f.Fuzz(func(t *testing.T, value, doc string) {
		e, _ := z.Entry(good.Group, "node", []byte(value))
		if len(z.Dependencies([]registry.Entry{e})) > 1 {
			t.Fatal("one instance has more than one dependency")
		}
		services, _ := z.Decode([]registry.Entry{e}, []registry.Entry{{Group: good.Group, Key: "#metadata/r1", Value: doc}})
		for _, s := range services {
			if _, err := z.Encode(s); fails(err) && s.Endpoints[0].Health.Offered() {
				t.Fatalf("cannot encode decoded services: %v", err)
			}
		}
	})
}

// TestDecodeApp_OtherServices shows that instances of other formats are reported if they are
// next to an instance of Dubbo, whose consumers they harm.
func TestDecodeApp_OtherServices(t *testing.T) {
	n, err := dubbo.NewNacosApp(dubbo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(service, meta string) registry.Entry {
		g := registry.Group{Kind: dubbo.KindApplication, Group: "DEFAULT_GROUP", Name: service}
		value := `{"ip":"10.0.0.1","port":1,"weight":1,"healthy":true,"enabled":true,"metadata":` + meta + `}`
		return registry.Entry{Group: g, Key: meta, Value: value}
	}
	kratos, spoiled := `{"kind":"grpc"}`, `{"dubbo.metadata.storage-type":"remote"}`
	for name, tt := range map[string]struct {
		entries  []registry.Entry
		failures int
	}{
		"a service of Kratos":             {[]registry.Entry{at("shop.grpc", kratos)}, 0},
		"two of them, and an application": {[]registry.Entry{at("a.grpc", kratos), at("b.grpc", kratos), at("shop", `{"dubbo.metadata.revision":"0"}`)}, 0},
		"next to an instance of Dubbo":    {[]registry.Entry{at("shop", kratos), at("shop", `{"dubbo.metadata.revision":"0"}`)}, 1},
		"a broken instance of Dubbo":      {[]registry.Entry{at("shop", spoiled)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, failures := n.Decode(tt.entries, nil); len(failures) != tt.failures {
				t.Errorf("%d failures: %v", len(failures), failures)
			}
		})
	}
}

// TestDecodeApp_Remedy shows that the remedy has the settings of Java and of dubbo-go.
func TestDecodeApp_Remedy(t *testing.T) {
	z, err := dubbo.NewZooKeeperApp(dubbo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := registry.Entry{Group: registry.Group{Kind: dubbo.KindApplication, Namespace: "/services", Name: "shop"}, Key: "i", Value: `{"name":"shop",` +
		`"address":"10.0.0.1","port":1,"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","metadata":{"dubbo.metadata.revision":"r"}}}`}
	_, failures := z.Decode([]registry.Entry{e}, nil)
	if len(failures) != 1 {
		t.Fatalf("Decode = %v, want one error", failures)
	}
	for _, setting := range []string{"metadata-type=remote", "register-mode=all", "registry-type: all"} {
		if !strings.Contains(failures[0].Error(), setting) {
			t.Errorf("Decode = %v, want it to name %s", failures[0], setting)
		}
	}
}

// TestDecodeApp_OldRevision shows the error for Dubbo 2.7.5 to 2.7.8 and dubbo-go 1.5, which
// use another key, and store documents that consumers of Dubbo 3 do not read.
func TestDecodeApp_OldRevision(t *testing.T) {
	good, report := app()
	old := good
	old.Value = strings.Replace(old.Value, "dubbo.metadata.revision", "dubbo.exported-services.revision", 1)
	n := registry.Entry{Group: registry.Group{Kind: dubbo.KindApplication, Group: "DEFAULT_GROUP", Name: "shop"}, Value: metadata.NacosInstance{
		IP: "10.0.0.1", Port: 1, Weight: 1, Enabled: true, Metadata: map[string]string{"dubbo.exported-services.revision": "r1"},
	}.String()}
	for name, tt := range map[string]struct {
		codec metadata.Codec
		entry registry.Entry
	}{"zookeeper": {zookeeperApp(t, dubbo.Options{}), old}, "nacos": {nacosApp(t, dubbo.Options{}), n}} {
		t.Run(name, func(t *testing.T) {
			services, failed := tt.codec.Decode([]registry.Entry{tt.entry}, []registry.Entry{report})
			if len(services) != 0 || len(failed) != 1 || !strings.Contains(failed[0].Error(), "Dubbo 2.7.5 to 2.7.8") {
				t.Errorf("Decode = %s", render(services, failed))
			}
		})
	}
}
