package dubbo_test

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestZooKeeper_JavaNames(t *testing.T) {
	z := zookeeper(t, marked())
	s := one(registry.Endpoint{Host: "10.0.0.1", Port: 20000, Attributes: registry.Attributes{"x": "a*b~c d|é"}})
	s.Path = registry.Path(metadata.Hop("mesh"))
	e := encode(t, z, s)[0]
	parent, err := z.Parent(e.Group)
	if err != nil || parent != "/dubbo/api.Greeter/providers" {
		t.Errorf("parent %q %v", parent, err)
	}
	name, data, err := z.Node(e)
	if err != nil || len(data) != 0 {
		t.Errorf("data %q %v", data, err)
	}
	const want = "tri%3A%2F%2F10.0.0.1%3A20000%2Fapi.Greeter%3Fcategory%3Dproviders%26interface%3Dapi.Greeter%26side%3Dprovider" +
		"%26timestamp%3D1048549287%26weight%3D100%26x%3Da*b%7Ec%2520d%7C%C3%A9%26xdsb%3D"
	if !strings.HasPrefix(name, want) {
		t.Errorf("node\n %s, want\n %s", name, want)
	}
	back, mark := z.Entry(e.Group, name, nil)
	if back != e {
		t.Errorf("read back %+v, want %+v", back, e)
	}
	if mark.Owner != marked().Mark.Owner || mark.Path != registry.Path(metadata.Hop("mesh")) {
		t.Errorf("mark %+v", mark)
	}
}

func TestZooKeeper_ForeignNames(t *testing.T) {
	z := zookeeper(t, dubbo.Options{})
	g := registry.Group{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "api.Greeter"}
	for _, name := range []string{"garbage", "%zz", "tri%3a%2f%2f10.0.0.1%3a1", "a+b", "~", "tri%3A%2F%2Fnot a host"} {
		e, mark := z.Entry(g, name, nil)
		if mark.Owner != "" {
			t.Errorf("%s: has the owner %s", name, mark.Owner)
		}
		if back, _, err := z.Node(e); err != nil || back != name {
			t.Errorf("%s: node %q %v", name, back, err)
		}
	}
}

func TestParents(t *testing.T) {
	z := zookeeper(t, dubbo.Options{Root: "registry/dubbo/"})
	if got := z.Parents(); got != "/registry/dubbo/*/providers" {
		t.Errorf("pattern %q", got)
	}
	for parent, want := range map[string]string{
		"/registry/dubbo/api.Greeter/providers":       "api.Greeter",
		"/registry/dubbo/api.Outer%24Inner/providers": "api.Outer$Inner",
		"/registry/dubbo/api.Greeter/consumers":       "",
		"/registry/dubbo/metadata":                    "",
		"/registry/dubbo//providers":                  "",
		"/registry/dubbo/a/b/providers":               "",
		"/registry/dubbo/a%zz/providers":              "",
		"/dubbo/api.Greeter/providers":                "",
	} {
		g, ok := z.Group(parent)
		if ok != (want != "") || g.Name != want {
			t.Errorf("%s: %v %v", parent, g, ok)
			continue
		}
		if back, err := z.Parent(g); ok && (err != nil || back != parent) {
			t.Errorf("%s: back %q %v", parent, back, err)
		}
	}
	for _, g := range []registry.Group{
		{Kind: "other", Namespace: "/registry/dubbo", Name: "a"},
		{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "a"},
		{Kind: dubbo.Kind, Namespace: "/registry/dubbo", Name: ".."},
		{Kind: dubbo.Kind, Namespace: "/registry/dubbo"},
	} {
		if parent, err := z.Parent(g); err == nil {
			t.Errorf("%v: parent %q", g, parent)
		}
	}
	if _, _, err := z.Node(registry.Entry{Value: "a/b"}); err == nil {
		t.Error("a value with a slash is a node")
	}
	if z.HasData() || z.Kind() != dubbo.Kind {
		t.Error("the format has no data")
	}
}

// TestZooKeeper_Scopes shows that an unreadable group makes all services unknown that it may have, and
// no others.
func TestZooKeeper_Scopes(t *testing.T) {
	z := zookeeper(t, dubbo.Options{})
	scope := metadata.ScopeOf(z, registry.Group{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "api.Greeter"})
	for iface, covered := range map[registry.Interface]bool{
		{Name: "api.Greeter"}:                                true,
		{Name: "api.Greeter", Version: "1.0", Group: "blue"}: true,
		{Name: "api.Greeter2"}:                               false,
		{Name: "api.Greet"}:                                  false,
	} {
		s := one(registry.Endpoint{Host: "10.0.0.1", Port: 20000})
		s.Interfaces = []registry.Interface{iface}
		services, failures := z.Decode(encode(t, z, s), nil)
		if len(services) != 1 || len(failures) > 0 {
			t.Fatalf("%v: %v, %v", iface, services, failures)
		}
		if _, got := registry.Covering(map[string]error{scope: nil}, services[0].Name); got != covered {
			t.Errorf("%s covers %s: %v", scope, services[0].Name, got)
		}
	}
}
