package dubbo_test

import (
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestGoldenEncode(t *testing.T) {
	subsets := marked()
	subsets.Subsets = true
	ruled := marked()
	ruled.Protocols = []format.ProtocolRule{{Host: "*.other.svc.cluster.local", Protocol: "rest"}, {Port: 20880, Protocol: "dubbo"}}
	for name, c := range map[string]metadata.Codec{
		"zookeeper":         zookeeper(t, marked()),
		"zookeeper-subsets": zookeeper(t, subsets),
		"zookeeper-rules":   zookeeper(t, ruled),
		"nacos":             nacos(t, subsets),
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "encode-"+name, text(encode(t, c, greeter())))
			err := leftOut(c, greeter())
			if name == "nacos" {
				if err == nil || !strings.Contains(err.Error(), "dubbo-go cannot call an IPv6 address from Nacos") {
					t.Errorf("left out: %v", err)
				}
			} else if err != nil {
				t.Errorf("left out: %v", err)
			}
		})
	}
}

func TestEncode_Unhealthy(t *testing.T) {
	for health, want := range map[registry.Health]int{
		registry.HealthUnknown: 1, registry.Healthy: 1, registry.Degraded: 1,
		registry.Unhealthy: 0, registry.Draining: 0, registry.Disabled: 0,
	} {
		t.Run(health.String(), func(t *testing.T) {
			s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Health: health})
			if got := encode(t, zookeeper(t, dubbo.Options{}), s); len(got) != want {
				t.Errorf("%d entries, want %d", len(got), want)
			}
		})
	}
}

func TestEncode_NoKeys(t *testing.T) {
	s := greeter()
	s.Interfaces = nil
	if got := encode(t, zookeeper(t, marked()), s); len(got) != 0 {
		t.Errorf("wrote %v", got)
	}
}

func TestEncode_TwoInterfaces(t *testing.T) {
	s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
	s.Interfaces = []registry.Interface{{Name: "api.A"}, {Name: "api.B"}}
	for _, e := range encode(t, zookeeper(t, dubbo.Options{}), s) {
		if !strings.Contains(e.Value, "/"+e.Group.Name+"?") || !strings.Contains(e.Value, "interface="+e.Group.Name) {
			t.Errorf("in the parent of %s: %s", e.Group.Name, e.Value)
		}
	}
}

func TestEncode_SharedAddress(t *testing.T) {
	s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
	s.Interfaces = []registry.Interface{
		{Name: "api.A"},
		{Name: "api.A", Version: "1"},
		{Name: "api.A", Group: "1"},
		{Name: "api.A", Version: "1", Group: "1"},
	}
	seen := map[string]bool{}
	for _, e := range encode(t, zookeeper(t, dubbo.Options{}), s) {
		seen[e.Key] = true
	}
	for _, key := range []string{
		"tri://10.0.0.1:1", "tri://10.0.0.1:1?version=1", "tri://10.0.0.1:1?group=1", "tri://10.0.0.1:1?group=1&version=1",
	} {
		if !seen[key] {
			t.Errorf("%s is missing of %v", key, seen)
		}
	}
}

// TestEncode_NoWeight shows that a missing weight is written like dubbo-go writes it. With
// another weight the provider would get all calls, or none.
func TestEncode_NoWeight(t *testing.T) {
	for name, c := range map[string]struct {
		release string
		weight  uint32
		want    string
	}{
		"none reported":        {"dubbo-golang-3.3.1", 0, "0"},
		"one reported":         {"dubbo-golang-3.3.1", 30, "30"},
		"of another framework": {"3.3.5", 0, "100"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &registry.Service{Interfaces: []registry.Interface{{Name: "api.Greeter"}}, Endpoints: []registry.Endpoint{{
				Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: c.weight, Attributes: registry.Attributes{"release": c.release},
			}}}
			if got := query(t, encode(t, zookeeper(t, dubbo.Options{}), s)[0].Value).Get("weight"); got != c.want {
				t.Errorf("weight %q, want %s", got, c.want)
			}
		})
	}
}

func TestWeights(t *testing.T) {
	for name, tt := range map[string]struct {
		mesh  uint32
		dubbo string
	}{
		"not reported is the default":   {0, "100"},
		"one is the default, and said":  {1, "100"},
		"a ratio is kept":               {30, "3000"},
		"the largest that keeps it":     {10_000, "1000000"},
		"more does not overflow an int": {math.MaxUint32, "1000000"},
		"the largest signed int":        {math.MaxInt32, "1000000"},
	} {
		t.Run(name, func(t *testing.T) {
			s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: tt.mesh})
			s.Attributes = registry.Attributes{"meshHostAddr": "a.b:1"}
			q := query(t, encode(t, zookeeper(t, dubbo.Options{}), s)[0].Value)
			if got := q.Get("weight"); got != tt.dubbo {
				t.Errorf("weight %q, want %q", got, tt.dubbo)
			}
			if got, want := q.Get("endPointWeight"), strconv.FormatUint(uint64(max(1, tt.mesh)), 10); got != want {
				t.Errorf("endPointWeight %q, want %s", got, want)
			}
			var stored struct{ Weight float64 }
			if err := json.Unmarshal([]byte(encode(t, nacos(t, dubbo.Options{}), s)[0].Value), &stored); err != nil || stored.Weight != 1 {
				t.Errorf("weight of the Nacos instance: %v %v, want 1", stored.Weight, err)
			}
		})
	}
}

