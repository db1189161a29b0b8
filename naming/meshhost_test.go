package naming_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
)

func meshHosts() naming.MeshHosts {
	return naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}
}

func key(iface, version, group string) naming.ServiceKey {
	return naming.ServiceKey{Category: naming.Providers, Interface: iface, Version: version, Group: group}
}

func TestMeshHosts(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		name naming.MeshName
		want string
	}{
		"plain":             {naming.MeshName{Key: key("org.acme.greeter", "", "")}, "org.acme.greeter.k0-0.zk1.bridge.internal"},
		"upper case":        {naming.MeshName{Key: key("org.acme.GreetService", "", "")}, "org.acme.x-greet-service.k0-0.zk1.bridge.internal"},
		"version and group": {naming.MeshName{Key: key("api.Greeter", "1.0.0", "g1")}, "api.x-greeter.1.0.0.g1.k3-1.zk1.bridge.internal"},
		"inner class":       {naming.MeshName{Key: key("a.A$B", "", "")}, "a.x-a-2-b.k0-0.zk1.bridge.internal"},
		"underscore":        {naming.MeshName{Key: key("a_b", "", "")}, "a-1b.k0-0.zk1.bridge.internal"},
		"hyphen":            {naming.MeshName{Key: key("a-b", "", "")}, "a-0b.k0-0.zk1.bridge.internal"},
		"an x in front":     {naming.MeshName{Key: key("xa", "", "")}, "xxa.k0-0.zk1.bridge.internal"},
		"protocol":          {naming.MeshName{Key: key("a", "1", ""), Protocol: "tri"}, "a.1.k1-0-tri.zk1.bridge.internal"},
		"application":       {naming.MeshName{Name: "Shop_App", Protocol: "dubbo"}, "x-shop-1-app.s-dubbo.zk1.bridge.internal"},
		"odd protocol":      {naming.MeshName{Name: "a", Protocol: "My-P"}, "a.s-x-my-0-p.zk1.bridge.internal"},
		"other script":      {naming.MeshName{Key: key("é", "", "")}, "x-9c3-9a9.k0-0.zk1.bridge.internal"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := meshHosts().Of(c.name)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if back, err := meshHosts().Parse(got); err != nil || back != c.name {
				t.Errorf("back: %v, %v", back, err)
			}
			if _, err := naming.ParseHostAddress(got + ":80"); err != nil {
				t.Errorf("no host: %v", err)
			}
		})
	}
}

func TestMeshHost_Distinct(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, name := range []string{"a.b", "a-b", "a_b", "a:b", "A.b", "a.B", "xA", "X", "x-x", "a", "a.", ".a", "..", "-", "x", "1.0", "é", "a$b"} {
		host := meshHosts().Of(naming.MeshName{Name: name})
		if other, exists := seen[host]; exists {
			t.Errorf("%q and %q are both %s", name, other, host)
		}
		seen[host] = name
		if back, err := meshHosts().Parse(host); err != nil || back.Name != name {
			t.Errorf("%q came back as %q, %v", name, back, err)
		}
	}
	if a, b := meshHosts().Of(naming.MeshName{Key: key("a.b", "1", "")}), meshHosts().Of(naming.MeshName{Key: key("a.b", "", "1")}); a == b {
		t.Errorf("version and group are both %s", a)
	}
}

func TestMeshHost_LongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("org.acme.", 33) + "Service"
	of := func(name string) string { return meshHosts().Of(naming.MeshName{Name: name}) }
	host, other := of(long), of(long+"2")
	if host == other || host != of(long) {
		t.Errorf("Of = %s and %s, want two hosts, and the same for one name", host, other)
	}
	if _, err := naming.ParseHostAddress(host + ":80"); err != nil {
		t.Errorf("ParseHostAddress(%s:80): %v", host, err)
	}
	if _, err := meshHosts().Parse(host); !errors.Is(err, naming.ErrShortened) {
		t.Errorf("Parse(%s) = %v, want ErrShortened", host, err)
	}
}

func TestMeshHost_Suffix(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kubernetes.default.svc.cluster.local", "istiod.istio-system.svc", "*.com", "*", "a.zk1.bridge.internal", "../../x", "a/b"} {
		if host := meshHosts().Of(naming.MeshName{Name: name}); !meshHosts().Has(host) || strings.ContainsAny(host, "*/") {
			t.Errorf("Of(%q) = %s, want a host of the suffix", name, host)
		}
	}
	for _, host := range []string{"kubernetes.default.svc.cluster.local", "a.k0-0.zk2.bridge.internal", "a.q.zk1.bridge.internal", "a.k9-9.zk1.bridge.internal", ".zk1.bridge.internal"} {
		if _, err := meshHosts().Parse(host); err == nil {
			t.Errorf("Parse(%s) = nil, want an error", host)
		}
	}
}

func TestMeshHostsCheck(t *testing.T) {
	t.Parallel()
	if err := meshHosts().Check(); err != nil {
		t.Errorf("Check = %v, want nil", err)
	}
	for _, m := range []naming.MeshHosts{
		{}, {Registry: "ZK", Suffix: "a.b"}, {Registry: "a.b", Suffix: "c"}, {Registry: "a", Suffix: "b_c"}, {Registry: "a", Suffix: strings.Repeat("b.", 70) + "c"},
	} {
		if err := m.Check(); err == nil {
			t.Errorf("%+v passed", m)
		}
	}
}

func FuzzMeshHosts(f *testing.F) {
	for _, s := range []string{"org.acme.GreetService", "A$B", "a:b", "", "x-", "é", "\x00", "..", strings.Repeat("A", 100)} {
		f.Add(s, "1.0.0", "g", "tri")
	}
	f.Fuzz(func(t *testing.T, iface, version, group, protocol string) {
		for _, n := range []naming.MeshName{{Key: key(iface, version, group), Protocol: protocol}, {Name: iface, Protocol: protocol}} {
			if n.Name == "" && n.Key == (naming.ServiceKey{}) {
				continue
			}
			host := meshHosts().Of(n)
			if _, err := naming.ParseHostAddress(host + ":1"); err != nil || strings.ToLower(host) != host || !meshHosts().Has(host) {
				t.Fatalf("%+v: %s: %v", n, host, err)
			}
			back, err := meshHosts().Parse(host)
			if !errors.Is(err, naming.ErrShortened) && (err != nil || back != n) {
				t.Fatalf("%+v is encoded as %s, and that decoded as %+v, %v", n, host, back, err)
			}
		}
	})
}
