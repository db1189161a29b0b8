package naming_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
)

// hostile are invalid names of an attacker or an accident.
func hostile() map[string]string {
	return map[string]string{
		"path traversal":     "../../x",
		"escaped slash":      "%2F",
		"slash":              "a/b",
		"backslash":          `a\b`,
		"NUL":                "a\x00b",
		"CRLF":               "a\r\nb",
		"ANSI escape":        "a\x1b[31mb",
		"right to left":      "a\u202eb",
		"emoji":              "a🦊",
		"homoglyph":          "\u0430pi.Greeter",
		"invalid UTF-8":      "a\xff",
		"64 kB":              strings.Repeat("a", 64<<10),
		"Nacos separator":    "a@@b",
		"comma":              "a,b",
		"semicolon":          "a;b",
		"space":              "a b",
		"no-break space":     "a\u00a0b",
		"tab":                "a\tb",
		"double dot inside":  "a..b",
		"nothing but a dot":  ".",
		"nothing but dots":   "..",
		"empty after a dot":  "a.",
		"empty before a dot": ".a",
	}
}

// expectRefused checks the properties of every refusal.
func expectRefused(t *testing.T, text string, err error) {
	t.Helper()
	var typed *naming.Error
	if !errors.As(err, &typed) {
		t.Fatalf("%q was accepted; error: %v", text, err)
	}
	if typed.Reason == "" || typed.Text != naming.Quote(text) {
		t.Errorf("error does not show the offending text and a reason: %v", err)
	}
	for _, r := range err.Error() {
		if r < ' ' || r > '~' {
			t.Errorf("error is not safe to print: %q", err.Error())
		}
	}
	if len(err.Error()) > 1024 {
		t.Errorf("error has %d bytes", len(err.Error()))
	}
}

func TestServiceKey(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "1.0.0", "v1-beta_2"} {
		for _, group := range []string{"", "g1", "grey+blue"} {
			want := naming.ServiceKey{Category: naming.Providers, Interface: "org.x.Svc$Inner", Version: version, Group: group}
			t.Run("round trip of "+want.String(), func(t *testing.T) {
				t.Parallel()
				got, err := naming.ParseServiceKey(want.String())
				if err != nil || got != want {
					t.Errorf("got %+v, %v; want %+v", got, err, want)
				}
			})
		}
	}
}

func TestServiceKeyRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"empty":                          "",
		"only an interface":              "api.Greeter",
		"too few parts":                  "providers:api.Greeter:1.0",
		"colon in the group":             "providers:org.apache.Y:::tri",
		"colon in the version":           "providers:api.Greeter:1:0:g",
		"empty interface":                "providers::1.0:g",
		"unknown category":               "provider:api.Greeter::",
		"category in upper case":         "PROVIDERS:api.Greeter::",
		"legacy form where not asked":    "provider::api.Greeter",
		"a category is required":         "api.Greeter:1.0:g",
		"star, which only a reader says": "providers:api.Greeter:*:*",
		"version over 128 bytes":         "providers:a.B:" + strings.Repeat("1", 129) + ":",
		"interface over the limit":       "providers:" + strings.Repeat("a", 600) + "::",
	}
	for name, text := range hostile() {
		cases[name+" as interface"] = "providers:" + text + "::"
		if text != "." && text != ".." && text != "a." && text != ".a" && text != "a..b" {
			cases[name+" as version"] = "providers:api.Greeter:" + text + ":"
			cases[name+" as group"] = "providers:api.Greeter::" + text
		}
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := naming.ParseServiceKey(text)
			expectRefused(t, text, err)
		})
	}
}

func TestLegacyServiceKey(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ text, want string }{
		"the present form":                {"providers:api.Greeter:1:g", "providers:api.Greeter:1:g"},
		"provider without version":        {"provider::api.Greeter", "providers:api.Greeter::"},
		"provider with version and group": {"provider::api.Greeter:1:g", "providers:api.Greeter:1:g"},
		"no category":                     {"api.Greeter:1:g", "providers:api.Greeter:1:g"},
		"no category, empty parts":        {"api.Greeter::", "providers:api.Greeter::"},
		"a missing part is an error":      {"providers:api.Greeter:1", ""},
		"a missing part of the old form":  {"provider:api.Greeter:1", ""},
		"a colon too many":                {"provider::api.Greeter:1:g:x", ""},
		"nothing":                         {"", ""},
		"nothing after the category":      {"provider::", ""},
		"longer than any key":             {strings.Repeat("a", 64<<10), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := naming.ParseLegacyServiceKey(c.text)
			switch {
			case c.want == "":
				expectRefused(t, c.text, err)
			case err != nil || got.String() != c.want:
				t.Errorf("got %v, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestServiceKeyCompare(t *testing.T) {
	t.Parallel()
	sorted := []naming.ServiceKey{
		{Category: "consumers", Interface: "a"},
		{Category: "providers", Interface: "a"},
		{Category: "providers", Interface: "a", Group: "g"},
		{Category: "providers", Interface: "a", Version: "1"},
		{Category: "consumers", Interface: "b"},
	}
	for i := range sorted {
		for j := range sorted {
			if got := sorted[i].Compare(sorted[j]); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%v against %v: %d", sorted[i], sorted[j], got)
			}
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ text, want string }{
		"plain":                    {"a", `"a"`},
		"terminal escape":          {"\x1b[2J", `"\x1b[2J"`},
		"right to left":            {"\u202e", `"\u202e"`},
		"long text is cut":         {strings.Repeat("x", 100), `"` + strings.Repeat("x", 80) + `"... (100 bytes)`},
		"a rune is not cut in two": {strings.Repeat("x", 79) + "ääää", `"` + strings.Repeat("x", 79) + `"... (87 bytes)`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := naming.Quote(c.text); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func FuzzServiceKey(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		key, err := naming.ParseServiceKey(text)
		if err != nil {
			expectRefused(t, text, err)
		} else if key.String() != text {
			t.Errorf("%q is written back as %q", text, key)
		}
		made := naming.ServiceKey{Category: naming.Providers, Interface: text, Group: "g"}
		read, readErr := naming.ParseServiceKey(made.String())
		if ok := readErr == nil && read == made; ok != (made.Check() == nil) {
			t.Errorf("Check() of %+v = %v, and it is read back as %+v, %v", made, made.Check(), read, readErr)
		}
		old, oldErr := naming.ParseLegacyServiceKey(text)
		if err == nil && (oldErr != nil || old != key) {
			t.Errorf("%q means %v, and %v (%v) with legacy forms", text, key, old, oldErr)
		}
		if oldErr == nil {
			if again, err := naming.ParseServiceKey(old.String()); err != nil || again != old {
				t.Errorf("%v is read back as %v, %v", old, again, err)
			}
		}
	})
}
