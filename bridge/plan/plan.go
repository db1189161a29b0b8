// Package plan works out what has to be written to a target: per group, what
// is claimed against what is held. It does no I/O, knows no time and starts
// no goroutine.
package plan

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Planner keeps what every service of every bridge claims in one target and
// what the target is believed to hold. It is not safe for concurrent use.
type Planner struct {
	// Yields reports whether a claim gives way to entries of others whose keys
	// differ from its own in what is before :// alone; nil: none does.
	Yields func(Origin, registry.Entry) bool

	// Drained reports whether nothing is to be added under a key, because a provider
	// that had registered itself there deregistered; nil: it may everywhere.
	Drained func(registry.Group, string) bool

	// SelfRegistration reports whether providers can register themselves in the target,
	// next to entries of ours. It is set before the first Observe.
	SelfRegistration bool

	owner           string
	groups          map[registry.Group]*group
	groupsByOrigin  map[Origin][]registry.Group // the groups each origin claims in
	entriesByBridge map[int]int                 // entries by bridge
	counts          Counts
	lost            []string // see Lost

	registrations registrations
}

// Origin is who claims an entry; the zero value is nobody. Origins are ordered by
// bridge, then service, and the first of several that claim one key has it.
type Origin struct {
	Bridge  int // its place in the configuration
	Service registry.Name
}

// IsZero reports whether an origin is nobody.
func (o Origin) IsZero() bool { return o.Service == "" }

// Compare orders origins.
func (o Origin) Compare(other Origin) int {
	return cmp.Or(cmp.Compare(o.Bridge, other.Bridge), cmp.Compare(o.Service, other.Service))
}

// Evidence is how it is known that claims ended.
type Evidence uint8

// The kinds of evidence.
const (
	Withdrawn Evidence = iota // the source reported it
	Missing                   // a full reading did not show it any more, which is weaker
)

// Counts sum up what a target is believed to hold.
type Counts struct {
	Owned   int // entries of ours
	Foreign int // entries of others in the groups known
}

// New returns an empty planner for the given owner.
func New(owner string) *Planner {
	return &Planner{
		owner:           owner,
		groups:          make(map[registry.Group]*group),
		groupsByOrigin:  make(map[Origin][]registry.Group),
		entriesByBridge: make(map[int]int),

		registrations: registrations{groups: make(map[registry.Group]*registeredGroup), byAddress: make(map[string][]registration)},
	}
}

// Claim replaces what a service wants the target to hold and returns the
// groups that this touches, in order. Of several entries with one key the
// first in order of the value is claimed, the others are conflicts.
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

// sortedUnique returns entries in order and without repetition.
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

func (p *Planner) claimGroup(origin Origin, evidence Evidence, id registry.Group, entries []registry.Entry) bool {
	g := p.group(id)
	before := g.entriesOf(origin)
	changed := g.replaceClaim(origin, evidence, entries)
	p.entriesByBridge[origin.Bridge] += g.entriesOf(origin) - before
	return changed
}

// Offered reports whether anybody claims an endpoint in a group.
func (p *Planner) Offered(id registry.Group) bool {
	return slices.ContainsFunc(p.lookup(id).claims, func(c *claim) bool { return c.offers })
}

// Head returns our entry of a group itself, false if the
// target holds none.
func (p *Planner) Head(id registry.Group) (registry.Entry, bool) {
	if r := p.lookup(id).row(registry.HeadKey); r != nil {
		if i := indexOfOwner(r.stored, p.owner); i >= 0 {
			return registry.Entry{Group: id, Key: r.key, Value: r.stored[i].value(r.key)}, true
		}
	}
	return registry.Entry{}, false
}

// HoldsOurs reports whether the target holds an endpoint of ours in a group.
func (p *Planner) HoldsOurs(id registry.Group) bool {
	return slices.ContainsFunc(p.lookup(id).rows, func(r keyRow) bool { return registry.IsEndpoint(r.key) && indexOfOwner(r.stored, p.owner) >= 0 })
}

// Observe replaces what the target is believed to hold in a group and reports
// whether that differs, in entries of ours, from what was believed.
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

// Lost returns the keys under which the target held something of ours before the last
// Observe, and nothing after it.
func (p *Planner) Lost() []string { return p.lost }

// Applied records that a change reached the target. What was put is live and
// of version zero. It returns who claims each entry of Put.
func (p *Planner) Applied(c registry.Change) []Origin {
	g := p.group(c.Group)
	p.addToCounts(g, -1)
	origins := g.applyChange(p.owner, c)
	p.addToCounts(g, +1)
	return origins
}

// SessionLost records that nothing of ours is live any more, and returns the
// groups that this touches, in order.
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

// Concerns reports whether somebody claims in a group, or the target holds
// something of ours there.
func (p *Planner) Concerns(id registry.Group) bool {
	g := p.lookup(id)
	return len(g.claims) > 0 || g.counts.Owned > 0
}

// Drop forgets a group that nobody claims and where the target holds nothing
// of ours; it reports whether it did.
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

// Forget forgets what providers registered themselves in groups that the target does not
// list and that nobody claims.
func (p *Planner) Forget(listed func(registry.Group) bool) {
	for id := range p.registrations.groups {
		if !listed(id) && !p.Concerns(id) {
			p.registrations.forget(id)
		}
	}
}

// Groups yields the groups that are claimed or were observed, in no order.
func (p *Planner) Groups() iter.Seq[registry.Group] { return maps.Keys(p.groups) }

// Claimants returns who claims in a group, in order.
func (p *Planner) Claimants(id registry.Group) (all []Origin) {
	for _, c := range p.lookup(id).claims {
		all = append(all, c.origin)
	}
	return all
}

// GroupsOf returns the groups in which an origin claims, in order. The caller
// must not write to it.
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

// lookup returns a group, an empty one where nothing is known of it.
func (p *Planner) lookup(id registry.Group) *group {
	if g := p.groups[id]; g != nil {
		return g
	}
	return &group{exclusive: id.Exclusive}
}

// group returns a group, a new one where there was none.
func (p *Planner) group(id registry.Group) *group {
	g := p.lookup(id)
	p.groups[id] = g
	return g
}

func (p *Planner) addToCounts(g *group, sign int) {
	p.counts.Owned += sign * g.counts.Owned
	p.counts.Foreign += sign * g.counts.Foreign
}
