// Package registry defines the model that all registries are translated to and from
// (Service, Entry), and the ports by which they are accessed (Source, Target). It
// does no I/O.
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Name identifies a service within its registry: in a mesh by the host address
// fqdn:port, in other registries by format, namespace, group and native name.
type Name string

// Service is a named set of endpoints. It is immutable once published: a change is a
// new Service of the same name.
type Service struct {
	Name        Name
	Namespace   string // in its registry; may be empty
	Application string // provides the service; may be empty
	Protocol    string // of the endpoints without their own protocol
	Interfaces  []Interface
	Attributes  Attributes
	Path        Path       // the registries that the service passed before this one
	Endpoints   []Endpoint // in the order of Endpoint.Compare
}

// Interface is one RPC contract that a service provides, as in a service key.
type Interface struct {
	Name, Version, Group string
}

// Endpoint is one address of a service. It is written to targets only if its health is
// Offered.
type Endpoint struct {
	Host       string // an IP address without brackets, or a host name
	Port       uint16
	Health     Health
	ZeroWeight bool   // Weight was reported as 0: no calls while other endpoints have a weight
	Weight     uint32 // 0 if it was not reported
	PortName   string
	Protocol   string // empty: that of the service
	Zone       string // region/zone/subzone, as far as reported
	Instance   string // the same for all ports of one process; may be empty
	URLPath    string // of the interface, without a leading slash; empty: the interface's name
	Attributes Attributes
	Path       Path        // empty: that of the service
	Interfaces []Interface // the interfaces of the service that it provides; nil: all of them
}

// Address returns host and port, with an IPv6 host in brackets.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Compare orders endpoints by host, port, port name, protocol and instance.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Host, o.Host), cmp.Compare(e.Port, o.Port), cmp.Compare(e.PortName, o.PortName),
		cmp.Compare(e.Protocol, o.Protocol), cmp.Compare(e.Instance, o.Instance))
}

// Attributes are free labels. A published map is immutable, so that endpoints can share
// it.
type Attributes map[string]string

// Path is the registries that an entry passed, oldest first, in hops of HopLen
// characters each. It prevents loops: an entry is not written to a registry in its
// path.
type Path string

// HopLen is the length of one hop of a Path in bytes.
const HopLen = 4

// Has reports whether a registry is in the path.
func (p Path) Has(hop string) bool {
	for ; len(p) >= HopLen; p = p[HopLen:] {
		if string(p[:HopLen]) == hop {
			return true
		}
	}
	return false
}

// Hops returns the number of registries in the path.
func (p Path) Hops() int { return len(p) / HopLen }

// Health is the state of an endpoint in its registry.
type Health uint8

// The health values. HealthUnknown means that no health was reported, as with endpoints
// that istiod offers.
const (
	HealthUnknown Health = iota
	Healthy
	Degraded
	Unhealthy
	Draining
	Disabled
)

// Offered reports whether consumers may call such an endpoint.
func (h Health) Offered() bool { return h <= Degraded }

// String returns the value as in status, logs and documents.
func (h Health) String() string {
	names := [...]string{"unknown", "healthy", "degraded", "unhealthy", "draining", "disabled"}
	if int(h) < len(names) {
		return names[h]
	}
	return "invalid"
}

// KeepEmpty returns services and, without endpoints, those services of before that are
// missing. It is for a group that still exists: such a service is known to have no
// endpoints. It keeps the common path of its endpoints, so that it does not return to
// the registry that it came from. It also keeps a protocol of its endpoints, because
// its name in a mesh depends on it.
func KeepEmpty(services, before []*Service) []*Service {
	present := make(map[Name]bool, len(services))
	for _, s := range services {
		present[s.Name] = true
	}
	for _, s := range before {
		if !present[s.Name] {
			empty := *s
			empty.Path = commonValue(s, s.Path, "", func(e Endpoint) Path { return e.Path })
			empty.Protocol = commonValue(s, s.Protocol, anyProtocol(s), func(e Endpoint) string { return e.Protocol })
			empty.Endpoints = nil
			services = append(services, &empty)
		}
	}
	return services
}

