package naming

import "strings"

// maxPattern is longer than any name a pattern could match.
const maxPattern = 512

// Pattern selects hosts and names: a text that stands for itself, with at most
// one star that stands for one character or more, dots included:
// `*.shop.svc.cluster.local`, `order-*.svc.cluster.local`, `*`. The zero
// Pattern matches nothing. It is comparable.
type Pattern struct {
	text string
}

// ParsePattern reads a pattern. The error is an *Error.
func ParsePattern(s string) (Pattern, error) {
	switch {
	case s == "":
		return Pattern{}, bad(kindPattern, s, "it is empty and would match nothing")
	case len(s) > maxPattern:
		return Pattern{}, bad(kindPattern, s, "longer than 512 bytes")
	case strings.Count(s, "*") > 1:
		return Pattern{}, bad(kindPattern, s, "it has more than one star")
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || strings.IndexByte("/\\?[]{}", s[i]) >= 0 {
			return Pattern{}, bad(kindPattern, s, "it has a character that no host or service name has")
		}
	}
	return Pattern{text: s}, nil
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Match reports whether a name fits, upper and lower case distinguished as
// registries do.
func (p Pattern) Match(name string) bool {
	_, ok := capture(p.text, name)
	return ok
}

// MatchHost reports whether a host fits, in whatever case either is written.
func (p Pattern) MatchHost(host string) bool {
	_, ok := p.Capture(host)
	return ok
}

// Capture is MatchHost, and reports what the star stood for in lower case;
// empty where the pattern has none.
func (p Pattern) Capture(host string) (string, bool) {
	return capture(strings.ToLower(p.text), canonicalHost(host))
}

func capture(pattern, s string) (string, bool) {
	prefix, suffix, star := strings.Cut(pattern, "*")
	if !star {
		return "", pattern != "" && pattern == s
	}
	if len(s) <= len(prefix)+len(suffix) || !strings.HasPrefix(s, prefix) || !strings.HasSuffix(s, suffix) {
		return "", false
	}
	return s[len(prefix) : len(s)-len(suffix)], true
}

// CaptureName is Match, and reports what the star stood for; empty where the
// pattern has none.
func (p Pattern) CaptureName(name string) (string, bool) { return capture(p.text, name) }
