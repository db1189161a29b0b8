package naming

import (
	"cmp"
	"strings"
)

// Providers is the category of the keys that providers publish and consumers
// look up.
const Providers = "providers"

// The most bytes that a service key may have, which is what Nacos takes as
// the name of a service, and that its version and its group may have each.
const (
	MaxKey     = 512
	maxKeyPart = 128
)

// ServiceKey names one RPC contract: `providers:interface:version:group`, the
// form in which dubbo-go publishes it in the mesh and in which Dubbo names
// services in Nacos. Version and group may be empty; their colons stay.
type ServiceKey struct {
	Category  string // providers, consumers, routers or configurators
	Interface string
	Version   string
	Group     string
}

// String returns the key in its one written form.
func (k ServiceKey) String() string {
	return k.Category + ":" + k.Interface + ":" + k.Version + ":" + k.Group
}

// Compare orders keys by interface, version, group and category.
func (k ServiceKey) Compare(o ServiceKey) int {
	return cmp.Or(cmp.Compare(k.Interface, o.Interface), cmp.Compare(k.Version, o.Version),
		cmp.Compare(k.Group, o.Group), cmp.Compare(k.Category, o.Category))
}

// ParseServiceKey reads a key of exactly four parts. What it returns is
// written back by String as it was read. Nothing is unescaped, because no
// writer escapes: a part with a colon in it is an error, not a shifted key.
// The error is an *Error.
func ParseServiceKey(s string) (ServiceKey, error) {
	key, reason := parseKey(s)
	if reason != "" {
		return ServiceKey{}, bad(kindKey, s, reason)
	}
	return key, nil
}

// ParseLegacyServiceKey reads what ParseServiceKey reads, and besides
// `provider::interface`, `provider::interface:version:group` and
// `interface:version:group`, which comments, tests and older tools use for a
// provider's key. The error is an *Error.
func ParseLegacyServiceKey(s string) (ServiceKey, error) {
	key, reason := parseKey(modern(s))
	if reason != "" {
		return ServiceKey{}, bad(kindKey, s, reason)
	}
	return key, nil
}

// modern returns the four parts that a legacy key means, and every other text
// as it is. What begins with a category lacks a part: its first is no
// interface.
func modern(s string) string {
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
	if len(s) > MaxKey {
		return ServiceKey{}, "longer than 512 bytes"
	}
	parts := strings.Split(s, ":")
	if len(parts) != 4 {
		return ServiceKey{}, "want four parts, providers:interface:version:group"
	}
	key = ServiceKey{Category: parts[0], Interface: parts[1], Version: parts[2], Group: parts[3]}
	return key, key.problem()
}

// problem returns what is wrong with the parts of a key, empty if nothing is.
func (k ServiceKey) problem() string {
	switch {
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

// interfaceName allows what can be a path element of ZooKeeper, a name in Nacos and
// a type in Java, Go or protobuf: no empty segment, so no "..", and only ASCII,
// so that no two names look alike.
func interfaceName(s string) bool {
	return !strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".") && !strings.Contains(s, "..") &&
		only(s, "._$-")
}

func keyPart(s string) bool { return len(s) <= maxKeyPart && only(s, "._+-~$") }

// only reports whether s has ASCII letters, digits and those of extra alone.
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
