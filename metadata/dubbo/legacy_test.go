package dubbo_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// instanceIn returns an instance of api.Greeter in a service of Nacos.
func instanceIn(service, host, version, group string) registry.Entry {
	in := metadata.NacosInstance{IP: host, Port: 1, Weight: 1, Healthy: true, Enabled: true, Metadata: map[string]string{
		"protocol": "dubbo", "interface": "api.Greeter", "path": "api.Greeter", "category": "providers", "version": version, "group": group,
	}}
	return registry.Entry{Group: registry.Group{Kind: dubbo.Kind, Group: "DEFAULT_GROUP", Name: service}, Key: in.Key(), Value: in.String()}
}

// TestNacos_LegacyNames shows names of Dubbo up to 2.6 and 2.7.1, without empty parts.
func TestNacos_LegacyNames(t *testing.T) {
	n := nacos(t, dubbo.Options{})
	entries := []registry.Entry{
		instanceIn("providers:api.Greeter", "10.0.0.1", "", ""),
		instanceIn("providers:api.Greeter::", "10.0.0.1", "", ""), // of a provider that registers both
		instanceIn("providers:api.Greeter:1.0.0", "10.0.0.2", "1.0.0", ""),
		instanceIn("providers:api.Greeter:blue", "10.0.0.3", "", "blue"),
		instanceIn("providers:api.Greeter:blue", "10.0.0.4", "blue", ""),
		instanceIn("providers:api.Greeter:1.0.0:blue", "10.0.0.5", "1.0.0", "blue"),
		instanceIn("providers:api.Greeter", "10.0.0.6", "1.0.0", ""),
		instanceIn("providers:api.Greeter:1.0.0", "10.0.0.7", "", ""),
	}
	services, failures := n.Decode(entries, nil)
	var got []string
	for _, s := range services {
		got = append(got, string(s.Name)+" "+s.Endpoints[0].Host)
	}
	want := []string{
		"dubbo-interface:@DEFAULT_GROUP/providers:api.Greeter::/providers:api.Greeter 10.0.0.1",
		"dubbo-interface:@DEFAULT_GROUP/providers:api.Greeter:1.0.0:/providers:api.Greeter:1.0.0 10.0.0.2",
		"dubbo-interface:@DEFAULT_GROUP/providers:api.Greeter:1.0.0:blue 10.0.0.5",
		"dubbo-interface:@DEFAULT_GROUP/providers:api.Greeter:: 10.0.0.1",
		"dubbo-interface:@DEFAULT_GROUP/providers:api.Greeter::blue/providers:api.Greeter:blue 10.0.0.3",
		"dubbo-interface:@DEFAULT_GROUP/providers:api.Greeter:blue:/providers:api.Greeter:blue 10.0.0.4",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Decode:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(failures) != 2 {
		t.Errorf("failures = %v, want the two instances in a service that is not theirs", failures)
	}
}

// TestNacos_LegacyNamesMeet shows that a provider that registers under both names is one
// entry in every target.
func TestNacos_LegacyNamesMeet(t *testing.T) {
	n := nacos(t, dubbo.Options{})
	services, _ := n.Decode([]registry.Entry{
		instanceIn("providers:api.Greeter", "10.0.0.1", "", ""), instanceIn("providers:api.Greeter::", "10.0.0.1", "", ""),
	}, nil)
	if len(services) != 2 {
		t.Fatalf("Decode = %d services, want 2", len(services))
	}
	mesh, err := serviceentry.New(serviceentry.Options{Namespace: "imported", Hosts: naming.MeshHosts{Registry: "nacos", Suffix: "bridge"}, Mark: marked().Mark})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]metadata.Encoder{"nacos": n, "zookeeper": zookeeper(t, marked()), "mesh": mesh} {
		t.Run(name, func(t *testing.T) {
			a, _ := c.Encode(services[0])
			b, _ := c.Encode(services[1])
			if text(a) != text(b) || len(a) == 0 {
				t.Errorf("Encode:\n%s\nand:\n%s", text(a), text(b))
			}
		})
	}
}

// TestNacos_ScopeOfLegacyNames shows that while a service with a legacy name is unknown, all
// services are unknown whose entries in a target may belong to it.
func TestNacos_ScopeOfLegacyNames(t *testing.T) {
	n := nacos(t, dubbo.Options{})
	for service, tt := range map[string]struct{ in, out []string }{
		"providers:api.Greeter": {
			in:  []string{"providers:api.Greeter::", "providers:api.Greeter::/providers:api.Greeter"},
			out: []string{"providers:api.Greeters::"},
		},
		"providers:api.Greeter:blue": {
			in: []string{
				"providers:api.Greeter:blue:", "providers:api.Greeter::blue", "providers:api.Greeter::blue/providers:api.Greeter:blue",
			},
		},
		"providers:api.Greeter::": {
			in:  []string{"providers:api.Greeter::"},
			out: []string{"providers:api.Greeter::blue", "providers:api.Greeter::/providers:api.Greeter"},
		},
	} {
		scope := n.Scope(registry.Group{Kind: dubbo.Kind, Group: "DEFAULT_GROUP", Name: service})
		covers := func(name string) bool {
			name = "dubbo-interface:@DEFAULT_GROUP/" + name
			prefix, isPrefix := strings.CutSuffix(scope, "*")
			return name == scope || isPrefix && strings.HasPrefix(name, prefix)
		}
		for _, name := range tt.in {
			if !covers(name) {
				t.Errorf("Scope(%s) = %s, without %s", service, scope, name)
			}
		}
		for _, name := range tt.out {
			if covers(name) {
				t.Errorf("Scope(%s) = %s, with %s", service, scope, name)
			}
		}
	}
}

// TestNacos_WritesLegacyNames shows that with the option consumers find a service under
// both names.
func TestNacos_WritesLegacyNames(t *testing.T) {
	o := marked()
	o.LegacyNames = true
	n := nacos(t, o)
	s := greeter()
	s.Interfaces = []registry.Interface{
		{Name: "api.Greeter"},
		{Name: "api.Greeter", Version: "1.0.0"},
		{Name: "api.Greeter", Group: "g1"},
		{Name: "api.Greeter", Version: "1.0.0", Group: "g1"},
	}
	values := make(map[string][]string) // by service
	for _, e := range encode(t, n, s) {
		values[e.Group.Name] = append(values[e.Group.Name], e.Key+" "+e.Value)
	}
	for legacy, full := range map[string]string{
		"providers:api.Greeter": "providers:api.Greeter::", "providers:api.Greeter:1.0.0": "providers:api.Greeter:1.0.0:",
		"providers:api.Greeter:g1": "providers:api.Greeter::g1",
	} {
		if len(values[full]) == 0 || !slices.Equal(values[legacy], values[full]) {
			t.Errorf("%s = %v, want as %s: %v", legacy, values[legacy], full, values[full])
		}
	}
	if len(values) != 7 || len(values["providers:api.Greeter:1.0.0:g1"]) == 0 {
		t.Errorf("%d services, want 7", len(values))
	}
}
