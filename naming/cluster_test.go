package naming_test

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		text    string
		want    naming.Cluster
		address string
	}{
		"plain": {
			"outbound|20000||a.shop.svc.cluster.local",
			naming.Cluster{Direction: naming.Outbound, Port: 20000, Host: "a.shop.svc.cluster.local"},
			"a.shop.svc.cluster.local:20000",
		},
		"subset": {
			"outbound|80|v1|host", naming.Cluster{Direction: naming.Outbound, Port: 80, Subset: "v1", Host: "host"}, "host:80",
		},
		"SNI form": {
			"outbound_.80_._.a.shop", naming.Cluster{Direction: naming.Outbound, Port: 80, Host: "a.shop"}, "a.shop:80",
		},
		"SNI form with a subset": {
			"outbound_.80_.v1_.a.shop", naming.Cluster{Direction: naming.Outbound, Port: 80, Subset: "v1", Host: "a.shop"}, "a.shop:80",
		},
		"wildcard host": {
			"outbound|443||*.example.com", naming.Cluster{Direction: naming.Outbound, Port: 443, Host: "*.example.com"}, "*.example.com:443",
		},
		"inbound without a host": {
			"inbound|8080||", naming.Cluster{Direction: naming.Inbound, Port: 8080}, ":8080",
		},
		"case is kept, because the name is asked for again": {
			"outbound|80||Shop.Example", naming.Cluster{Direction: naming.Outbound, Port: 80, Host: "Shop.Example"}, "shop.example:80",
		},
		"IP address": {
			"outbound|80||10.0.0.1", naming.Cluster{Direction: naming.Outbound, Port: 80, Host: "10.0.0.1"}, "10.0.0.1:80",
		},
		"other cluster domain": {
			"outbound|80||a.b.svc.corp.example", naming.Cluster{Direction: naming.Outbound, Port: 80, Host: "a.b.svc.corp.example"}, "a.b.svc.corp.example:80",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := naming.ParseCluster(c.text)
			if err != nil || got != c.want {
				t.Fatalf("got %+v, %v", got, err)
			}
			if c.text != got.String() && c.text != got.SNI() {
				t.Errorf("written back as %s and %s", got, got.SNI())
			}
			if got.HostAddress().String() != c.address {
				t.Errorf("host address %s, want %s", got.HostAddress(), c.address)
			}
		})
	}
}

func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"empty":               "",
		"BlackHoleCluster":    "BlackHoleCluster",
		"PassthroughCluster":  "PassthroughCluster",
		"inbound passthrough": "InboundPassthroughCluster",
		"agent":               "agent",
		"two pipes":           "outbound|80|host",
		"four pipes":          "outbound|80||host|x",
		"nothing but pipes":   "|||",
		"unknown direction":   "sideways|80||host",
		"port 0":              "outbound|0||host",
		"port 70000":          "outbound|70000||host",
		"no port":             "outbound|||host",
		"outbound, no host":   "outbound|80||",
		"mixed forms":         "outbound_.80|_.host",
		"subset with a dot":   "outbound|80|v.1|host",
		"star inside":         "outbound|80||a.*.b",
		"only a wildcard":     "outbound|80||*.",
		"wildcard of an IP":   "outbound|80||*.[::1]",
		"64 kB of pipes":      strings.Repeat("|", 64<<10),
	}
	for name, text := range hostile() {
		if text != "a." {
			cases[name+" as host"] = "outbound|80||" + text
		}
		cases[name+" as subset"] = "outbound|80|" + text + "|host"
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := naming.ParseCluster(text)
			expectRefused(t, text, err)
		})
	}
}

func FuzzCluster(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		c, err := naming.ParseCluster(text)
		if err != nil {
			expectRefused(t, text, err)
			return
		}
		if text != c.String() && text != c.SNI() {
			t.Errorf("%q is written back as %q and %q", text, c, c.SNI())
		}
		for _, form := range []string{c.String(), c.SNI()} {
			if again, err := naming.ParseCluster(form); err != nil || again != c {
				t.Errorf("%q is read back as %v, %v", form, again, err)
			}
		}
		if c.Host == "" || strings.HasPrefix(c.Host, "*") {
			return
		}
		if a, err := naming.ParseHostAddress(c.HostAddress().String()); err != nil || a != c.HostAddress() {
			t.Errorf("%v: host address %v is read back as %v, %v", c, c.HostAddress(), a, err)
		}
	})
}
