package bridge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Registered says that a service claims addresses under one name, while the processes there
// register themselves under other names. A version, a group or an interface may be wrong.
type Registered struct {
	Group     registry.Group `json:"group"`     // of the claims
	Key       string         `json:"key"`       // the claim to the first address
	Addresses int            `json:"addresses"` // the number of such addresses
	As        []string       `json:"as"`        // the registrations of the first address, as group and key; at most three
	Names     int            `json:"names"`     // the number of its registrations
}

// String returns a warning of one line.
func (r Registered) String() string {
	who, more := plan.Address(r.Key)+" registers itself", ""
	switch n := r.Addresses - 1; {
	case n == 1:
		who = plan.Address(r.Key) + " and another address register themselves"
	case n > 1:
		who = fmt.Sprintf("%s and %d other addresses register themselves", plan.Address(r.Key), n)
	}
	if n := r.Names - 1; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s as %s%s, not as %s %s", who, r.As[0], more, r.Group, r.Key)
}

// Warning returns a warning of one line if addresses of the service register themselves
// under other names; empty if none does.
func (s *ServiceStatus) Warning() string {
	if len(s.Registered) == 0 {
		return ""
	}
	more := ""
	if n := len(s.Registered) - 1; n > 0 {
		more = fmt.Sprintf("; %d more in other groups, which why shows", n)
	}
	return s.Registered[0].String() + more
}

// Others are the entries next to those of a service that providers registered themselves
// under the same names.
type Others struct {
	Entries int      `json:"entries"`
	Some    []string `json:"some"` // as group and key; at most three
}

// contradictions are the groups whose registrations contradict claims in other groups. They
// are read and watched for that.
type contradictions struct {
	groups map[registry.Group]map[registry.Group]struct{} // by contradicting group: those with the claims
}

// has reports whether registrations of a group contradict a claim in another.
func (c *contradictions) has(group registry.Group) bool { return len(c.groups[group]) > 0 }

// set replaces the contradictions of the claims in a group. It returns the groups that did
// not contradict any claim before.
func (c *contradictions) set(group registry.Group, before, now []plan.Contradiction) (added []registry.Group) {
	for _, other := range groupsOf(before) {
		if delete(c.groups[other], group); len(c.groups[other]) == 0 {
			delete(c.groups, other)
		}
	}
	for _, other := range groupsOf(now) {
		if other == group {
			continue
		}
		if c.groups[other] == nil {
			c.groups[other] = make(map[registry.Group]struct{})
			added = append(added, other)
		}
		c.groups[other][group] = struct{}{}
	}
	return added
}

// groupsOf returns the groups with the registrations of contradictions.
func groupsOf(list []plan.Contradiction) (groups []registry.Group) {
	for _, c := range list {
		for _, as := range c.As {
			groups = append(groups, as.Group)
		}
	}
	return groups
}

// compareRegistrations compares the claims in a group with what providers registered
// themselves at their addresses. A contradicting group is read and watched like a group with
// claims, so that the warning stays true.
func (e *engine) compareRegistrations(it *item, now time.Time) {
	found := e.state.planner.Contradictions(it.group)
	if slices.EqualFunc(found, it.contradictions, plan.Contradiction.Equal) {
		return
	}
	before := it.contradictions
	it.contradictions = found
	it.markDirty()
	for _, group := range e.contradictions.set(it.group, before, found) {
		if other, isNew := e.state.agenda.item(group); isNew {
			other.enqueue(&e.state.agenda.refreshes, now)
		}
	}
}

// compareAllRegistrations calls compareRegistrations for every group, once all listed groups
// were read.
func (e *engine) compareAllRegistrations(now time.Time) {
	for _, it := range e.state.agenda.sortedItems() {
		e.compareRegistrations(it, now)
	}
}

// compareContradicted calls compareRegistrations for the groups whose claims a group
// contradicts.
func (e *engine) compareContradicted(group registry.Group, now time.Time) {
	for _, other := range slices.SortedFunc(maps.Keys(e.contradictions.groups[group]), registry.Group.Compare) {
		if it := e.state.agenda.items[other]; it != nil {
			e.compareRegistrations(it, now)
		}
	}
}

// addRegistered adds to the status of a service the contradictions of its claims in a group,
// and the entries there that providers registered themselves under its names.
func (s *ServiceStatus) addRegistered(origin plan.Origin, it *item) {
	for _, c := range it.contradictions {
		if c.Origin == origin {
			s.Registered = append(s.Registered, Registered{
				Group: it.group, Key: c.Claimed, Addresses: c.Addresses, As: registrationTexts(c.As), Names: c.Names,
			})
		}
	}
	for _, o := range it.others {
		if o.Origin != origin {
			continue
		}
		if s.Others == nil {
			s.Others = &Others{}
		}
		s.Others.Entries += o.Entries
		free := maxShownOthers - len(s.Others.Some)
		s.Others.Some = append(s.Others.Some, registrationTexts(o.Some)[:min(len(o.Some), free)]...)
	}
}

// maxShownOthers is the length of Others.Some.
const maxShownOthers = 3

// copied returns a status that the caller owns.
func (s *ServiceStatus) copied() ServiceStatus {
	c := *s
	c.Groups, c.Left, c.Registered = slices.Clone(s.Groups), slices.Clone(s.Left), slices.Clone(s.Registered)
	for i := range c.Registered {
		c.Registered[i].As = slices.Clone(c.Registered[i].As)
	}
	if s.Others != nil {
		c.Others = &Others{s.Others.Entries, slices.Clone(s.Others.Some)}
	}
	return c
}

// registrationTexts returns registrations as group and key.
func registrationTexts(list []plan.Registration) (all []string) {
	for _, r := range list {
		all = append(all, r.String())
	}
	return all
}