// anyProtocol returns the protocol of a service, or that of its first endpoint with a
// protocol.
func anyProtocol(s *Service) string {
	if s.Protocol != "" {
		return s.Protocol
	}
	for _, e := range s.Endpoints {
		if e.Protocol != "" {
			return e.Protocol
		}
	}
	return ""
}

// commonValue returns the value that all endpoints of a service have, and ifDifferent
// if their values differ. An endpoint without a value has that of the service.
func commonValue[T ~string](s *Service, serviceValue, ifDifferent T, get func(Endpoint) T) T {
	if len(s.Endpoints) == 0 {
		return serviceValue
	}
	first := cmp.Or(get(s.Endpoints[0]), serviceValue)
	if slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return cmp.Or(get(e), serviceValue) != first }) {
		return ifDifferent
	}
	return first
}

// Equal reports whether all fields of two services are equal.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil &&
		s.Name == o.Name && s.Namespace == o.Namespace && s.Application == o.Application &&
		s.Protocol == o.Protocol && s.Path == o.Path &&
		maps.Equal(s.Attributes, o.Attributes) &&
		slices.Equal(s.Interfaces, o.Interfaces) &&
		slices.EqualFunc(s.Endpoints, o.Endpoints, Endpoint.Equal)
}

// Equal reports whether all fields of two endpoints are equal.
func (e Endpoint) Equal(o Endpoint) bool { //nolint:cyclop // a comparison for each field
	return e.Host == o.Host && e.Port == o.Port && e.PortName == o.PortName &&
		e.Protocol == o.Protocol && e.Health == o.Health && e.Weight == o.Weight && e.ZeroWeight == o.ZeroWeight &&
		e.Zone == o.Zone && e.Instance == o.Instance && e.Path == o.Path && e.URLPath == o.URLPath &&
		equalInterfaces(e.Interfaces, o.Interfaces) && maps.Equal(e.Attributes, o.Attributes)
}

// equalInterfaces compares the interfaces of endpoints. An empty list means that the
// endpoint provides none, and nil that it provides all of its service.
func equalInterfaces(a, b []Interface) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// ByInterfaces splits a service into services whose endpoints each provide all of their
// interfaces. Nearly always the result is only the service itself. Interfaces that no
// endpoint provides form a service without endpoints.
func (s *Service) ByInterfaces() []*Service {
	if !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Interfaces != nil }) {
		return []*Service{s}
	}
	var parts []*Service
	provided := make(map[Interface]bool, len(s.Interfaces))
	for _, e := range s.Endpoints {
		interfaces := e.Interfaces
		if interfaces == nil {
			interfaces = s.Interfaces
		}
		e.Interfaces = nil
		at := slices.IndexFunc(parts, func(p *Service) bool { return slices.Equal(p.Interfaces, interfaces) })
		if at < 0 {
			part := *s
			part.Interfaces, part.Endpoints = interfaces, nil
			at, parts = len(parts), append(parts, &part)
			for _, i := range interfaces {
				provided[i] = true
			}
		}
		parts[at].Endpoints = append(parts[at].Endpoints, e)
	}
	unprovided := slices.DeleteFunc(slices.Clone(s.Interfaces), func(i Interface) bool { return provided[i] })
	if len(unprovided) > 0 {
		none := *s
		none.Interfaces, none.Endpoints = unprovided, nil
		parts = append(parts, &none)
	}
	return parts
}

// Group is the unit that a target lists, reads and writes: a service of Nacos, a parent
// znode of ZooKeeper, a ServiceEntry. It is comparable.
type Group struct {
	Kind      string `json:"kind"`                // the format, such as dubbo-interface
	Namespace string `json:"namespace"`           // in ZooKeeper the root, such as /dubbo; in Nacos the namespace id
	Group     string `json:"group,omitempty"`     // the group in Nacos; otherwise empty
	Name      string `json:"name"`                // the interface, application or service
	Exclusive bool   `json:"exclusive,omitempty"` // only one service may claim entries; a second one is refused
}

// IsZero reports whether the group is the zero value.
func (g Group) IsZero() bool { return g == Group{} }

// String returns the group as in logs and status.
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

// Entry is one record of a target, exactly as it is stored. Entries are plain values: if
// two are ==, nothing has to be written.
type Entry struct {
	Group Group
	Key   string // identifies the entry within the group while its value changes
	Value string // the stored data in canonical form, with the mark
}

