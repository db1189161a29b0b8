package serviceentry_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

func options() serviceentry.Options {
	return serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}, Namespace: "xds-bridge",
		Mark: metadata.NewMark("me", "zk-to-mesh"),
		VIPs: netip.MustParsePrefix("240.64.0.0/12"),
	}
}

func codec(t testing.TB, o serviceentry.Options) *serviceentry.Codec {
	t.Helper()
	c, err := serviceentry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dubbo(endpoints ...registry.Endpoint) *registry.Service {
	return &registry.Service{
		Name: "dubbo:api.Greeter", Protocol: "tri", Endpoints: endpoints,
		Interfaces: []registry.Interface{{Name: "api.Greeter", Version: "1.0", Group: "g"}},
	}
}

func at(host string, port uint16) registry.Endpoint {
	return registry.Endpoint{Host: host, Port: port, Weight: 100}
}

// resource is a whole ServiceEntry.
type resource struct {
	Namespace, Name string
	serviceentry.Header
	Endpoints []serviceentry.Endpoint
}

// resources returns the ServiceEntries of a service, by host.
func resources(t testing.TB, c *serviceentry.Codec, s *registry.Service) []resource {
	t.Helper()
	entries, err := c.Encode(s)
	if fails(err) {
		t.Fatal(err)
	}
	var out []resource
	for _, e := range entries {
		if e.Key == serviceentry.HeaderKey {
			header, err := serviceentry.ParseHeader(e)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, resource{Namespace: e.Group.Namespace, Name: e.Group.Name, Header: header})
			continue
		}
		endpoint, err := serviceentry.ParseEndpoint(e)
		if err != nil {
			t.Fatal(err)
		}
		last := &out[len(out)-1]
		last.Endpoints = append(last.Endpoints, endpoint)
	}
	return out
}

// fails reports whether an error means that no endpoint can be written.
func fails(err error) bool {
	left := registry.LeftOutBy(err)
	return left != nil && left.All == registry.Unwritable
}

