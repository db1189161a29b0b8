package naming_test

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
)

func TestHostAddress(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ text, host, want string }{
		"fqdn":                     {"a.default.svc.cluster.local:20000", "a.default.svc.cluster.local", "a.default.svc.cluster.local:20000"},
		"single label":             {"a:1", "a", "a:1"},
		"IPv4":                     {"10.0.0.1:65535", "10.0.0.1", "10.0.0.1:65535"},
		"IPv6":                     {"[2001:DB8:0::1]:80", "2001:db8::1", "[2001:db8::1]:80"},
		"IPv4 in IPv6":             {"[::ffff:10.0.0.1]:80", "10.0.0.1", "10.0.0.1:80"},
		"upper case, trailing dot": {"A.Shop.:80", "a.shop", "a.shop:80"},
		"other cluster domain":     {"a.b.svc.corp.example:80", "a.b.svc.corp.example", "a.b.svc.corp.example:80"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := naming.ParseHostAddress(c.text)
			if err != nil || got.Host != c.host || got.String() != c.want {
				t.Errorf("got %v (%q), %v", got, got.Host, err)
			}
		})
	}
}

func TestHostAddressRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"empty":                 "",
		"no port":               "a.shop",
		"empty port":            "a.shop:",
		"empty host":            ":80",
		"port 0":                "a.shop:0",
		"port 70000":            "a.shop:70000",
		"signed port":           "a.shop:+80",
		"port with zeros":       "a.shop:0080",
		"hexadecimal port":      "a.shop:0x50",
		"port in other digits":  "a.shop:٨٠",
		"IPv6 without brackets": "::1:80",
		"IPv6 zone":             "[fe80::1%eth0]:80",
		"IPv4 in brackets":      "[10.0.0.1]:80",
		"name in brackets":      "[a:b]:80",
		"half a bracket":        "[::1:80",
		"IPv4 out of range":     "10.0.0.256:80",
		"IPv4 with zeros":       "010.0.0.1:80",
		"short IPv4":            "10.1:80",
		"label over 63 bytes":   strings.Repeat("a", 64) + ".b:80",
		"host over 253 bytes":   strings.Repeat("a.", 127) + "bc:80",
		"underscore":            "a_b:80",
		"hyphen in front":       "-a:80",
		"wildcard":              "*.shop:80",
		"URL":                   "tri://a.shop:80",
		"two addresses":         "a:80,b:80",
		"surrounding space":     " a:80",
		"two dots at the end":   "a..:80",
	}
	for name, text := range hostile() {
		if text != "a." { // a trailing dot is good in DNS
			cases[name+" as host"] = text + ":80"
		}
		cases[name+" as port"] = "a.shop:" + text
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := naming.ParseHostAddress(text)
			expectRefused(t, text, err)
		})
	}
}

func TestHostAddressCompare(t *testing.T) {
	t.Parallel()
	sorted := []naming.HostAddress{{Host: "a", Port: 2}, {Host: "a", Port: 10}, {Host: "b", Port: 1}}
	for i := range sorted {
		for j := range sorted {
			if got := sorted[i].Compare(sorted[j]); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%v against %v: %d", sorted[i], sorted[j], got)
			}
		}
	}
}

func TestKubernetesHost(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		host string
		want naming.KubernetesHost
	}{
		"the usual domain":     {"a.shop.svc.cluster.local", naming.KubernetesHost{Name: "a", Namespace: "shop", Domain: "cluster.local"}},
		"another domain":       {"a.shop.svc.corp.example", naming.KubernetesHost{Name: "a", Namespace: "shop", Domain: "corp.example"}},
		"domain of one label":  {"a.shop.svc.k8s", naming.KubernetesHost{Name: "a", Namespace: "shop", Domain: "k8s"}},
		"multi-cluster":        {"a.shop.svc.clusterset.local", naming.KubernetesHost{Name: "a", Namespace: "shop", Domain: "clusterset.local"}},
		"a service called svc": {"svc.svc.svc.cluster.local", naming.KubernetesHost{Name: "svc", Namespace: "svc", Domain: "cluster.local"}},
		"not of Kubernetes":    {"api.example.com", naming.KubernetesHost{}},
		"no domain":            {"a.shop.svc", naming.KubernetesHost{}},
		"pod of a set":         {"a-0.a.shop.svc.cluster.local", naming.KubernetesHost{}},
		"path traversal":       {"../../x", naming.KubernetesHost{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := naming.ParseKubernetesHost(c.host)
			if c.want == (naming.KubernetesHost{}) {
				expectRefused(t, c.host, err)
				return
			}
			if err != nil || got != c.want || got.String() != c.host {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func FuzzHostAddress(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		address, err := naming.ParseHostAddress(text)
		if err != nil {
			expectRefused(t, text, err)
			return
		}
		again, err := naming.ParseHostAddress(address.String())
		if err != nil || again != address {
			t.Errorf("%q is %v, and read back %v, %v", text, address, again, err)
		}
		if k, err := naming.ParseKubernetesHost(address.Host); err == nil && k.String() != address.Host {
			t.Errorf("%q is written back as %q", address.Host, k)
		}
	})
}