// HeadKey is the key of the head, the entry of the group itself, which is not an
// endpoint. Only some formats have heads. A head is deleted last.
const HeadKey = ""

// PartPrefix begins the key of a part, an entry that endpoints refer to. Only some
// formats have parts. A part is written before the endpoints, and deleted some time
// after them.
const PartPrefix = "#"

// IsPart reports whether a key is that of a part.
func IsPart(key string) bool { return strings.HasPrefix(key, PartPrefix) }

// IsEndpoint reports whether a key is that of an endpoint.
func IsEndpoint(key string) bool { return key != HeadKey && !IsPart(key) }

// Compare orders entries by group and key, which is the order of all output.
func (e Entry) Compare(o Entry) int { return compareEntries(&e, &o) }

func compareEntries(a, b *Entry) int {
	if a.Group == b.Group { // nearly always
		return cmp.Compare(a.Key, b.Key)
	}
	return cmp.Or(a.Group.Compare(b.Group), cmp.Compare(a.Key, b.Key))
}

// Sorted returns a sorted copy of entries.
func Sorted(entries []Entry) []Entry {
	order := make([]*Entry, len(entries)) // pointers, because a sort moves them often
	for i := range entries {
		order[i] = &entries[i]
	}
	slices.SortFunc(order, compareEntries)
	sorted := slices.Grow([]Entry(nil), len(entries))
	for _, e := range order {
		sorted = append(sorted, *e)
	}
	return sorted
}

// Stored is an entry found in a target. While an entry is replaced, both the old and the
// new one may be found under one key.
type Stored struct {
	Entry
	Owner   string // by the mark of the entry; empty without a mark
	Version int64  // for conditional writes, set by the target; 0 if it was written and not read since
	Live    bool   // false if an earlier session or connection of this bridge stored it
	// Leaving says that it belongs to another owner, which deletes it once our entry
	// is stored next to it or instead of it.
	Leaving bool
}

// Write is one entry to be stored.
type Write struct {
	New Entry
	// Old is the entry that New replaces, under the same key; nil for a new entry. If
	// it is Leaving, it is replaced only in targets that hold one entry under a key.
	Old *Stored
	// KeepOld says to keep Old until a later change deletes it. A target that cannot
	// hold both deletes Old now.
	KeepOld bool
}

// Adds reports whether New replaces none of our entries.
func (w Write) Adds() bool { return w.Old == nil || w.Old.Leaving }

// Change is the writes and deletions in one group. The slices are in key order.
type Change struct {
	Group  Group
	Put    []Write  // missing or different in the target
	Delete []Stored // our entries that are no longer desired and may be deleted
	Want   []Entry  // all our entries after the change
}

// Empty reports whether there is nothing to write or delete.
func (c Change) Empty() bool { return len(c.Put)+len(c.Delete) == 0 }

// Replaced returns the entries that the change deletes, followed by those that it
// replaces.
func (c Change) Replaced() []Stored {
	out := slices.Clone(c.Delete)
	for _, w := range c.Put {
		if w.Old != nil {
			out = append(out, *w.Old)
		}
	}
	return out
}

// Keep returns the change with only the allowed deletions. The other entries are in
// Want.
func (c Change) Keep(may func(Stored) bool) Change {
	var kept []Stored
	want := slices.Clone(c.Want)
	for _, h := range c.Delete {
		if may(h) {
			kept = append(kept, h)
		} else {
			want = append(want, h.Entry)
		}
	}
	c.Delete, c.Want = kept, Sorted(want)
	return c
}

// KeepPuts returns the change with only the allowed writes. The entries that the other
// writes would replace are in Want.
func (c Change) KeepPuts(may func(Write) bool) Change {
	var kept []Write
	var olds []Entry
	skipped := make(map[Entry]bool)
	for _, w := range c.Put {
		if may(w) {
			kept = append(kept, w)
			continue
		}
		skipped[w.New] = true
		if !w.Adds() && !w.KeepOld {
			olds = append(olds, w.Old.Entry)
		}
	}
	if len(skipped) == 0 {
		return c
	}
	want := slices.DeleteFunc(slices.Clone(c.Want), func(e Entry) bool { return skipped[e] })
	c.Put, c.Want = kept, Sorted(append(want, olds...))
	return c
}

