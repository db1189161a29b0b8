package naming

import (
	"cmp"
	"strings"
)

// Providers is the category of the keys that providers publish.
const Providers = "providers"

// The maximum bytes of a service key, which are those of a service's name in Nacos, and
// of its version and its group each.
const (
	MaxKey     = 512
	maxKeyPart = 128
)

// ServiceKey names one RPC contract as providers:interface:version:group, as dubbo-go
// publishes it in the mesh and Dubbo names services in Nacos. Version and group may be
// empty, but not their colons.
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

// ParseServiceKey reads a key of exactly four parts, which String writes back. Nothing
// is unescaped, because no writer escapes: a colon within a part is an error. The error
// is an *Error.
func ParseServiceKey(s string) (ServiceKey, error) {
	key, reason := parseKey(s)
	if reason != "" {
		return ServiceKey{}, bad(kindKey, s, reason)
	}
	return key, nil
}

// Check refuses a key that ParseServiceKey would not read back. The error is an *Error.
func (k ServiceKey) Check() error {
	if reason := k.problem(); reason != "" {
		return bad(kindKey, k.String(), reason)
	}
	return nil
}

// ParseLegacyServiceKey also reads the keys of older tools for providers:
// provider::interface, provider::interface:version:group and interface:version:group.
// The error is an *Error.
func ParseLegacyServiceKey(s string) (ServiceKey, error) {
	key, reason := parseKey(fourParts(s))
	if reason != "" {
		return ServiceKey{}, bad(kindKey, s, reason)
	}
	return key, nil
}

// fourParts returns the four parts of a legacy key, and any other text unchanged. A key
// of three parts that begins with a category lacks one.
func fourParts(s string) string {
	const old = "provider"
	if rest, ok := strings.CutPrefix(s, old+"::"); ok {
		if !strings.Contains(rest, ":") {
			rest += "::"
		}
		return Providers + ":" + rest
	}
	first, _, _ := strings.Cut(s, ":")
	if strings.Count(s, ":") == 2 && !category(first) && first != old {
		return Providers + ":" + s
	}
	return s
}

// parseKey returns a key, or what is wrong with the text.
func parseKey(s string) (key ServiceKey, reason string) {
	parts := strings.SplitN(s, ":", 5) // one more than there may be
	if len(parts) != 4 {
		return ServiceKey{}, "want four parts, providers:interface:version:group"
	}
	key = ServiceKey{Category: parts[0], Interface: parts[1], Version: parts[2], Group: parts[3]}
	return key, key.problem()
}

// problem returns what is wrong with the parts of a key; empty if nothing is.
func (k ServiceKey) problem() string {
	switch {
	case len(k.Category)+len(k.Interface)+len(k.Version)+len(k.Group)+len(":::") > MaxKey:
		return "longer than 512 bytes"
	case !category(k.Category):
		return "the category is none of providers, consumers, routers, configurators"
	case k.Interface == "":
		return "the interface is empty"
	case !interfaceName(k.Interface):
		return "an interface has letters, digits, '_', '$', '-' and single dots inside"
	case !keyPart(k.Version):
		return "a version has at most 128 letters, digits and '._+-~$'"
	case !keyPart(k.Group):
		return "a group has at most 128 letters, digits and '._+-~$'"
	}
	return ""
}

func category(s string) bool {
	return s == Providers || s == "consumers" || s == "routers" || s == "configurators"
}

// interfaceName reports whether s can be a part of a path in ZooKeeper, a name in Nacos
// and a type of Java, Go or protobuf. It is ASCII, so that no two names look alike.
func interfaceName(s string) bool {
	return !strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".") && !strings.Contains(s, "..") &&
		only(s, "._$-")
}

func keyPart(s string) bool { return len(s) <= maxKeyPart && only(s, "._+-~$") }

// only reports whether s has ASCII letters, digits and characters of extra alone.
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
