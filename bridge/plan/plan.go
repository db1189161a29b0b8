// Package plan works out what has to be written to a target, by comparing the claimed and
// the stored entries of each group. It does no I/O, knows no time and starts no goroutine.
//
//	plan       the Planner: claims and reads go in, sums come out
//	group      both sides of one group, key by key, in little memory
//	change     what has to be written to a group, its conflicts and orphans
//	address    what providers registered themselves at the claimed addresses
package plan

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Planner has the claims of all services of all bridges in one target, and the entries that
// the target is believed to store. It is not safe for concurrent use.
type Planner struct {
	// Yields reports whether a claim yields to an entry of another owner whose key differs
	// only in its protocol; nil: no claim yields.
	Yields func(Origin, registry.Entry) bool

	// Drained reports whether nothing may be added under a key, because a provider that had
	// registered itself there deregistered; nil: no place is drained.
	Drained func(registry.Group, string) bool

	// SelfRegistration reports whether providers can register themselves in the target,
	// next to our entries. It is set before the first Observe.
	SelfRegistration bool

	owner           string
	groups          map[registry.Group]*group
	groupsByOrigin  map[Origin][]registry.Group // in which an origin claims, in order
	entriesByBridge map[int]int                 // the number of claimed entries
	counts          Counts                      // of all groups
	lost            []string                    // see Lost

	registrations registrations
}

// Origin is a service of a bridge, which claims entries. Origins are ordered by bridge, then
// service. Of several that claim one key, the first one has it. The zero value stands for an
// unknown origin.
type Origin struct {
	Bridge  int // the index in the configuration
	Service registry.Name
}

// IsZero reports whether an origin is unknown.
func (o Origin) IsZero() bool { return o.Service == "" }

// Compare orders origins.
func (o Origin) Compare(other Origin) int {
	return cmp.Or(cmp.Compare(o.Bridge, other.Bridge), cmp.Compare(o.Service, other.Service))
}

// Evidence says how it is known that claims ended.
type Evidence uint8

// The kinds of evidence.
const (
	Withdrawn Evidence = iota // the source reported it
	Missing                   // a full read no longer shows it, which is weaker evidence
)

// Counts are the numbers of entries that a target is believed to store.
type Counts struct {
	Owned   int // ours
	Foreign int // of other owners, or without one, in the known groups
}

// New returns an empty planner for the given owner.
func New(owner string) *Planner {
	return &Planner{
		owner:           owner,
		groups:          make(map[registry.Group]*group),
		groupsByOrigin:  make(map[Origin][]registry.Group),
		entriesByBridge: make(map[int]int),

		registrations: registrations{
			groups: make(map[registry.Group]*registeredGroup), byAddress: make(map[string][]registeredKey),
		},
	}
}

// Claim replaces the entries that a service claims. It returns the groups whose claims
// changed, in order. Of several entries with one key, the first by value is claimed; the
// others are conflicts.
func (p *Planner) Claim(origin Origin, evidence Evidence, entries []registry.Entry) []registry.Group {
	before := p.groupsByOrigin[origin]
	var now, touched []registry.Group
	for part := range chunks(sortedUnique(entries), func(a, b *registry.Entry) bool { return a.Group == b.Group }) {
		id := part[0].Group
		now = append(now, id)
		if p.claimGroup(origin, evidence, id, part) {
			touched = append(touched, id)
		}
	}
	for _, id := range before {
		if !slices.Contains(now, id) && p.claimGroup(origin, evidence, id, nil) {
			touched = append(touched, id)
		}
	}
	switch {
	case len(now) == 0:
		delete(p.groupsByOrigin, origin)
	case !slices.Equal(before, now):
		p.groupsByOrigin[origin] = now
	}
	slices.SortFunc(touched, registry.Group.Compare)
	return touched
}

// sortedUnique returns entries in order and without duplicates.
func sortedUnique(entries []registry.Entry) []registry.Entry {
	ascending := func(a, b registry.Entry) int { return cmp.Or(compareEntries(a, b), -1) }
	if slices.IsSortedFunc(entries, ascending) {
		return entries
	}
	entries = slices.Clone(entries)
	slices.SortFunc(entries, compareEntries)
	return slices.Compact(entries)
}

// compareEntries orders entries by group, key and value.
func compareEntries(a, b registry.Entry) int {
	if c := a.Compare(b); c != 0 {
		return c
	}
	return strings.Compare(a.Value, b.Value)
}

// claimGroup replaces the claim of an origin in one group. It reports whether that changed
// the claim.
func (p *Planner) claimGroup(origin Origin, evidence Evidence, id registry.Group, entries []registry.Entry) bool {
	g := p.group(id)
	before := g.entriesOf(origin)
	changed := g.replaceClaim(origin, evidence, entries)
	p.entriesByBridge[origin.Bridge] += g.entriesOf(origin) - before
	return changed
}

