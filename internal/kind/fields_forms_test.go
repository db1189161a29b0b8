package kind

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A said is what a provider says of itself when it registers, and what a
// consumer gets to know of it.
type said struct {
	protocol, host string
	path           string // at which the interface is called, where a framework says so
	weight         string // in hundredths of the normal one
	version, group string
	hidden         bool
	user           map[string]string // metadata of the application itself
}

const (
	servicePort   = 8080
	serviceName   = "orders"
	interfaceName = "api.Orders"
)

// A spot is a format in one kind of registry.
type spot struct{ format, at string }

func (p spot) String() string {
	return p.format + map[string]string{"zk": " in ZooKeeper", "n": " in Nacos", "": ""}[p.at]
}

func (p spot) dubbo() bool { return strings.HasPrefix(p.format, "dubbo-") }

// normal is the weight that means 100 hundredths.
func (p spot) normal() float64 {
	switch {
	case p.dubbo(), p.format == "kratos", p.format == "mesh":
		return 100
	case p.format == "hertz", p.format == "kitex":
		return 10
	default:
		return 1
	}
}

// speaks are the protocols of providers that register in a format.
func (p spot) speaks() []string {
	switch {
	case p.dubbo():
		return []string{"tri", "rest", "dubbo"}
	case p.format == "kratos":
		return []string{"grpc", "http"}
	case p.format == "gozero":
		return []string{"grpc"}
	case p.format == "kitex":
		return []string{"thrift"}
	case p.format == "plain":
		return []string{"tcp", "grpc", "http", "thrift"}
	default:
		return []string{"http"}
	}
}

