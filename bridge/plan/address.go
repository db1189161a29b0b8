package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// maxRegistrations is the memory for registrations in unclaimed groups, in bytes.
const maxRegistrations = 16 << 20

// registrations are the entries without an owner that the last read of each group found:
// what providers registered themselves. They are kept when their group is dropped.
type registrations struct {
	groups    map[registry.Group]*registeredGroup
	byAddress map[string][]registeredKey
	bytes     int // of all groups
}

// A registeredGroup is a group with its registrations. It is immutable.
type registeredGroup struct {
	group registry.Group
	keys  []string
	bytes int // the memory that it takes, about
}

// A registeredKey is a registration; it shares the Group with others of its group.
type registeredKey struct {
	group *registry.Group
	key   string
}

// A Registration is an entry that a provider registered itself.
type Registration struct {
	Group registry.Group
	Key   string
}

// String returns group and key.
func (r Registration) String() string { return r.Group.String() + " " + r.Key }

// name returns the part of the key that distinguishes registrations of one address in one
// group, such as the version: the part after the address. The protocol is no part of it.
func (r registeredKey) name() string { return Place(r.key)[len(Address(r.key)):] }

// sharesConsumers reports whether the consumers of one registration can find the other: both
// have the same format and place.
func (r registeredKey) sharesConsumers(o registeredKey) bool {
	return r.group.Kind == o.group.Kind && r.group.Namespace == o.group.Namespace && r.group.Group == o.group.Group
}

// interfaceName returns the interface from the name of a group. The name is a service key,
// such as providers:interface:version:group, or else the interface itself.
func (r registeredKey) interfaceName() string {
	_, rest, isKey := strings.Cut(r.group.Name, ":")
	if !isKey {
		return r.group.Name
	}
	iface, _, _ := strings.Cut(rest, ":")
	return iface
}

// Address returns the host and port of a key: the part after the protocol, without version
// and cluster.
func Address(key string) string {
	at := Place(key)
	if i := strings.IndexAny(at, "?#"); i >= 0 {
		return at[:i]
	}
	return at
}

// contradicting returns the registrations of an address that contradict a claim to it. If
// one of them has the claimed name, none does. Otherwise it returns those of the claimed
// interface or, if there are none, all.
func contradicting(claim registeredKey, own []registeredKey) []registeredKey {
	var same, others []registeredKey
	for _, r := range own {
		switch {
		case !r.sharesConsumers(claim):
		case *r.group == *claim.group && r.name() == claim.name():
			return nil
		case r.interfaceName() == claim.interfaceName():
			same = append(same, r)
		default:
			others = append(others, r)
		}
	}
	if len(same) > 0 {
		return same
	}
	return others
}

// observe replaces the registrations of a group by those of a read. A bounded group is
// forgotten if it exceeds maxRegistrations.
//
//nolint:revive // bounded is a fact about the group, not a mode
func (r *registrations) observe(id registry.Group, list []registry.Stored, bounded bool) {
	now := registeredGroup{group: id}
	for _, h := range list {
		if h.Owner == "" && registry.IsEndpoint(h.Key) {
			now.keys, now.bytes = append(now.keys, h.Key), now.bytes+len(h.Key)+registrationSize
		}
	}
	if before := r.groups[id]; before != nil && slices.Equal(before.keys, now.keys) {
		return
	}
	r.forget(id)
	if len(now.keys) == 0 || bounded && r.bytes+now.bytes > maxRegistrations {
		return
	}
	r.groups[id], r.bytes = &now, r.bytes+now.bytes
	for _, key := range now.keys {
		r.byAddress[Address(key)] = append(r.byAddress[Address(key)], registeredKey{&now.group, key})
	}
}

// registrationSize is the memory of a registration in addition to its key, about.
const registrationSize = 100

// forget forgets the registrations of a group.
func (r *registrations) forget(id registry.Group) {
	before := r.groups[id]
	if before == nil {
		return
	}
	isOfGroup := func(o registeredKey) bool { return o.group == &before.group }
	for _, key := range before.keys {
		at := Address(key)
		r.byAddress[at] = slices.DeleteFunc(r.byAddress[at], isOfGroup)
		if len(r.byAddress[at]) == 0 {
			delete(r.byAddress, at)
		}
	}
	r.bytes -= before.bytes
	delete(r.groups, id)
}

// A Contradiction says that an origin claims addresses in a group whose processes register
// themselves only under other names.
type Contradiction struct {
	Origin    Origin
	Claimed   string         // the claim to the first address
	As        []Registration // registrations of the first address; at most maxShownRegistrations
	Names     int            // the number of its registrations
	Addresses int
}

// Equal reports whether two contradictions are equal.
func (c Contradiction) Equal(o Contradiction) bool {
	return c.Origin == o.Origin && c.Claimed == o.Claimed &&
		c.Names == o.Names && c.Addresses == o.Addresses && slices.Equal(c.As, o.As)
}