// Offered reports whether an endpoint is claimed in a group.
func (p *Planner) Offered(id registry.Group) bool {
	return slices.ContainsFunc(p.lookup(id).claims, func(c *claim) bool { return c.offers })
}

// Head returns our stored head of a group; false if there is none.
func (p *Planner) Head(id registry.Group) (registry.Entry, bool) {
	if r := p.lookup(id).row(registry.HeadKey); r != nil {
		if i := indexOfOwner(r.stored, p.owner); i >= 0 {
			return registry.Entry{Group: id, Key: r.key, Value: r.stored[i].value(r.key)}, true
		}
	}
	return registry.Entry{}, false
}

// StoresOurs reports whether the target stores one of our endpoints in a group.
func (p *Planner) StoresOurs(id registry.Group) bool {
	return slices.ContainsFunc(p.lookup(id).rows, func(r keyRow) bool {
		return registry.IsEndpoint(r.key) && indexOfOwner(r.stored, p.owner) >= 0
	})
}

// Observe replaces the entries that a group is believed to store. It reports whether our
// entries differ from those before.
func (p *Planner) Observe(id registry.Group, list []registry.Stored) bool {
	g := p.group(id)
	p.addToCounts(g, -1)
	differs, lost := g.observe(p.owner, list)
	p.addToCounts(g, +1)
	p.lost = lost
	if p.SelfRegistration {
		p.registrations.observe(id, list, len(g.claims) == 0)
	}
	return differs
}

// Lost returns the keys under which the last Observe found none of our entries, although one
// was believed to be there.
func (p *Planner) Lost() []string { return p.lost }

// Applied records that a change was written. The entries of Put are live and have version
// zero. It returns the origin of each entry of Put.
func (p *Planner) Applied(c registry.Change) []Origin {
	g := p.group(c.Group)
	p.addToCounts(g, -1)
	origins := g.applyChange(p.owner, c)
	p.addToCounts(g, +1)
	return origins
}

// SessionLost records that our entries are no longer live. It returns the groups that have
// some, in order.
func (p *Planner) SessionLost() []registry.Group {
	var touched []registry.Group
	for id, g := range p.groups {
		if g.loseSession(p.owner) {
			touched = append(touched, id)
		}
	}
	slices.SortFunc(touched, registry.Group.Compare)
	return touched
}

// Concerns reports whether a group has claims, or stores any of our entries.
func (p *Planner) Concerns(id registry.Group) bool {
	g := p.lookup(id)
	return len(g.claims) > 0 || g.counts.Owned > 0
}

// Drop forgets a group without claims and without our entries. It reports whether it did.
func (p *Planner) Drop(id registry.Group) bool {
	if p.Concerns(id) {
		return false
	}
	p.addToCounts(p.lookup(id), -1)
	delete(p.groups, id)
	if p.registrations.bytes > maxRegistrations {
		p.registrations.forget(id)
	}
	return true
}

// Forget forgets the self-registered entries of groups that the target no longer lists,
// unless Concerns reports the group.
func (p *Planner) Forget(listed func(registry.Group) bool) {
	for id := range p.registrations.groups {
		if !listed(id) && !p.Concerns(id) {
			p.registrations.forget(id)
		}
	}
}

// Groups yields the groups that have claims or were observed, in no order.
func (p *Planner) Groups() iter.Seq[registry.Group] { return maps.Keys(p.groups) }

// Claimants returns the origins that claim in a group, in order.
func (p *Planner) Claimants(id registry.Group) (all []Origin) {
	for _, c := range p.lookup(id).claims {
		all = append(all, c.origin)
	}
	return all
}

// GroupsOf returns the groups in which an origin claims, in order. The caller must not change
// the list.
func (p *Planner) GroupsOf(origin Origin) []registry.Group { return p.groupsByOrigin[origin] }

// EntriesOf returns how many entries an origin claims.
func (p *Planner) EntriesOf(origin Origin) (n int) {
	for _, id := range p.groupsByOrigin[origin] {
		n += p.lookup(id).entriesOf(origin)
	}
	return n
}

// BridgeEntries returns how many entries a bridge claims.
func (p *Planner) BridgeEntries(bridge int) int { return p.entriesByBridge[bridge] }

// Counts returns the sums over all groups.
func (p *Planner) Counts() Counts { return p.counts }

// lookup returns a group; an empty one that is not kept if the group is unknown.
func (p *Planner) lookup(id registry.Group) *group {
	if g := p.groups[id]; g != nil {
		return g
	}
	return &group{exclusive: id.Exclusive}
}

// group returns a group, and keeps it if it is new.
func (p *Planner) group(id registry.Group) *group {
	g := p.lookup(id)
	p.groups[id] = g
	return g
}

// addToCounts adds the counts of a group to the sums, or subtracts them.
func (p *Planner) addToCounts(g *group, sign int) {
	p.counts.Owned += sign * g.counts.Owned
	p.counts.Foreign += sign * g.counts.Foreign
}
