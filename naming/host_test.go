package naming_test

import (
	"net/netip"
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

func TestPattern(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pattern, host, star string
		match               bool
	}{
		"a name matches itself":                 {"a.shop", "a.shop", "", true},
		"a name does not match another":         {"a.shop", "b.shop", "", false},
		"a star in front":                       {"*.shop.svc.cluster.local", "a.shop.svc.cluster.local", "a", true},
		"a star matches several labels":         {"*.svc.cluster.local", "a.shop.svc.cluster.local", "a.shop", true},
		"a star matches at least one character": {"*.shop", ".shop", "", false},
		"the parent of a star":                  {"*.shop", "shop", "", false},
		"a star inside":                         {"order-*.shop", "order-api.shop", "api", true},
		"a star at the end":                     {"order.*", "order.shop.svc", "shop.svc", true},
		"overlapping ends":                      {"ab*ba", "aba", "", false},
		"only a star":                           {"*", "a.shop", "a.shop", true},
		"only a star, nothing":                  {"*", "", "", false},
		"case and trailing dot":                 {"*.Shop", "API.shop.", "api", true},
		"other cluster domain":                  {"*.shop.svc.corp.example", "a.shop.svc.corp.example", "a", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := naming.ParsePattern(c.pattern)
			if err != nil {
				t.Fatal(err)
			}
			star, match := p.Capture(c.host)
			if star != c.star || match != c.match || p.MatchHost(c.host) != c.match {
				t.Errorf("got %q, %v", star, match)
			}
			if p.String() != c.pattern {
				t.Errorf("written back as %q", p)
			}
		})
	}
}

func TestPatternOfNames(t *testing.T) {
	t.Parallel()
	p, err := naming.ParsePattern("providers:com.shop.*:1.0:")
	if err != nil {
		t.Fatal(err)
	}
	if !p.Match("providers:com.shop.Order:1.0:") || p.Match("providers:com.Shop.Order:1.0:") {
		t.Error("names are to be matched case by case")
	}
	if (naming.Pattern{}).Match("") || (naming.Pattern{}).MatchHost("a") {
		t.Error("the zero pattern matches something")
	}
}

func TestPatternRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"empty":             "",
		"two stars":         "*.*.shop",
		"brackets":          "[ab].shop",
		"question mark":     "a?.shop",
		"slash":             "a/b",
		"CRLF":              "a\r\nb",
		"right to left":     "a\u202eb",
		"over 512 bytes":    strings.Repeat("a", 513),
		"space":             "a b",
		"terminal sequence": "\x1b[2J",
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := naming.ParsePattern(text)
			expectRefused(t, text, err)
		})
	}
}

func FuzzPattern(f *testing.F) {
	f.Fuzz(func(t *testing.T, pattern, host string) {
		p, err := naming.ParsePattern(pattern)
		if err != nil {
			expectRefused(t, pattern, err)
			return
		}
		star, match := p.Capture(host)
		lowered := strings.ToLower(strings.TrimSuffix(host, "."))
		if match && strings.Replace(strings.ToLower(pattern), "*", star, 1) != lowered {
			t.Errorf("%q is said to match %q with %q", pattern, host, star)
		}
	})
}

func TestReach(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reach naming.Reach
		host  string
		want  string // in the reason; empty: offered
	}{
		"an ordinary address":                   {host: "10.0.0.1"},
		"an ordinary name":                      {host: "a.example.com"},
		"loopback":                              {host: "127.0.0.1", want: "loopback"},
		"loopback of IPv6":                      {host: "::1", want: "loopback"},
		"unspecified":                           {host: "0.0.0.0", want: "unspecified"},
		"link-local":                            {host: "169.254.1.1", want: "link-local"},
		"a metadata service":                    {host: "169.254.169.254", want: "metadata"},
		"a metadata service by its name":        {host: "metadata.google.internal", want: "metadata"},
		"loopback in IPv6":                      {host: "::ffff:127.0.0.1", want: "loopback"},
		"metadata in IPv6":                      {host: "::ffff:100.100.100.200", want: "metadata"},
		"metadata with a zone":                  {host: "fd00:ec2::254%eth0", want: "metadata"},
		"loopback in IPv6, allowed":             {reach: naming.Reach{Allow: prefixes("127.0.0.0/8")}, host: "::ffff:127.0.0.1"},
		"a short form":                          {host: "127.1", want: "number"},
		"a number":                              {host: "2130706433", want: "number"},
		"a number in base 16":                   {host: "0x7f000001", want: "number"},
		"own machine in DNS's form":             {host: "LOCALHOST.", want: "own machine"},
		"a name with numbers":                   {host: "node-7.rack.12a"},
		"multicast":                             {host: "224.0.0.1", want: "multicast"},
		"broadcast":                             {host: "255.255.255.255", want: "broadcast"},
		"the caller's own machine":              {host: "localhost", want: "own machine"},
		"loopback that is allowed":              {reach: naming.Reach{Allow: prefixes("127.0.0.0/8")}, host: "127.0.0.1"},
		"unspecified is never allowed":          {reach: naming.Reach{Allow: prefixes("0.0.0.0/0")}, host: "0.0.0.0", want: "unspecified"},
		"within the networks":                   {reach: naming.Reach{Only: prefixes("10.0.0.0/8")}, host: "10.1.2.3"},
		"outside the networks":                  {reach: naming.Reach{Only: prefixes("10.0.0.0/8")}, host: "192.0.2.1", want: "outside"},
		"a network in only is not an exception": {reach: naming.Reach{Only: prefixes("127.0.0.0/8")}, host: "127.0.0.1", want: "loopback"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.reach.Refuse(tt.host)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s: %q, want %q in it", tt.host, got, tt.want)
			}
		})
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
