package naming

import (
	"cmp"
	"strings"
)

// Providers is the category of the keys that providers publish.
const Providers = "providers"

// The maximum lengths of a service key and of its version and group, in bytes. MaxKey is
// that of a service name in Nacos.
const (
	MaxKey     = 512
	maxKeyPart = 128
)

// ServiceKey names one RPC contract as providers:interface:version:group. dubbo-go
// publishes such keys in the mesh, and Dubbo uses them as service names in Nacos.
// Version and group may be empty, but their colons are required.
type ServiceKey struct {
	Category  string // providers, consumers, routers or configurators
	Interface string
	Version   string
	Group     string
}

// String returns the key as text.
func (k ServiceKey) String() string {
	return k.Category + ":" + k.Interface + ":" + k.Version + ":" + k.Group
}

// Compare orders keys by interface, version, group and category.
func (k ServiceKey) Compare(o ServiceKey) int {
	return cmp.Or(cmp.Compare(k.Interface, o.Interface), cmp.Compare(k.Version, o.Version),
		cmp.Compare(k.Group, o.Group), cmp.Compare(k.Category, o.Category))
}

// ParseServiceKey parses a key of exactly four parts, the result of String. Writers of
// keys do not escape them: a colon within a part is an error. The error is an *Error.
func ParseServiceKey(s string) (ServiceKey, error) {
	key, reason := parseKey(s)
	if reason != "" {
		return ServiceKey{}, bad(kindKey, s, reason)
	}
	return key, nil
}

// Check refuses a key whose text ParseServiceKey would not parse into the same key. The
// error is an *Error.
func (k ServiceKey) Check() error {
	if reason := k.problem(); reason != "" {
		return bad(kindKey, k.String(), reason)
	}
	return nil
}

// ParseLegacyServiceKey also parses the keys of older tools for providers:
// provider::interface, provider::interface:version:group and interface:version:group.
// The error is an *Error.
func ParseLegacyServiceKey(s string) (ServiceKey, error) {
	key, reason := parseKey(expandLegacyKey(s))
	if reason != "" {
		return ServiceKey{}, bad(kindKey, s, reason)
	}
	return key, nil
}

// expandLegacyKey returns a legacy key with four parts, and any other text unchanged. A
// key of three parts that begins with a category is not a legacy key.
func expandLegacyKey(s string) string {
	const old = "provider"
	if rest, ok := strings.CutPrefix(s, old+"::"); ok {
		if !strings.Contains(rest, ":") {
			rest += "::"
		}
		return Providers + ":" + rest
	}
	first, _, _ := strings.Cut(s, ":")
	if strings.Count(s, ":") == 2 && !isCategory(first) && first != old {
		return Providers + ":" + s
	}
	return s
}

// parseKey returns a key, or why the text is invalid.
func parseKey(s string) (key ServiceKey, reason string) {
	parts := strings.SplitN(s, ":", 5) // one more than allowed
	if len(parts) != 4 {
		return ServiceKey{}, "expected four parts, providers:interface:version:group"
	}
	key = ServiceKey{Category: parts[0], Interface: parts[1], Version: parts[2], Group: parts[3]}
	return key, key.problem()
}

// problem returns why a key is invalid, or an empty text if it is valid.
func (k ServiceKey) problem() string {
	switch {
	case len(k.Category)+len(k.Interface)+len(k.Version)+len(k.Group)+len(":::") > MaxKey:
		return "longer than 512 bytes"
	case !isCategory(k.Category):
		return "the category must be providers, consumers, routers or configurators"
	case k.Interface == "":
		return "the interface is empty"
	case !interfaceName(k.Interface):
		return "the interface must have only letters, digits, '_', '$', '-' and single inner dots"
	case !keyPart(k.Version):
		return "the version must have at most 128 letters, digits and '._+-~$'"
	case !keyPart(k.Group):
		return "the group must have at most 128 letters, digits and '._+-~$'"
	}
	return ""
}

func isCategory(s string) bool {
	return s == Providers || s == "consumers" || s == "routers" || s == "configurators"
}

// interfaceName reports whether s can be part of a path in ZooKeeper, a name in Nacos and
// a type of Java, Go or protobuf. It must be ASCII, so that different names do not look
// alike.
func interfaceName(s string) bool {
	return !strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".") && !strings.Contains(s, "..") &&
		only(s, "._$-")
}

func keyPart(s string) bool { return len(s) <= maxKeyPart && only(s, "._+-~$") }

// only reports whether s has only ASCII letters, digits and characters of extra.
func only(s, extra string) bool {
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte(extra, s[i]) < 0 {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
