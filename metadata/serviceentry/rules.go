package serviceentry

import "strings"

// The limits of Istio's validation and of Kubernetes for names. Source:
// istio/pkg/config/validation and k8s.io/apimachinery/pkg/util/validation.
const (
	maxName       = 63
	maxPrefix     = 253
	maxAnnotation = 4096
	maxLocality   = 3 // region/zone/subzone

	// The limits of the custom resource definition.
	maxLabels         = 256 // of an endpoint
	maxPortName       = 62
	maxLocalityLength = 2048

	// maxAnnotations is half of the limit of Kubernetes: other managers add annotations.
	maxAnnotations = 1 << 17
)

// labelKey reports whether s is a label key: a name, with an optional DNS
// prefix before a slash.
func labelKey(s string) bool {
	prefix, name, ok := strings.Cut(s, "/")
	if !ok {
		prefix, name = "", s
	}
	if ok && (prefix == "" || len(prefix) > maxPrefix || strings.ToLower(prefix) != prefix || !dnsLabels(prefix)) {
		return false
	}
	return name != "" && labelValue(name)
}

// labelValue reports whether s is a label value: empty, or letters and digits with ._- in
// between.
func labelValue(s string) bool {
	if s == "" {
		return true
	}
	if len(s) > maxName || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte("._-", s[i]) < 0 {
			return false
		}
	}
	return true
}

// dnsLabels reports whether s is a sequence of DNS labels.
func dnsLabels(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !dnsLabel(label) {
			return false
		}
	}
	return true
}

func dnsLabel(s string) bool {
	return s != "" && labelValue(s) && !strings.ContainsAny(s, "._") && strings.ToLower(s) == s
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// isLocality reports whether s is region/zone/subzone, region/zone or region.
func isLocality(s string) bool {
	parts := strings.Split(s, "/")
	if s == "" || len(s) > maxLocalityLength || len(parts) > maxLocality {
		return false
	}
	for _, p := range parts {
		if p == "" || !printable(p) || strings.ContainsAny(p, " ") {
			return false
		}
	}
	return true
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