// codec makes the codec of a place, with an option of its format.
func (p spot) codec(t *testing.T, tags bool) metadata.Encoder {
	t.Helper()
	var c metadata.Encoder
	var err error
	if p.format == "mesh" {
		hosts := naming.MeshHosts{Registry: "zk", Suffix: "registry.internal"}
		c, err = serviceentry.New(serviceentry.Options{Hosts: hosts, Namespace: "imports", Mark: metadata.NewMark("shop", "in")})
	} else {
		u, m := pageUse(t, p.format, p.at)
		u.Tags = tags
		if p.at == "zk" {
			c, err = projection.NewCodec[zookeeperFormat](m, u, format.ZooKeeper)
		} else {
			c, err = projection.NewCodec[nacosFormat](m, u, format.Nacos)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// register returns what a framework's own registrar stores of a provider.
func (p spot) register(t *testing.T, c metadata.Encoder, s said) (entries, extras []registry.Entry) {
	t.Helper()
	var value string
	var g registry.Group
	var ok bool
	if p.at == "n" {
		name := serviceName
		switch p.format {
		case "dubbo-interface":
			name = "providers:" + interfaceName + ":" + s.version + ":" + s.group
		case "kratos":
			name += "." + s.protocol
		}
		g, ok = c.(nacosFormat).GroupOf("", "DEFAULT_GROUP", name)
		value = p.record(s)
	} else {
		z := c.(zookeeperFormat)
		name := serviceName
		if p.format == "dubbo-interface" {
			name = interfaceName
		}
		g, ok = z.Group(strings.Replace(z.Parents(), "*", name, 1))
		value = p.node(s)
	}
	if !ok {
		t.Fatalf("%s has no group", p)
	}
	key := net.JoinHostPort(s.host, strconv.Itoa(servicePort))
	if p.format == "dubbo-application" {
		extras = []registry.Entry{{Group: g, Key: "#metadata/r1", Value: document(s)}}
	}
	return []registry.Entry{{Group: g, Key: key, Value: value}}, extras
}

// params is the metadata that Dubbo's formats have of a provider.
func (s said) params() map[string]string {
	m := map[string]string{"interface": interfaceName, "side": "provider", "application": serviceName, "release": "3.3.5"}
	for k, v := range map[string]string{"weight": s.weight, "version": s.version, "group": s.group} {
		if v != "" {
			m[k] = v
		}
	}
	if s.hidden {
		m["disabled"] = "true"
	}
	return m
}

func (s said) at() string {
	if s.path == "" {
		return interfaceName
	}
	return s.path
}

// document is what a provider of Dubbo stores beside its instance.
func document(s said) string {
	return asJSON(map[string]any{"app": serviceName, "revision": "r1", "services": map[string]any{
		interfaceName + ":" + s.protocol: map[string]any{
			"name": interfaceName, "version": s.version, "group": s.group, "protocol": s.protocol, "path": s.at(), "params": s.params(),
		},
	}})
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return string(b)
}

// own is the metadata that a framework adds to the user's.
func (p spot) own(s said) map[string]string {
	m := make(map[string]string)
	switch p.format {
	case "dubbo-interface":
		m = s.params()
		m["protocol"], m["path"], m["category"] = s.protocol, s.at(), "providers"
	case "dubbo-application":
		m = map[string]string{
			"dubbo.metadata.revision": "r1", "dubbo.metadata.storage-type": "remote",
			"dubbo.endpoints": fmt.Sprintf(`[{"port":%d,"protocol":%q}]`, servicePort, s.protocol),
		}
	case "kratos":
		if s.weight != "" {
			m["weight"] = s.weight
		}
		if p.at == "n" {
			m["kind"] = s.protocol
		}
	case "spring-cloud":
		if p.at == "n" {
			m["preserved.register.source"] = "SPRING_CLOUD"
		} else if m["instance_status"] = "UP"; s.hidden {
			m["instance_status"] = "OUT_OF_SERVICE"
		}
	case "plain":
		if p.at == "n" && s.protocol != "tcp" {
			m["protocol"] = s.protocol
		}
	}
	return m
}

func (p spot) metadata(s said) map[string]string {
	m := p.own(s)
	maps.Copy(m, s.user)
	return m
}

// native is a weight in the format's own scale.
func (p spot) native(s said) float64 {
	share, err := strconv.ParseFloat(s.weight, 64)
	if err != nil {
		share = 100
	}
	return share / 100 * p.normal()
}

// record is an instance in Nacos. Dubbo's weight is metadata there.
func (p spot) record(s said) string {
	weight := p.native(s)
	if p.dubbo() {
		weight = 1
	}
	return metadata.NacosInstance{
		IP: s.host, Port: servicePort, Weight: weight, Enabled: !s.hidden, Healthy: true, Ephemeral: true, Metadata: p.metadata(s),
	}.String()
}

// node is a node in ZooKeeper.
func (p spot) node(s said) string {
	address := net.JoinHostPort(s.host, strconv.Itoa(servicePort))
	switch p.format {
	case "dubbo-interface":
		q := url.Values{}
		m := s.params()
		maps.Copy(m, s.user)
		for k, v := range m {
			q.Set(k, v)
		}
		return s.protocol + "://" + address + "/" + s.at() + "?" + q.Encode()
	case "dubbo-application":
		return asJSON(map[string]any{"name": serviceName, "id": "i", "address": s.host, "port": servicePort, "payload": map[string]any{
			"@class": "org.apache.dubbo.registry.zookeeper.ZookeeperInstance", "metadata": p.metadata(s),
		}})
	case "spring-cloud":
		return asJSON(map[string]any{"name": serviceName, "id": "i", "address": strings.Trim(s.host, "[]"), "port": servicePort, "payload": map[string]any{
			"@class": "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance", "metadata": p.metadata(s),
		}})
	case "kratos":
		m := p.metadata(s)
		if s.hidden {
			m["weight"] = "0"
		}
		return asJSON(map[string]any{"id": "i", "name": serviceName, "metadata": m, "endpoints": []string{s.protocol + "://" + address}})
	case "hertz", "kitex":
		n := map[string]any{"Weight": int(p.native(s)), "Tags": p.metadata(s)}
		if s.hidden {
			n["Weight"] = 0
		}
		return asJSON(n)
	default:
		return asJSON(map[string]any{"host": s.host, "port": servicePort, "protocol": s.protocol, "weight": p.native(s), "metadata": p.metadata(s)})
	}
}

// consume returns what consumers of a place get to know of what was written,
// as their frameworks read it; false where they find nobody.
func (p spot) consume(t *testing.T, entries []registry.Entry) (said, bool) {
	t.Helper()
	for _, e := range entries {
		if registry.IsPart(e.Key) || p.format == "mesh" && e.Key == serviceentry.HeaderKey {
			continue
		}
		switch {
		case p.format == "mesh":
			return inMesh(t, entries, e), true
		case p.format == "dubbo-application":
			return p.application(t, entries, e), true
		case p.at == "n":
			return p.fromNacos(t, e), true
		default:
			return p.fromNode(t, e), true
		}
	}
	return said{}, false
}

func parse(t *testing.T, s string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), into); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
}

// share is a weight in hundredths of the format's normal one.
func (p spot) share(weight float64) string {
	return strconv.FormatFloat(math.Round(weight/p.normal()*100), 'f', 0, 64)
}

func provider(m map[string]string) said {
	return said{protocol: m["protocol"], path: m["path"], weight: m["weight"], version: m["version"], group: m["group"], user: m}
}

// fromNacos reads an instance: Kratos' watchers look for the weight in the
// metadata alone.
func (p spot) fromNacos(t *testing.T, e registry.Entry) said {
	t.Helper()
	var in struct {
		IP       string
		Weight   float64
		Metadata map[string]string
	}
	parse(t, e.Value, &in)
	s := provider(in.Metadata)
	switch p.format {
	case "dubbo-interface":
	case "kratos":
		s.protocol, s.weight = in.Metadata["kind"], weightOr100(in.Metadata["weight"])
	default:
		s.weight = p.share(in.Weight)
	}
	s.host = in.IP
	return s
}

func weightOr100(text string) string {
	if text == "" {
		return "100"
	}
	return text
}

// fromNode reads a node.
func (p spot) fromNode(t *testing.T, e registry.Entry) said {
	t.Helper()
	if p.format == "dubbo-interface" {
		u, err := url.Parse(e.Value)
		if err != nil {
			t.Fatal(err)
		}
		m := make(map[string]string)
		for k := range u.Query() {
			m[k] = u.Query().Get(k)
		}
		s := provider(m)
		s.protocol, s.host, s.path = u.Scheme, u.Hostname(), strings.TrimPrefix(u.Path, "/")
		return s
	}
	var n struct {
		Address, Host, Protocol, Version string
		Weight                           float64
		Tags, Metadata                   map[string]string
		Endpoints                        []string
		Payload                          struct{ Metadata map[string]string }
		URISpec                          struct{ Parts []struct{ Value string } }
	}
	parse(t, e.Value, &n)
	switch p.format {
	case "spring-cloud":
		s := provider(n.Payload.Metadata)
		s.host, s.weight = strings.Trim(n.Address, "[]"), "100"
		if parts := n.URISpec.Parts; parts[len(parts)-1].Value != "port" {
			s.path = strings.TrimPrefix(parts[len(parts)-1].Value, "/")
		}
		return s
	case "kratos":
		u, err := url.Parse(n.Endpoints[0])
		if err != nil {
			t.Fatal(err)
		}
		s := provider(n.Metadata)
		s.protocol, s.host, s.weight, s.version = u.Scheme, u.Hostname(), weightOr100(s.weight), n.Version
		s.user["version"] = n.Version
		return s
	case "hertz", "kitex":
		s := provider(n.Tags)
		s.host, _, _ = net.SplitHostPort(e.Key)
		s.weight = p.share(n.Weight)
		return s
	default:
		s := provider(n.Metadata)
		s.protocol, s.host, s.weight = n.Protocol, n.Host, p.share(n.Weight)
		return s
	}
}

// application reads an instance and its document as Java does, and the weight
// in Nacos as dubbo-go from 3.3.1 on does.
func (p spot) application(t *testing.T, entries []registry.Entry, e registry.Entry) said {
	t.Helper()
	var in struct {
		IP, Address string
		Weight      float64
		Metadata    map[string]string
		Payload     struct{ Metadata map[string]string }
	}
	parse(t, e.Value, &in)
	m := make(map[string]string)
	maps.Copy(m, in.Metadata)
	maps.Copy(m, in.Payload.Metadata)
	var doc struct {
		Services map[string]struct {
			Version, Group, Protocol, Path string
			Params                         map[string]string
		}
	}
	for _, d := range entries {
		if d.Key == "#metadata/"+m["dubbo.metadata.revision"] {
			parse(t, d.Value, &doc)
		}
	}
	for _, of := range doc.Services {
		params := maps.Clone(m)
		maps.Copy(params, of.Params)
		s := provider(params)
		s.protocol, s.path, s.version, s.group, s.host = of.Protocol, of.Path, of.Version, of.Group, in.IP+in.Address
		if p.at == "n" && of.Params["weight"] != "0" {
			s.weight = p.share(in.Weight)
		}
		return s
	}
	t.Fatalf("no document in %v", entries)
	return said{}
}

// inMesh reads an endpoint and the head of its ServiceEntry.
func inMesh(t *testing.T, entries []registry.Entry, e registry.Entry) said {
	t.Helper()
	var endpoint struct {
		Address string
		Weight  float64
		Labels  map[string]string
	}
	parse(t, e.Value, &endpoint)
	s := said{host: endpoint.Address, weight: spot{"mesh", ""}.share(endpoint.Weight), user: make(map[string]string)}
	for _, h := range entries {
		var head serviceentry.Header
		if h.Key != serviceentry.HeaderKey {
			continue
		}
		parse(t, h.Value, &head)
		_, protocol, _ := strings.Cut(head.Port.Name, "-")
		s.protocol = protocol
		if protocol == "" {
			s.protocol = head.Port.Name
		}
		for _, key := range head.Keys {
			if parts := strings.Split(key, ":"); len(parts) == 4 {
				s.version, s.group = parts[2], parts[3]
			}
		}
		for k, v := range head.Annotations {
			s.user[strings.TrimPrefix(k, "xds-bridge.attribute/")] = v
		}
	}
	maps.Copy(s.user, endpoint.Labels)
	return s
}