func TestEncode(t *testing.T) {
	t.Parallel()
	t.Run("a Dubbo interface with two endpoints of different ports", func(t *testing.T) {
		t.Parallel()
		all := resources(t, codec(t, options()), dubbo(at("10.0.0.1", 20001), at("10.0.0.2", 20002)))
		if len(all) != 1 {
			t.Fatalf("%d resources", len(all))
		}
		r := all[0]
		if r.Host != "api.x-greeter.1.0.g.k2-1-tri.zk1.bridge.internal" || r.Namespace != "xds-bridge" || r.Name != r.Host {
			t.Errorf("host %s, named %s/%s", r.Host, r.Namespace, r.Name)
		}
		if r.Port != (serviceentry.Port{Number: 50051, Name: "grpc-tri", Protocol: "GRPC"}) {
			t.Errorf("port %+v", r.Port)
		}
		if len(r.Endpoints) != 2 || r.Endpoints[1].Port != 20002 || r.Endpoints[1].Weight != 100 {
			t.Errorf("endpoints %+v", r.Endpoints)
		}
		if !slices.Equal(r.Keys, []string{"providers:api.Greeter:1.0:g"}) {
			t.Errorf("keys %v", r.Keys)
		}
	})
	t.Run("two protocols are two hosts", func(t *testing.T) {
		t.Parallel()
		old := at("10.0.0.1", 20880)
		old.Protocol = "dubbo"
		all := resources(t, codec(t, options()), dubbo(at("10.0.0.1", 50051), old))
		if len(all) != 2 || all[0].Port.Protocol != "TCP" || all[0].Port.Name != "tcp-dubbo" || all[1].Port.Protocol != "GRPC" {
			t.Errorf("%+v", all)
		}
	})
	t.Run("an endpoint that is not offered is not written, and the service stays known", func(t *testing.T) {
		t.Parallel()
		down := at("10.0.0.1", 1)
		down.Health = registry.Unhealthy
		all := resources(t, codec(t, options()), dubbo(down))
		if len(all) != 1 || len(all[0].Endpoints) != 0 {
			t.Errorf("%+v", all)
		}
	})
	t.Run("a service that lost its last provider, or has it disabled, keeps its host and port", func(t *testing.T) {
		t.Parallel()
		e := at("10.0.0.1", 20880)
		e.Protocol = "dubbo"
		s := dubbo(e)
		s.Protocol = ""
		c := codec(t, options())
		was := resources(t, c, s)[0]
		off := *s
		off.Endpoints = slices.Clone(s.Endpoints)
		off.Endpoints[0].Health = registry.Disabled
		for what, s := range map[string]*registry.Service{"gone": registry.KeepEmpty(nil, []*registry.Service{s})[0], "disabled": &off} {
			all := resources(t, c, s)
			if len(all) != 1 || all[0].Host != was.Host || all[0].Port != was.Port || len(all[0].Endpoints) != 0 {
				t.Errorf("%s: %+v, was %s %+v", what, all, was.Host, was.Port)
			}
		}
	})
	t.Run("metadata that fits no label is dropped or annotated, always alike", func(t *testing.T) {
		t.Parallel()
		s := dubbo(at("10.0.0.1", 1))
		s.Endpoints[0].Attributes = registry.Attributes{"app": "shop", "a b": "x", "path": "a/b", "long": strings.Repeat("x", 64), "k/": "v", "ok.io/zone": "z-1"}
		s.Attributes = registry.Attributes{"methods": "a,b,c", "bad key": "x", "control": "a\nb"}
		c := codec(t, options())
		r := resources(t, c, s)[0]
		if got := r.Endpoints[0].Labels; len(got) != 2 || got["app"] != "shop" || got["ok.io/zone"] != "z-1" {
			t.Errorf("labels %v", got)
		}
		if got := r.Annotations["xds-bridge.attribute/methods"]; got != "a,b,c" {
			t.Errorf("annotations %v", r.Annotations)
		}
		first, _ := c.Encode(s)
		for range 20 {
			if again, _ := c.Encode(s); !slices.Equal(first, again) {
				t.Fatal("the same service was encoded differently")
			}
		}
	})
	t.Run("what exceeds the limits of a ServiceEntry is left out and named", func(t *testing.T) {
		t.Parallel()
		s := dubbo(at("10.0.0.1", 1), at("10.0.0.2", 1))
		many, long := registry.Attributes{"version": "v1", "zzz": "z"}, registry.Attributes{}
		for i := range 300 {
			many[fmt.Sprintf("p%03d", i)] = "x"
			long[fmt.Sprintf("a%03d", i)] = strings.Repeat("x", 4000)
		}
		s.Endpoints[0].Attributes, s.Attributes, s.Protocol = many, long, strings.Repeat("p", 59)
		s.Endpoints[0].Zone = "r/" + strings.Repeat("z", 2048)
		c := codec(t, options())
		entries, err := c.Encode(s)
		if err == nil || !strings.Contains(err.Error(), "labels \"p255, p256") || !strings.Contains(err.Error(), "left out of 1 endpoint: an endpoint of a ServiceEntry has at most 256") ||
			!strings.Contains(err.Error(), "attributes \"a032, a033") {
			t.Errorf("Encode() = %v, want the omissions", err)
		}
		o, err := serviceentry.NewObject(entries[0].Group, entries, netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		if w := o.Spec.Endpoints[0]; len(w.Labels) != 256 || w.Labels["version"] != "v1" || w.Locality != "" || len(o.Spec.Endpoints) != 2 {
			t.Errorf("%d labels, %v, locality of %d bytes, want 256 with the version and none", len(w.Labels), w.Labels["version"], len(w.Locality))
		}
		size := 0
		for k, v := range o.Metadata.Annotations {
			size += len(k) + len(v)
		}
		if size > 256<<10 || size < 100<<10 {
			t.Errorf("annotations of %d bytes, want less than 256 KiB", size)
		}
		if name := o.Spec.Ports[0].Name; len(name) >= 63 {
			t.Errorf("the name of the port has %d bytes, want less than 63", len(name))
		}
	})
	t.Run("the path names the registry it came from", func(t *testing.T) {
		t.Parallel()
		s := dubbo(at("10.0.0.1", 1))
		s.Path = registry.Path(metadata.Hop("zk1"))
		r := resources(t, codec(t, options()), s)[0]
		mark, err := metadata.ParseMark(r.Annotations[serviceentry.AnnotationMark])
		if err != nil || !mark.Path.Has(metadata.Hop("zk1")) {
			t.Errorf("mark %v, %v", mark, err)
		}
	})
	t.Run("host names make proxies resolve the endpoints", func(t *testing.T) {
		t.Parallel()
		c := codec(t, options())
		s := dubbo(at("A.example.com.", 1), at("10.0.0.2", 2))
		entries, err := c.Encode(s)
		if err != nil {
			t.Fatalf("Encode = %v", err)
		}
		o, err := serviceentry.NewObject(entries[0].Group, entries, netip.Addr{})
		if err != nil || o.Spec.Resolution != "DNS" || len(o.Spec.Endpoints) != 2 || o.Spec.Endpoints[1].Address != "a.example.com" {
			t.Errorf("object %+v, %v; want both endpoints, and DNS", o.Spec, err)
		}
		again := o.Entries(netip.Prefix{})
		if !slices.Equal(again[1:], entries[1:]) {
			t.Errorf("Entries = %+v, want %+v", again, entries)
		}
		o.Spec.Resolution = "STATIC" // an invalid resolution
		if other := o.Entries(netip.Prefix{}); slices.Equal(other, again) {
			t.Error("an object with another resolution is as it was written")
		}
		if o, err := serviceentry.NewObject(entries[0].Group, entries[:2], netip.Addr{}); err != nil || o.Spec.Resolution != "STATIC" {
			t.Errorf("object %+v, %v; want STATIC", o.Spec, err)
		}
	})
	t.Run("an unresolvable host is left out with a reason, others are not", func(t *testing.T) {
		t.Parallel()
		only := options()
		only.IPOnly = true
		for _, tt := range []struct {
			options serviceentry.Options
			host    string
		}{{options(), "a_b.example.com"}, {options(), "a..b"}, {options(), "fe80::1%eth0"}, {only, "a.example.com"}} {
			c := codec(t, tt.options)
			s := dubbo(at(tt.host, 1), at("10.0.0.2", 0), at("fd00::1", 2))
			if r := resources(t, c, s)[0]; len(r.Endpoints) != 1 || r.Endpoints[0].Address != "fd00::1" {
				t.Errorf("%s: endpoints %+v", tt.host, r.Endpoints)
			}
			if _, err := c.Encode(s); err == nil || !strings.Contains(err.Error(), tt.host) {
				t.Errorf("%s: the reason is %v", tt.host, err)
			}
			if _, err := c.Encode(dubbo(at(tt.host, 1))); !fails(err) {
				t.Errorf("%s: a service without an address has no reason", tt.host)
			}
		}
	})
	t.Run("one address reported twice is one endpoint", func(t *testing.T) {
		t.Parallel()
		if r := resources(t, codec(t, options()), dubbo(at("10.0.0.1", 1), at("::ffff:10.0.0.1", 1)))[0]; len(r.Endpoints) != 1 {
			t.Errorf("endpoints %+v", r.Endpoints)
		}
	})
	t.Run("an application without interfaces keeps its name", func(t *testing.T) {
		t.Parallel()
		s := &registry.Service{Name: "spring:shop", Application: "shop", Protocol: "http", Endpoints: []registry.Endpoint{at("10.0.0.1", 8080)}}
		r := resources(t, codec(t, options()), s)[0]
		if r.Host != "shop.s-http.zk1.bridge.internal" || r.Port != (serviceentry.Port{Number: 80, Name: "http", Protocol: "HTTP"}) {
			t.Errorf("%s %+v", r.Host, r.Port)
		}
	})
}

func TestNew_UnsafeOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*serviceentry.Options){
		"istio's namespace":      func(o *serviceentry.Options) { o.Namespace = "istio-system" },
		"kubernetes' namespace":  func(o *serviceentry.Options) { o.Namespace = "kube-system" },
		"the default namespace":  func(o *serviceentry.Options) { o.Namespace = "default" },
		"no namespace":           func(o *serviceentry.Options) { o.Namespace = "" },
		"a path for a namespace": func(o *serviceentry.Options) { o.Namespace = "a/b" },
		"no suffix":              func(o *serviceentry.Options) { o.Hosts.Suffix = "" },
		"addresses with bits":    func(o *serviceentry.Options) { o.VIPs = netip.MustParsePrefix("240.64.0.1/12") },
		"port 0":                 func(o *serviceentry.Options) { o.Ports = map[string]uint16{"tri": 0} },
	} {
		o := options()
		change(&o)
		if _, err := serviceentry.New(o); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestEncode_AddressRange(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"240.64.0.0/12", "10.0.0.0/30", "10.0.0.0/24", "2001:db8::/64", "2001:db8::/112"} {
		within := netip.MustParsePrefix(text)
		for i := range 200 {
			vip := serviceentry.VIP(within, strings.Repeat("h", i), i%2)
			if !within.Contains(vip) || vip == within.Addr() {
				t.Errorf("%s is not for use in %s", vip, within)
			}
		}
	}
}

