package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// maxRegistrations bounds what is kept of groups that nobody claims, in bytes.
const maxRegistrations = 16 << 20

// registrations are the entries without an owner of all groups that were read, by address:
// what providers registered themselves. They outlive Drop, as they were read last.
type registrations struct {
	groups    map[registry.Group]*registeredGroup
	byAddress map[string][]registration
	bytes     int
}

type registeredGroup struct {
	group registry.Group
	keys  []string
	bytes int
}

// A registration is an entry without an owner.
type registration struct {
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

// name returns what distinguishes registrations of one address in one group: what is behind
// the address in the key, such as the version. The protocol does not count.
func (r registration) name() string { return Place(r.key)[len(Address(r.key)):] }

// sharesConsumers reports whether consumers of one registration look for the other as well: both
// are of one format in one place.
func (r registration) sharesConsumers(o registration) bool {
	return r.group.Kind == o.group.Kind && r.group.Namespace == o.group.Namespace && r.group.Group == o.group.Group
}

// interfaceName returns the interface of a group that is named by a service key, such as
// providers:interface:version:group, or the name of the group.
func (r registration) interfaceName() string {
	_, rest, isKey := strings.Cut(r.group.Name, ":")
	if !isKey {
		return r.group.Name
	}
	iface, _, _ := strings.Cut(rest, ":")
	return iface
}

// Address returns the host and port that a key begins with, behind its protocol.
func Address(key string) string {
	at := Place(key)
	if i := strings.IndexAny(at, "?#"); i >= 0 {
		return at[:i]
	}
	return at
}

// contradicting returns which registrations of an address say that its process has another
// name than is claimed for it: none if the process registers what is claimed; else those of
// the claimed interface; if there are none, all.
func contradicting(claim registration, own []registration) []registration {
	var same, others []registration
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

// observe replaces what is registered in a group. A group that is bounded is left out if too
// much is known.
func (r *registrations) observe(id registry.Group, list []registry.Stored, bounded bool) { //nolint:revive // of the group, not a mode
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
		r.byAddress[Address(key)] = append(r.byAddress[Address(key)], registration{&now.group, key})
	}
}

// registrationSize is about what a registration requires in addition to its key.
const registrationSize = 100

func (r *registrations) forget(id registry.Group) {
	before := r.groups[id]
	if before == nil {
		return
	}
	for _, key := range before.keys {
		at := Address(key)
		r.byAddress[at] = slices.DeleteFunc(r.byAddress[at], func(o registration) bool { return o.group == &before.group })
		if len(r.byAddress[at]) == 0 {
			delete(r.byAddress, at)
		}
	}
	r.bytes -= before.bytes
	delete(r.groups, id)
}

// A Contradiction is what an origin claims in a group at addresses whose processes register
// themselves under other names, and not under the claimed one.
type Contradiction struct {
	Origin    Origin
	Claimed   string         // the key of the first address
	As        []Registration // a few of those of the first address
	Names     int            // how many these are
	Addresses int
}

// Equal reports whether all of two contradictions is equal.
func (c Contradiction) Equal(o Contradiction) bool {
	return c.Origin == o.Origin && c.Claimed == o.Claimed && c.Names == o.Names && c.Addresses == o.Addresses && slices.Equal(c.As, o.As)
}

// fewRegistrations is how many registrations stand for many.
const maxShownRegistrations = 3

// firstRegistrations returns some of the registrations of an address.
func firstRegistrations(list []registration) (some []Registration) {
	for _, r := range list[:min(len(list), maxShownRegistrations)] {
		some = append(some, Registration{*r.group, r.key})
	}
	return some
}

// Contradictions returns at most one contradiction for each origin that claims in a group,
// in order. A claim that cannot be honoured contradicts nothing.
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
		as := contradicting(registration{&id, r.key}, own)
		if len(as) == 0 {
			continue
		}
		seen[at] = true
		origin := r.wants[0].claim.origin
		i := slices.IndexFunc(all, func(c Contradiction) bool { return c.Origin == origin })
		if i < 0 {
			i = len(all)
			slices.SortFunc(as, func(a, b registration) int { return cmp.Or(a.group.Compare(*b.group), cmp.Compare(a.key, b.key)) })
			all = append(all, Contradiction{Origin: origin, Claimed: r.key, As: firstRegistrations(as), Names: len(as)})
		}
		all[i].Addresses++
	}
	slices.SortFunc(all, func(a, b Contradiction) int { return a.Origin.Compare(b.Origin) })
	return all
}

// mayStore reports whether nothing but what is ours is under a key, and its provider did not
// take itself off.
func (p *Planner) mayStore(id registry.Group, r keyRow) bool {
	ours := len(ownedBy(r.stored, p.owner))
	return ours == len(r.stored) && (ours > 0 || p.Drained == nil || !p.Drained(id, r.key))
}

// SelfRegistered are the entries of a group that providers registered themselves at addresses
// without claims, under names that an origin claims.
type SelfRegistered struct {
	Origin  Origin
	Entries int
	Some    []Registration
}

// SelfRegistered returns, for each origin in order, what providers registered themselves
// next to its claims in a group.
func (p *Planner) SelfRegistered(id registry.Group) (all []SelfRegistered) {
	g := p.lookup(id)
	if !p.SelfRegistration || g.counts.Foreign == 0 {
		return nil
	}
	own := g.unclaimedByName(&id)
	for name, claims := range g.claimsByName(&id) {
		for _, c := range claims {
			i, found := slices.BinarySearchFunc(all, c.origin, func(s SelfRegistered, o Origin) int { return s.Origin.Compare(o) })
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

// claimsByName returns who claims endpoints under each name.
func (g *group) claimsByName(id *registry.Group) map[string][]*claim {
	by := make(map[string][]*claim)
	for _, r := range g.rows {
		name := registration{id, r.key}.name()
		for _, w := range r.wants {
			if registry.IsEndpoint(r.key) && !slices.Contains(by[name], w.claim) {
				by[name] = append(by[name], w.claim)
			}
		}
	}
	return by
}

// unclaimedByName returns the entries without an owner at addresses that nobody claims, by name.
func (g *group) unclaimedByName(id *registry.Group) map[string][]registration {
	claimed, by := make(map[string]bool), make(map[string][]registration)
	for _, r := range g.rows {
		claimed[Address(r.key)] = claimed[Address(r.key)] || len(r.wants) > 0
	}
	for _, r := range g.rows {
		if at := (registration{id, r.key}); registry.IsEndpoint(r.key) && indexOfOwner(r.stored, "") >= 0 && !claimed[Address(r.key)] {
			by[at.name()] = append(by[at.name()], at)
		}
	}
	return by
}
