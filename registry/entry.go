package registry

import (
	"cmp"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Group is what a target lists, reads and writes as one: one Nacos service,
// one parent znode of ZooKeeper, one ServiceEntry. It is comparable.
type Group struct {
	Kind      string `json:"kind"`                // the format, such as dubbo-interface
	Namespace string `json:"namespace"`           // ZooKeeper: the root, such as /dubbo; Nacos: the namespace id
	Group     string `json:"group,omitempty"`     // Nacos: the group; elsewhere empty
	Name      string `json:"name"`                // the interface, application or service
	Exclusive bool   `json:"exclusive,omitempty"` // one service alone may claim in it; the second is refused whole
}

// IsZero reports whether the group is the zero value.
func (g Group) IsZero() bool { return g == Group{} }

// String returns the group as logs and status show it.
func (g Group) String() string {
	s := g.Kind + ":" + g.Namespace
	if g.Group != "" {
		s += "@" + g.Group
	}
	return s + "/" + g.Name
}

// Compare orders groups.
func (g Group) Compare(o Group) int {
	return cmp.Or(cmp.Compare(g.Kind, o.Kind), cmp.Compare(g.Namespace, o.Namespace),
		cmp.Compare(g.Group, o.Group), cmp.Compare(g.Name, o.Name))
}

// Entry is one thing a target stores, exactly as it stores it. Entries are
// plain values: equal entries are == and mean nothing has to be written.
type Entry struct {
	Group Group
	Key   string // the identity of an instance within the group, kept while the value changes; HeadKey is the group's own
	Value string // the whole of what is stored, in canonical form, the owner mark included
}

// HeadKey is the key of an entry that stands for the group itself and not for
// an endpoint, where a format has one. It goes last.
const HeadKey = ""

// PartPrefix begins the key of an entry that endpoints refer to and that is
// none itself, where a format has such: it comes before what refers to it, and
// goes a while after.
const PartPrefix = "#"

// IsPart reports whether a key is of an entry that endpoints refer to.
func IsPart(key string) bool { return strings.HasPrefix(key, PartPrefix) }

// IsEndpoint reports whether a key is of an endpoint.
func IsEndpoint(key string) bool { return key != HeadKey && !IsPart(key) }

// Compare orders entries by group and key, the order that all output follows.
func (e Entry) Compare(o Entry) int {
	if e.Group == o.Group { // as nearly always
		return cmp.Compare(e.Key, o.Key)
	}
	return cmp.Or(e.Group.Compare(o.Group), cmp.Compare(e.Key, o.Key))
}

// Sorted returns entries in the order all output follows.
func Sorted(entries iter.Seq[Entry]) []Entry { return slices.SortedFunc(entries, Entry.Compare) }

// Address returns host and port, an IPv6 host in brackets.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Compare orders endpoints by host, port, port name, protocol and instance.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Host, o.Host), cmp.Compare(e.Port, o.Port), cmp.Compare(e.PortName, o.PortName),
		cmp.Compare(e.Protocol, o.Protocol), cmp.Compare(e.Instance, o.Instance))
}