// TestEncode_SmallRanges shows that a range of one or two addresses has exactly these.
func TestEncode_SmallRanges(t *testing.T) {
	t.Parallel()
	for text, choices := range map[string]int{"10.0.0.7/32": 1, "10.0.0.6/31": 2, "10.0.0.4/30": 2, "fd00::1/128": 1, "0.0.0.0/0": 32} {
		within, seen := netip.MustParsePrefix(text), make(map[netip.Addr]bool)
		for n := range choices + 5 {
			vip := serviceentry.VIP(within, "host", n)
			if vip.IsValid() != (n < choices) || vip.IsValid() && (seen[vip] || !within.Contains(vip)) {
				t.Errorf("%s, choice %d: %s", text, n, vip)
			}
			seen[vip] = true
		}
	}
}

// TestEncode_Deterministic shows that equal input gives equal bytes, and only names that
// Istio accepts.
func TestEncode_Deterministic(t *testing.T) {
	t.Parallel()
	s := dubbo(at("10.0.0.1", 1))
	long := strings.Repeat("a", 40)
	s.Attributes = registry.Attributes{"team/name": "slash", "team.name": "dot", long + ".example/" + long: "long"}
	c := codec(t, options())
	first, err := c.Encode(s)
	if fails(err) {
		t.Fatal(err)
	}
	for range 100 {
		if again, _ := c.Encode(s); !slices.Equal(first, again) {
			t.Fatal("the same service was encoded differently")
		}
	}
	got := resources(t, c, s)[0].Annotations
	if got["xds-bridge.attribute/team.name"] != "dot" || len(got) != 3 {
		t.Errorf("annotations %v", got)
	}
}