func TestEncode_Deterministic(t *testing.T) {
	s := greeter()
	s.Attributes["timestamp"], s.Attributes["pid"] = "1795231736114", "17"
	s.Attributes["serialization"] = "hessian2"
	for _, c := range []metadata.Codec{zookeeper(t, marked()), nacos(t, marked())} {
		first := text(encode(t, c, s))
		for range 20 {
			if again := text(encode(t, c, s)); again != first {
				t.Fatalf("differs:\n%s\n%s", first, again)
			}
		}
		for _, element := range []string{"pid", "1795231736114"} {
			if strings.Contains(first, element) {
				t.Errorf("%s is written", element)
			}
		}
		if !strings.Contains(first, "hessian2") {
			t.Error("an attribute is missing")
		}
	}
}

// TestEncode_ZooKeeperTimestamp shows that the stamp changes, by which dubbo-go distinguishes a
// provider's old node from its new one.
func TestEncode_ZooKeeperTimestamp(t *testing.T) {
	stamp := func(change func(*registry.Endpoint)) string {
		e := registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: 3, Zone: "a"}
		change(&e)
		v := encode(t, zookeeper(t, marked()), one(e))[0].Value
		if n := query(t, v).Get("timestamp"); len(n) != 10 {
			t.Errorf("timestamp %q in %s", n, v)
		}
		return query(t, v).Get("timestamp")
	}
	same := stamp(func(*registry.Endpoint) {})
	if again := stamp(func(*registry.Endpoint) {}); again != same {
		t.Errorf("equal providers have the timestamps %s and %s", same, again)
	}
	for name, change := range map[string]func(*registry.Endpoint){
		"weight":   func(e *registry.Endpoint) { e.Weight = 4 },
		"zone":     func(e *registry.Endpoint) { e.Zone = "b" },
		"metadata": func(e *registry.Endpoint) { e.Attributes = registry.Attributes{"color": "green"} },
		"path":     func(e *registry.Endpoint) { e.Path = registry.Path(metadata.Hop("mesh")) },
	} {
		if stamp(change) == same {
			t.Errorf("another %s has the same timestamp", name)
		}
	}
}

// TestEncode_NacosTimestamp shows that the timestamp does not change in Nacos, where dubbo-go
// would otherwise also keep the old instance.
func TestEncode_NacosTimestamp(t *testing.T) {
	s := greeter()
	s.Attributes["timestamp"] = "1795231736114"
	if all := text(encode(t, nacos(t, marked()), s)); strings.Contains(all, "timestamp") {
		t.Errorf("Encode = %s, want no timestamp", all)
	}
}

func TestEncode_Path(t *testing.T) {
	hops := make([]string, 5)
	for i := range hops {
		hops[i] = metadata.Hop(strconv.Itoa(i))
	}
	for name, tt := range map[string]struct {
		service, endpoint registry.Path
		want              registry.Path
		refused           string
	}{
		"none":                            {},
		"the service's":                   {service: registry.Path(hops[0] + hops[3]), want: registry.Path(hops[0] + hops[3])},
		"the endpoint's own first":        {service: registry.Path(hops[0]), endpoint: registry.Path(hops[1]), want: registry.Path(hops[1])},
		"one that is too long for a mark": {service: registry.Path(hops[0] + hops[1] + hops[2] + hops[3] + hops[4]), refused: "at most 4"},
	} {
		t.Run(name, func(t *testing.T) {
			s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Path: tt.endpoint})
			s.Path = tt.service
			entries, err := zookeeper(t, marked()).Encode(s)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("error %v, want %q", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			m, err := metadata.ParseMark(query(t, entries[0].Value).Get(metadata.MarkKey))
			if err != nil || m.Path != tt.want || m.Owner != marked().Mark.Owner {
				t.Errorf("mark %+v %v, want path %q", m, err, tt.want)
			}
		})
	}
}

func TestOptions_Invalid(t *testing.T) {
	for name, tt := range map[string]struct {
		o    dubbo.Options
		want string
	}{
		"a root that leaves itself":    {dubbo.Options{Root: "/dubbo/../x"}, "root"},
		"a protocol with a slash":      {dubbo.Options{Protocol: "tri/x"}, "protocol"},
		"a rule without a protocol":    {dubbo.Options{Protocols: []format.ProtocolRule{{Host: "*"}}}, "protocols[0].protocol"},
		"a rule with a broken pattern": {dubbo.Options{Protocols: []format.ProtocolRule{{Host: "a*b*", Protocol: "tri"}}}, "protocols[0].host"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := dubbo.NewZooKeeper(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if _, err := dubbo.NewNacos(tt.o); err == nil {
				t.Error("Nacos took it")
			}
		})
	}
}

func one(e registry.Endpoint) *registry.Service {
	return &registry.Service{
		Name: "a.b.svc.cluster.local:1", Interfaces: []registry.Interface{{Name: "api.Greeter"}},
		Endpoints: []registry.Endpoint{e},
	}
}

func query(t *testing.T, value string) url.Values {
	t.Helper()
	u, err := url.Parse(value)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query()
}