// Without returns the change without the writes and deletions under some keys. If it
// skips an endpoint, it deletes no part either, because the endpoint may refer to it.
func (c Change) Without(skip func(key string) bool) Change {
	stays := func(h Stored) bool { return skip(h.Key) && IsEndpoint(h.Key) }
	refers := slices.ContainsFunc(c.Replaced(), stays)
	c = c.KeepPuts(func(w Write) bool { return !skip(w.New.Key) })
	if !refers && !slices.ContainsFunc(c.Delete, func(h Stored) bool { return skip(h.Key) }) {
		return c
	}
	return c.Keep(func(h Stored) bool { return !skip(h.Key) && (!refers || !IsPart(h.Key)) })
}

// Except returns the part of the change that a target applies if it refuses some keys.
// It has no writes and deletions under these keys. If one of them is new, it has no
// deletions at all, because the new entry may replace a deleted one.
func (c Change) Except(refused Refused) Change {
	if slices.ContainsFunc(c.Put, func(w Write) bool { return w.Adds() && refused.Has(w.New.Key) }) {
		c = c.Keep(func(Stored) bool { return false })
	}
	return c.Without(refused.Has)
}

// Refused is the error of a Write that refuses a part of its change: the reasons by
// key. It wraps ErrRefused.
type Refused map[string]error

// Has reports whether a key is refused.
func (r Refused) Has(key string) bool { return r[key] != nil }

// Err returns the reasons as an error, or nil if there are none.
func (r Refused) Err() error {
	if len(r) == 0 {
		return nil
	}
	return r
}

// Error returns some of the reasons, each with the first of its keys.
func (r Refused) Error() string {
	const maxReasons = 3
	keys := make(map[string][]string) // by reason
	var reasons []string
	for _, key := range slices.Sorted(maps.Keys(r)) {
		reason := strings.TrimPrefix(r[key].Error(), ErrRefused.Error()+": ")
		if keys[reason] == nil {
			reasons = append(reasons, reason)
		}
		keys[reason] = append(keys[reason], key)
	}
	var parts []string
	for _, reason := range reasons[:min(maxReasons, len(reasons))] {
		part := fmt.Sprintf("%.200q", keys[reason][0])
		if more := len(keys[reason]) - 1; more > 0 {
			part += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, part+": "+reason)
	}
	if more := len(reasons) - maxReasons; more > 0 {
		parts = append(parts, fmt.Sprintf("%d other reasons", more))
	}
	return ErrRefused.Error() + ": " + strings.Join(parts, "; ")
}

// Unwrap returns the reasons and ErrRefused.
func (r Refused) Unwrap() []error { return append(slices.Collect(maps.Values(r)), ErrRefused) }

// LeftOut is the error that is returned with the entries of a service if parts of the
// service have no entries. It is not a failure: all other parts are written, and
// removed ones are deleted.
type LeftOut struct {
	Reason error
	// All is why no endpoint has an entry, in one format at least. It is empty if some
	// endpoints have one, or if none has for Reason.
	All Absence
}

// LeftOutBy returns the error that is returned with entries as a LeftOut; nil for nil.
// With an error of another type, no endpoint of the service has an entry.
func LeftOutBy(err error) *LeftOut {
	left, ok := errors.AsType[*LeftOut](err)
	if !ok && err != nil {
		return &LeftOut{Reason: err, All: Unwritable}
	}
	return left
}

// Absence is the reason why a service is not written, as in its status.
type Absence string

// The reasons that do not depend on the format.
const (
	Skipped    Absence = "skipped"    // it is not selected
	Returned   Absence = "synced"     // it came from the target, which still has it
	Unwritable Absence = "unwritable" // none of its endpoints may be offered, or the target can store none
)

// Error returns the reason.
func (l *LeftOut) Error() string {
	if l.All == Skipped {
		return l.Reason.Error()
	}
	return "left out: " + l.Reason.Error()
}

// Unwrap returns the reason.
func (l *LeftOut) Unwrap() error { return l.Reason }
