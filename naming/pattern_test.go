package naming_test

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pattern, host, star string
		match               bool
	}{
		"a name matches itself":           {"a.shop", "a.shop", "", true},
		"a name matches no other":         {"a.shop", "b.shop", "", false},
		"a star in front":                 {"*.shop.svc.cluster.local", "a.shop.svc.cluster.local", "a", true},
		"a star takes several labels":     {"*.svc.cluster.local", "a.shop.svc.cluster.local", "a.shop", true},
		"a star takes at least something": {"*.shop", ".shop", "", false},
		"the parent of a star":            {"*.shop", "shop", "", false},
		"a star inside":                   {"order-*.shop", "order-api.shop", "api", true},
		"a star at the end":               {"order.*", "order.shop.svc", "shop.svc", true},
		"overlapping ends":                {"ab*ba", "aba", "", false},
		"a star alone":                    {"*", "a.shop", "a.shop", true},
		"a star alone, nothing":           {"*", "", "", false},
		"case and trailing dot":           {"*.Shop", "API.shop.", "api", true},
		"other cluster domain":            {"*.shop.svc.corp.example", "a.shop.svc.corp.example", "a", true},
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