// maxShownRegistrations is how many registrations are shown as an example.
const maxShownRegistrations = 3

// firstRegistrations returns the first maxShownRegistrations of a list.
func firstRegistrations(list []registeredKey) (some []Registration) {
	for _, r := range list[:min(len(list), maxShownRegistrations)] {
		some = append(some, Registration{*r.group, r.key})
	}
	return some
}

// Contradictions returns at most one contradiction for each origin that claims in a group,
// in order. A claim that cannot be honoured is not contradicted.
func (p *Planner) Contradictions(id registry.Group) (all []Contradiction) {
	if len(p.registrations.byAddress) == 0 {
		return nil
	}
	seen := make(map[string]bool) // addresses
	for _, r := range p.lookup(id).rows {
		at := Address(r.key)
		own := p.registrations.byAddress[at]
		if len(r.wants) == 0 || len(own) == 0 || seen[at] || !registry.IsEndpoint(r.key) || !p.mayStore(id, r) {
			continue
		}
		as := contradicting(registeredKey{&id, r.key}, own)
		if len(as) == 0 {
			continue
		}
		seen[at] = true
		origin := r.wants[0].claim.origin
		i := slices.IndexFunc(all, func(c Contradiction) bool { return c.Origin == origin })
		if i < 0 {
			i = len(all)
			slices.SortFunc(as, func(a, b registeredKey) int {
				return cmp.Or(a.group.Compare(*b.group), cmp.Compare(a.key, b.key))
			})
			all = append(all, Contradiction{Origin: origin, Claimed: r.key, As: firstRegistrations(as), Names: len(as)})
		}
		all[i].Addresses++
	}
	slices.SortFunc(all, func(a, b Contradiction) int { return a.Origin.Compare(b.Origin) })
	return all
}

// mayStore reports whether our entry is or may be stored under a key: the key has no foreign
// entry, and its place is not drained.
func (p *Planner) mayStore(id registry.Group, r keyRow) bool {
	ours := len(ownedBy(r.stored, p.owner))
	return ours == len(r.stored) && (ours > 0 || p.Drained == nil || !p.Drained(id, r.key))
}

// SelfRegistered are the entries of a group that providers registered themselves, at
// unclaimed addresses, under names that an origin claims.
type SelfRegistered struct {
	Origin  Origin
	Entries int
	Some    []Registration
}

// SelfRegistered returns, for each origin in order, the entries that providers registered
// themselves next to its claims in a group.
func (p *Planner) SelfRegistered(id registry.Group) (all []SelfRegistered) {
	g := p.lookup(id)
	if !p.SelfRegistration || g.counts.Foreign == 0 {
		return nil
	}
	own := g.unclaimedByName(&id)
	for name, claims := range g.claimsByName(&id) {
		for _, c := range claims {
			i, found := slices.BinarySearchFunc(all, c.origin, func(s SelfRegistered, o Origin) int {
				return s.Origin.Compare(o)
			})
			if !found {
				all = slices.Insert(all, i, SelfRegistered{Origin: c.origin})
			}
			all[i].Entries += len(own[name])
			all[i].Some = append(all[i].Some, firstRegistrations(own[name])...)
		}
	}
	for i, s := range all {
		slices.SortFunc(s.Some, func(a, b Registration) int { return cmp.Compare(a.Key, b.Key) })
		all[i].Some = s.Some[:min(len(s.Some), maxShownRegistrations)]
	}
	return slices.DeleteFunc(all, func(s SelfRegistered) bool { return s.Entries == 0 })
}

// claimsByName returns the claims of endpoints, by name.
func (g *group) claimsByName(id *registry.Group) map[string][]*claim {
	by := make(map[string][]*claim)
	for _, r := range g.rows {
		name := registeredKey{id, r.key}.name()
		for _, w := range r.wants {
			if registry.IsEndpoint(r.key) && !slices.Contains(by[name], w.claim) {
				by[name] = append(by[name], w.claim)
			}
		}
	}
	return by
}

// unclaimedByName returns the entries without an owner at unclaimed addresses, by name.
func (g *group) unclaimedByName(id *registry.Group) map[string][]registeredKey {
	claimed, by := make(map[string]bool), make(map[string][]registeredKey)
	for _, r := range g.rows {
		claimed[Address(r.key)] = claimed[Address(r.key)] || len(r.wants) > 0
	}
	for _, r := range g.rows {
		isUnclaimed := registry.IsEndpoint(r.key) && !claimed[Address(r.key)]
		if isUnclaimed && indexOfOwner(r.stored, "") >= 0 {
			registered := registeredKey{id, r.key}
			by[registered.name()] = append(by[registered.name()], registered)
		}
	}
	return by
}