// FuzzEncode shows that ServiceEntries of any service follow Istio's rules, and that their
// hosts have the suffix of the registry.
func FuzzEncode(f *testing.F) {
	f.Add("api.Greeter", "1.0", "g", "tri", "10.0.0.1", "k", "v", "r/z/s")
	f.Add("kubernetes.default.svc.cluster.local", "", "", "", "::1", "../../x", "\x1b[31m", "/")
	f.Add("A$B", "*", ":", "dubbo\n", "a.example.com", "", strings.Repeat("x", 300), "名")
	c := codec(f, options())
	f.Fuzz(func(t *testing.T, iface, version, group, protocol, host, k, v, zone string) {
		s := &registry.Service{Name: "n", Protocol: protocol, Interfaces: []registry.Interface{{Name: iface, Version: version, Group: group}}}
		s.Attributes = registry.Attributes{k: v}
		s.Endpoints = []registry.Endpoint{{Host: host, Port: 1, Zone: zone, Attributes: registry.Attributes{k: v}}, at("10.0.0.9", 2)}
		for _, r := range resources(t, c, s) {
			check(t, r)
		}
	})
}

func check(t *testing.T, r resource) {
	t.Helper()
	if !options().Hosts.Has(r.Host) || len(r.Host) > 253 || strings.ToLower(r.Host) != r.Host {
		t.Fatalf("host %q", r.Host)
	}
	for label := range strings.SplitSeq(r.Host+"."+r.Port.Name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || label[0] == '-' || label[len(label)-1] == '-' {
			t.Fatalf("label %q in %s, port %s", label, r.Host, r.Port.Name)
		}
	}
	if r.Port.Number == 0 {
		t.Fatal("port 0")
	}
	for _, e := range r.Endpoints {
		if e.Port == 0 || serviceentry.IsName(e.Address) && (len(e.Address) > 253 || strings.Trim(e.Address, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "") {
			t.Fatalf("endpoint %+v", e)
		}
		for k, v := range e.Labels {
			if len(v) > 63 || strings.Trim(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" || k == "" {
				t.Fatalf("label %q: %q", k, v)
			}
		}
	}
}

// TestCodec_SharedAttributes shows that endpoints have the attributes of their service as
// labels, so that a subset of the only version has all of them.
func TestCodec_SharedAttributes(t *testing.T) {
	t.Parallel()
	for label, first := range map[string][]string{"": nil, "version": {`#subsets {"label":"version"}`}} {
		o := options()
		o.SubsetLabel = label
		s := &registry.Service{
			Name: "a", Protocol: "grpc", Attributes: registry.Attributes{"version": "v1", "methods": "a,b", "bad key": "x"},
			Endpoints: []registry.Endpoint{
				{Host: "10.0.0.1", Port: 1},
				{Host: "10.0.0.2", Port: 1, Attributes: registry.Attributes{"version": "v2"}},
				{Host: "10.0.0.3", Port: 1, Attributes: registry.Attributes{"app": "b"}},
			},
		}
		entries, err := codec(t, o).Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries[1:] {
			got = append(got, e.Key+" "+e.Value)
		}
		want := slices.Concat(first, []string{
			`10.0.0.1:1 {"address":"10.0.0.1","port":1,"labels":{"version":"v1"}}`,
			`10.0.0.2:1 {"address":"10.0.0.2","port":1,"labels":{"version":"v2"}}`,
			`10.0.0.3:1 {"address":"10.0.0.3","port":1,"labels":{"app":"b","version":"v1"}}`,
		})
		if !slices.Equal(got, want) {
			t.Errorf("subsets by %q: entries\n%q\nwant\n%q", label, got, want)
		}
	}
	if _, err := serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}, Namespace: "mesh", SubsetLabel: "no label",
	}); err == nil {
		t.Error("a label that is none is accepted")
	}
}
