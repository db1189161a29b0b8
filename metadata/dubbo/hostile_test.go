package dubbo_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

func hostile() map[string]string {
	return map[string]string{
		"a path upwards":    "../../x",
		"a slash":           "a/b",
		"an escaped slash":  "a%2Fb",
		"NUL":               "a\x00b",
		"CRLF":              "a\r\nb",
		"ANSI":              "a\x1b[31mb",
		"right to left":     "a\u202eb",
		"an emoji":          "a\U0001F600b",
		"64 kB":             strings.Repeat("a", 64<<10),
		"a homoglyph":       "\u0430pi.Greeter",
		"Nacos's separator": "a@@b",
		"a comma":           "a,b",
		"a semicolon":       "a;b",
		"a colon":           "a:b",
		"a query":           "a?b=c&d",
		"two dots":          "..",
		"invalid UTF-8":     "a\xffb",
		"a parent of Dubbo": "mapping",
	}
}

func TestHostileNames(t *testing.T) {
	for name, bad := range hostile() {
		t.Run("interface: "+name, func(t *testing.T) {
			s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
			s.Interfaces = append(s.Interfaces, registry.Interface{Name: bad})
			for _, c := range []metadata.Codec{zookeeper(t, marked()), nacos(t, marked())} {
				if got := encode(t, c, s); len(got) != 1 || !strings.Contains(got[0].Group.Name, "api.Greeter") {
					t.Errorf("wrote %v, want only the valid interface", got)
				}
				if err := leftOut(c, s); err == nil || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x00\r\x1b\u202e") {
					t.Errorf("left out: %q", err)
				}
				s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
				s.Interfaces = []registry.Interface{{Name: bad}}
				if got, err := c.Encode(s); !fails(err) {
					t.Errorf("nothing can be written and nothing is said: %v", got)
				}
			}
		})
		t.Run("attribute: "+name, func(t *testing.T) {
			s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Attributes: registry.Attributes{"x-hostile": bad}})
			z := zookeeper(t, marked())
			e := encode(t, z, s)[0]
			services, failures := z.Decode([]registry.Entry{e}, nil)
			if len(failures) != 0 || len(services) != 1 {
				t.Fatalf("decoded %s", render(services, failures))
			}
			got := services[0].Attributes["x-hostile"]
			if len(bad) > 2048 || !utf8.ValidString(bad) { // what JSON cannot hold
				if got != "" || leftOut(z, s) == nil {
					t.Error("it was written, or left out in silence")
				}
			} else if got != bad {
				t.Errorf("came back as %q", got)
			}
		})
		t.Run("host: "+name, func(t *testing.T) {
			if bad == "mapping" {
				bad = "256.1.1.1"
			}
			if entries, err := zookeeper(t, marked()).Encode(one(registry.Endpoint{Host: bad, Port: 1})); !fails(err) && len(bad) > 253 {
				t.Errorf("wrote %v", entries)
			}
		})
	}
}

func TestDecode_InvalidAddresses(t *testing.T) {
	for name, e := range map[string]registry.Endpoint{
		"port 0":              {Host: "10.0.0.1"},
		"unspecified":         {Host: "0.0.0.0", Port: 1},
		"unspecified IPv6":    {Host: "::", Port: 1},
		"a zone":              {Host: "fe80::1%eth0", Port: 1},
		"no host":             {Port: 1},
		"a broken IP address": {Host: "256.1.1.1", Port: 1},
		"a bracket":           {Host: "[::1]", Port: 1},
		"a path":              {Host: "a/../b", Port: 1},
		"credentials":         {Host: "u:p@a", Port: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := one(e)
			for _, c := range []metadata.Codec{zookeeper(t, marked()), nacos(t, marked())} {
				if got, err := c.Encode(s); !fails(err) {
					t.Errorf("wrote %v", got)
				}
				s := one(e)
				s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0.9", Port: 9})
				if got := encode(t, c, s); len(got) != 1 {
					t.Errorf("its neighbour was harmed: %v", got)
				}
			}
		})
	}
}

func TestEncode_MetadataLimit(t *testing.T) {
	s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
	s.Attributes = registry.Attributes{"a": strings.Repeat("x", 700), "b": strings.Repeat("y", 700), "c": "short"}
	n := nacos(t, marked())
	got := encode(t, n, s)
	if len(got) != 1 {
		t.Fatalf("wrote %v", got)
	}
	if !strings.Contains(got[0].Value, "xxx") || strings.Contains(got[0].Value, "yyy") || !strings.Contains(got[0].Value, `"c":"short"`) {
		t.Errorf("kept the wrong ones: %s", got[0].Value)
	}
	if err := leftOut(n, s); err == nil || !strings.Contains(err.Error(), "left out: \"b\"") {
		t.Errorf("left out: %v", err)
	}
	services, _ := n.Decode(got, nil)
	size := 0
	for k, v := range services[0].Attributes {
		size += len(k) + len(v)
	}
	if size > 1024 {
		t.Errorf("%d bytes of metadata", size)
	}
	t.Run("what identifies a provider does not fit", func(t *testing.T) {
		small := nacos(t, dubbo.Options{Reserve: metadata.MaxNacosMetadata - 10})
		if got, err := small.Encode(one(registry.Endpoint{Host: "10.0.0.1", Port: 1})); !fails(err) {
			t.Errorf("wrote %v", got)
		}
	})
}

func TestEncode_DuplicateAddress(t *testing.T) {
	s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
	s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0.1", Port: 1, PortName: "second"})
	z := zookeeper(t, marked())
	if got := encode(t, z, s); len(got) != 1 || leftOut(z, s) == nil {
		t.Errorf("wrote %v, left out %v", got, leftOut(z, s))
	}
}
