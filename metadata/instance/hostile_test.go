package instance_test

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// hostile are the names and values of the corpus of bad input.
func hostile() map[string]string {
	return map[string]string{
		"a path": "../../x", "an escape": "%2F", "NUL": "a\x00b", "line ends": "a\r\nb", "a terminal's": "\x1b[31mred",
		"right to left": "a\u202eb", "emoji": "a😀b", "64 kB": strings.Repeat("x", 64<<10), "a homoglyph": "pаypal",
		"nothing": "", "Nacos's separator": "a@@b", "a comma": "a,b", "a semicolon": "a;b", "a slash": "a/b", "dots": "..",
		"not UTF-8": "a\xffb", "quotes": `a"b\c`, "a mark": `"xdsb":"0000000000000"`, "a query": "a?b=c#d", "a space": "a b",
	}
}

// TestHostileNames shows that a name is encoded and decoded unchanged, or refused with a
// reason, and is never under another parent.
func TestHostileNames(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		for name, bad := range hostile() {
			s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
			s.Application = bad
			c := f.codec(t, marked())
			entries, err := c.Encode(s)
			if len(entries) == 0 {
				if err == nil || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x00\r\x1b\u202e") {
					t.Errorf("%s: nothing is written: %.2000q", name, err)
				}
				continue
			}
			services, failures := c.Decode(entries, nil)
			if len(failures) > 0 || len(services) != 1 || services[0].Application != bad {
				t.Errorf("%s: came back as %s", name, render(services, failures))
			}
			if z, ok := c.(*instance.ZooKeeper); ok {
				parent, err := z.Parent(entries[0].Group)
				if under := strings.TrimSuffix(f.root, "/") + "/"; err != nil || strings.Contains(strings.TrimPrefix(parent, under), "/") {
					t.Errorf("%s: parent %q %v", name, parent, err)
				}
			}
		}
	})
}

// TestHostileMetadata shows that a key or a value is encoded and decoded unchanged, or left
// out with a reason.
func TestHostileMetadata(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		for name, bad := range hostile() {
			for _, attributes := range []registry.Attributes{{"x-hostile": bad}, {bad: "x-hostile"}} {
				if bad == "" {
					continue
				}
				s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Attributes: attributes})
				c := f.codec(t, marked())
				services, failures := c.Decode(encode(t, c, s), nil)
				if len(failures) > 0 || len(services) != 1 {
					t.Fatalf("%s: %s", name, render(services, failures))
				}
				switch left := leftOut(c, s); {
				case len(bad) > 9000 || !utf8.ValidString(bad):
					if left == nil || len(services[0].Attributes) > 0 {
						t.Errorf("%s: written, or left out in silence: %v", name, left)
					}
				case !maps.Equal(services[0].Attributes, attributes):
					t.Errorf("%s: came back as %q", name, services[0].Attributes)
				}
			}
		}
	})
}

// TestEncode_Trim shows that required metadata is kept, that more important metadata is
// preferred, and that the error names the metadata that does not fit.
func TestEncode_Trim(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		o := marked()
		o.Reserve = f.limit() - 300
		c := f.codec(t, o)
		s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Zone: "eu/a", Attributes: registry.Attributes{
			"a": strings.Repeat("x", 100), "b": strings.Repeat("y", 250), "c": "short",
		}})
		entries := encode(t, c, s)
		if left := leftOut(c, s); left == nil || !strings.Contains(left.Error(), `left out: "b"`) {
			t.Errorf("left out: %v", left)
		}
		if v := entries[0].Value; !strings.Contains(v, "xxx") || strings.Contains(v, "yyy") || !strings.Contains(v, `"c":"short"`) ||
			!strings.Contains(v, `"meshLocality":"eu/a"`) || !strings.Contains(v, `"xdsb":`) {
			t.Errorf("kept the wrong ones: %s", v)
		}
		o.Reserve = f.limit() - 5
		if got, err := f.codec(t, o).Encode(s); !fails(err) {
			t.Errorf("what identifies an instance did not fit, and was written: %v", got)
		}
	})
}

func TestDecode_InvalidAddresses(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		for name, e := range map[string]registry.Endpoint{
			"port 0": {Host: "10.0.0.1"}, "unspecified": {Host: "0.0.0.0", Port: 1}, "a zone": {Host: "fe80::1%eth0", Port: 1},
			"no host": {Port: 1}, "a broken IP address": {Host: "256.1.1.1", Port: 1}, "a path": {Host: "a/../b", Port: 1},
		} {
			s := one(e)
			c := f.codec(t, marked())
			if got, err := c.Encode(s); !fails(err) {
				t.Errorf("%s: wrote %v", name, got)
			}
			s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0.9", Port: 9})
			if got := encode(t, c, s); len(got) != 1 {
				t.Errorf("%s: its neighbour was harmed: %v", name, got)
			}
		}
	})
}

// TestOneAddressTwice shows that one address is one instance.
func TestOneAddressTwice(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1})
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0.1", Port: 1, PortName: "second"})
		c := f.codec(t, marked())
		if got := encode(t, c, s); len(got) != 1 || leftOut(c, s) == nil {
			t.Errorf("wrote %v, left out %v", got, leftOut(c, s))
		}
	})
}
