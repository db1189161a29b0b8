package naming_test

import (
	"errors"
	"slices"
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

func TestMeshHosts_A35(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		key  naming.ServiceKey
		want string
	}{
		"A35 plain":             {key("org.acme.greeter", "", ""), "org.acme.greeter.k0-0.zk1.bridge.internal"},
		"A35 upper case":        {key("org.acme.GreetService", "", ""), "org.acme.x-greet-service.k0-0.zk1.bridge.internal"},
		"A35 version and group": {key("api.Greeter", "1.0.0", "g1"), "api.x-greeter.1.0.0.g1.k3-1.zk1.bridge.internal"},
		"A35 inner class":       {key("a.A$B", "", ""), "a.x-a-2-b.k0-0.zk1.bridge.internal"},
		"A35 underscore":        {key("a_b", "", ""), "a-1b.k0-0.zk1.bridge.internal"},
		"A35 hyphen":            {key("a-b", "", ""), "a-0b.k0-0.zk1.bridge.internal"},
		"A35 an x in front":     {key("xa", "", ""), "xxa.k0-0.zk1.bridge.internal"},
		"A35 other script":      {key("é", "", ""), "x-9c3-9a9.k0-0.zk1.bridge.internal"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := meshHosts().OfKey(c.key)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if back, _, err := meshHosts().Parse(got); err != nil || back != c.key {
				t.Errorf("back: %v, %v", back, err)
			}
			if _, err := naming.ParseHostAddress(got + ":80"); err != nil {
				t.Errorf("no host: %v", err)
			}
		})
	}
}

func TestMeshHostsKeepNamesApart_A35(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, name := range []string{"a.b", "a-b", "a_b", "a:b", "A.b", "a.B", "xA", "X", "x-x", "a", "a.", ".a", "..", "-", "x", "1.0", "é", "a$b"} {
		host := meshHosts().OfName(name)
		if other, taken := seen[host]; taken {
			t.Errorf("%q and %q are both %s", name, other, host)
		}
		seen[host] = name
		if _, back, err := meshHosts().Parse(host); err != nil || back != name {
			t.Errorf("%q came back as %q, %v", name, back, err)
		}
	}
	if a, b := meshHosts().OfKey(key("a.b", "1", "")), meshHosts().OfKey(key("a.b", "", "1")); a == b {
		t.Errorf("version and group are both %s", a)
	}
}

func TestMeshHostsOf300Characters_A35(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("org.acme.", 33) + "Service"
	host, other := meshHosts().OfName(long), meshHosts().OfName(long+"2")
	if host == other || host != meshHosts().OfName(long) {
		t.Errorf("%s and %s", host, other)
	}
	if _, err := naming.ParseHostAddress(host + ":80"); err != nil {
		t.Error(err)
	}
	if _, _, err := meshHosts().Parse(host); !errors.Is(err, naming.ErrShortened) {
		t.Errorf("got %v", err)
	}
}

func TestMeshHostsCannotLeaveTheirSuffix_S1(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kubernetes.default.svc.cluster.local", "istiod.istio-system.svc", "*.com", "*", "a.zk1.bridge.internal", "../../x", "a/b", ""} {
		if host := meshHosts().OfName(name); !meshHosts().Has(host) || strings.ContainsAny(host, "*/") {
			t.Errorf("%q became %s", name, host)
		}
	}
	for _, host := range []string{"kubernetes.default.svc.cluster.local", "a.k0-0.zk2.bridge.internal", "a.q.zk1.bridge.internal", "a.k9-9.zk1.bridge.internal", ".zk1.bridge.internal"} {
		if _, _, err := meshHosts().Parse(host); err == nil {
			t.Errorf("%s was taken for ours", host)
		}
	}
}

func TestMeshHostsCheck(t *testing.T) {
	t.Parallel()
	if err := meshHosts().Check(); err != nil {
		t.Error(err)
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
		f.Add(s, "1.0.0", "g")
	}
	f.Fuzz(func(t *testing.T, iface, version, group string) {
		k := key(iface, version, group)
		host := meshHosts().OfKey(k)
		if _, err := naming.ParseHostAddress(host + ":1"); err != nil || strings.ToLower(host) != host || !meshHosts().Has(host) {
			t.Fatalf("%q: %s: %v", iface, host, err)
		}
		back, _, err := meshHosts().Parse(host)
		if !errors.Is(err, naming.ErrShortened) && (err != nil || back != k) {
			t.Fatalf("%+v became %s, and that %+v, %v", k, host, back, err)
		}
		name := meshHosts().OfName(iface)
		if slices.Contains([]string{host}, name) {
			t.Fatalf("%q has the host of a key: %s", iface, name)
		}
	})
}
