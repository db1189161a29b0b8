package bridge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// head returns what the loop is doing, without the lists that may be long.
func (l *loop) head(now time.Time) Status {
	l.recount()
	counts := l.planner.Counts()
	queue, first := l.agenda.due(now)
	s := Status{
		Target: l.opts.Target, Owner: l.opts.Owner, Listed: l.listed != nil,
		Groups: len(l.agenda.items) - 1, Owned: counts.Owned, Foreign: counts.Foreign,
		Queue: queue, Arriving: len(l.agenda.arrivals), Budget: l.budget.calls(), OldestDue: now.Sub(first), LastRead: l.lastRead, LastWrite: l.lastWrite,
		Bridges: make([]BridgeStatus, 0, len(l.ways)),
		Counts:  Counts{Conflicts: l.tally.conflicts},
	}
	if queue > 0 {
		s.DueSince = first
	}
	if l.lastError != nil {
		s.LastError = l.lastError.Error()
	}
	for _, b := range l.scopes {
		if b.held != nil {
			s.Counts.Holds++
			s.Counts.HeldSince = soonest(s.Counts.HeldSince, b.held.Since)
		}
	}
	for _, h := range l.records.elsewhere {
		if h.Denied {
			continue
		}
		s.Counts.Holds++
		s.Counts.HeldSince = soonest(s.Counts.HeldSince, h.Since)
	}
	for _, w := range l.ways {
		s.Bridges = append(s.Bridges, l.bridgeStatus(w))
		s.Counts.Services += len(w.services)
	}
	return s
}

// overview returns what the loop is doing, all but the services.
func (l *loop) overview(now time.Time) Status {
	s := l.head(now)
	for i, w := range l.ways {
		if len(w.known.Unknown) > 0 {
			s.Bridges[i].Unknown = make(map[string]string, len(w.known.Unknown))
		}
		for scope, err := range w.known.Unknown {
			s.Bridges[i].Unknown[scope] = err.Error()
		}
	}
	s.Services, s.Holds, s.Conflicts = []ServiceStatus{}, l.holdList(), l.conflictList()
	s.Kept = l.kept()
	return s
}

func (l *loop) holdList() []Hold {
	list := make([]Hold, 0, len(l.scopes))
	for _, b := range l.scopes {
		for _, h := range b.holds() {
			list = append(list, h.Hold)
		}
	}
	for _, set := range slices.Sorted(maps.Keys(l.records.elsewhere)) {
		list = append(list, l.records.elsewhere[set])
	}
	return list
}

func (l *loop) conflictList() []Conflict {
	list := make([]Conflict, 0, l.tally.conflicts)
	if l.tally.conflicts == 0 {
		return list
	}
	for _, it := range l.agenda.items {
		list = append(list, l.conflictsIn(it)...)
	}
	slices.SortFunc(list, compareConflicts)
	return list
}

// statusOf returns the status of the services of these names, and of all that have
// to do with the same groups or with those that named is true of.
func (l *loop) statusOf(names map[registry.Name]bool, named func(registry.Group) bool, now time.Time) Status {
	s := l.head(now)
	s.Services, s.Holds, s.Conflicts = []ServiceStatus{}, []Hold{}, []Conflict{}
	groups, found := l.groupsOf(names, named)
	in := func(list []registry.Group) bool {
		return slices.ContainsFunc(list, func(g registry.Group) bool { return groups[g] })
	}
	for group := range groups {
		s.Conflicts = append(s.Conflicts, l.partiesTo(group, found)...)
	}
	for _, origin := range slices.SortedFunc(maps.Keys(found), plan.Origin.Compare) {
		if l.ways[origin.Bridge].services[origin.Service] != nil {
			s.Services = append(s.Services, l.serviceStatus(origin))
		}
	}
	for _, h := range l.holdList() {
		if in(h.Groups) {
			s.Holds = append(s.Holds, h)
		}
	}
	for _, k := range l.kept() {
		if in(k.Groups) {
			s.Kept = append(s.Kept, k)
		}
	}
	slices.SortFunc(s.Conflicts, compareConflicts)
	return s
}

// groupsOf returns the groups that services of these names have to do with, and
// those that named is true of; and the services.
func (l *loop) groupsOf(names map[registry.Name]bool, named func(registry.Group) bool) (map[registry.Group]bool, map[plan.Origin]bool) {
	groups, found := make(map[registry.Group]bool), make(map[plan.Origin]bool)
	for _, w := range l.ways {
		for name := range names {
			origin := plan.Origin{Bridge: w.index, Service: name}
			if w.services[name] == nil {
				continue
			}
			found[origin] = true
			for _, group := range l.serviceStatus(origin).Groups {
				groups[group] = true
			}
		}
	}
	for group := range l.agenda.items {
		if named(group) {
			groups[group] = true
		}
	}
	return groups, found
}

// partiesTo adds who has to do with a group to those found, and returns the
// conflicts in it.
func (l *loop) partiesTo(group registry.Group, found map[plan.Origin]bool) []Conflict {
	for origin := range l.planner.Claimants(group) {
		found[origin] = true
	}
	it := l.agenda.items[group]
	if it == nil {
		return nil
	}
	for _, left := range it.shares {
		found[left.origin] = true
	}
	return l.conflictsIn(it)
}

// status returns what the loop is doing, all of it at once.
func (l *loop) status(now time.Time) Status {
	s := l.overview(now)
	all := l.origins(func(plan.Origin) bool { return true })
	slices.SortFunc(all, plan.Origin.Compare)
	for _, origin := range all {
		s.Services = append(s.Services, l.serviceStatus(origin))
	}
	return s
}

// kept returns what of ours stays that nobody claims, by the reason: a source
// cannot tell of what it came from, or its time has not come.
func (l *loop) kept() []Kept {
	by := make(map[string]*Kept)
	add := func(group registry.Group, entries int, why string) {
		k := by[why]
		if k == nil {
			k = &Kept{Why: why}
			by[why] = k
		}
		k.Entries += entries
		if n := len(k.Groups); n == 0 || k.Groups[n-1] != group {
			k.Groups = append(k.Groups, group)
		}
	}
	for it := range l.owing {
		for _, n := range it.notes {
			if !n.known && (n.reason == ReasonUnknown || n.reason == ReasonWaiting) { // what a bridge claimed is in its service's row
				add(it.group, n.entries, n.detail)
			}
		}
	}
	var all []Kept
	for _, why := range slices.Sorted(maps.Keys(by)) {
		slices.SortFunc(by[why].Groups, registry.Group.Compare)
		all = append(all, *by[why])
	}
	return all
}

// origins returns the services that are asked for, in no order.
func (l *loop) origins(wanted func(plan.Origin) bool) []plan.Origin {
	var all []plan.Origin
	for _, w := range l.ways {
		for name := range w.services {
			if origin := (plan.Origin{Bridge: w.index, Service: name}); wanted(origin) {
				all = append(all, origin)
			}
		}
	}
	return all
}

func (l *loop) conflictsIn(it *item) (list []Conflict) {
	for _, n := range it.notes {
		if n.conflict != nil {
			list = append(list, l.conflictStatus(*n.conflict))
		}
	}
	return list
}

func (l *loop) bridgeStatus(w *way) BridgeStatus {
	s := BridgeStatus{
		Name: w.Name, Policy: w.Policy, Guard: w.Guard.Mode,
		Synced: w.known.Synced, Entries: l.planner.Claimed(w.index),
		Scopes: len(w.known.Unknown), Services: len(w.services), Reasons: l.byReason(w),
	}
	if w.known.Stale != nil {
		s.Stale = w.known.Stale.Error()
	}
	return s
}

// serviceStatus returns what became of a service. What is said of it lies with
// the groups that it claims in or, where it claims no more, left something in.
func (l *loop) serviceStatus(origin plan.Origin) ServiceStatus {
	w := l.ways[origin.Bridge]
	out := ServiceStatus{
		Bridge: w.Name, Service: origin.Service,
		Groups:  slices.Clone(l.planner.ClaimedIn(origin)),
		Entries: l.planner.ClaimedBy(origin),
	}
	v := summary{reason: ReasonSynced}
	state := w.services[origin.Service]
	v.add(cmp.Or(state.reason, ReasonSynced), state.detail)
	if err := w.unknown(origin.Service); err != nil {
		v.add(ReasonUnknown, err.Error())
	}
	for it := range l.tally.found[origin] {
		if !slices.Contains(out.Groups, it.group) {
			out.Groups = append(out.Groups, it.group)
		}
	}
	for _, group := range out.Groups {
		it := l.agenda.items[group]
		for _, n := range it.notesOf(origin) {
			v.add(n.reason, n.detail)
		}
		v.add(l.finding(it))
		if it != nil {
			out.LastWrite = later(out.LastWrite, it.wroteAt)
			if it.err != nil {
				out.LastError = it.err.Error()
			}
		}
	}
	slices.SortFunc(out.Groups, registry.Group.Compare)
	out.Reason, out.Detail = v.reason, v.detail()
	return out
}

// notesOf returns what is left undone in a group for a service.
func (it *item) notesOf(origin plan.Origin) (list []note) {
	if it == nil {
		return nil
	}
	for _, n := range it.notes {
		if n.known && n.origin == origin {
			list = append(list, n)
		}
	}
	return list
}

// finding says how far a group is, and what is kept in it.
func (l *loop) finding(it *item) (Reason, string) {
	if who, standby := l.standby(it); standby {
		return ReasonStandby, who
	}
	reason, detail := it.finding()
	if reason == ReasonSynced {
		for _, n := range it.notes {
			if !n.known && n.reason == ReasonUnknown { // and not by a policy or a setting
				return ReasonKept, fmt.Sprintf("%d entries of ours that nobody claims stay beside it: %s", n.entries, n.detail)
			}
		}
	}
	return reason, detail
}

// finding says how far a group is.
func (it *item) finding() (Reason, string) {
	switch {
	case it == nil:
		return ReasonPending, "the target was not listed yet"
	case it.attempts > 0 && it.refused():
		return ReasonRefused, it.err.Error()
	case it.attempts > 0:
		return ReasonRetrying, it.err.Error()
	case it.missed >= stubborn, it.races >= contested:
		return ReasonRefused, overridden
	case it.change.pending() || it.readAt.IsZero() || it.busy && it.change.written.After(it.wroteAt):
		return ReasonPending, "a write is due"
	}
	return ReasonSynced, ""
}

// A summary is the worst of all reasons that a service has, with all that is
// said about it.
type summary struct {
	reason  Reason
	details []string
}

func (s *summary) add(reason Reason, detail string) {
	switch worse := reason.rank() - s.reason.rank(); {
	case worse < 0:
		return
	case worse > 0:
		s.reason, s.details = reason, nil
	}
	if detail != "" {
		s.details = append(s.details, detail)
	}
}

func (s *summary) detail() string {
	slices.Sort(s.details)
	return strings.Join(slices.Compact(s.details), "; ")
}

func (l *loop) conflictStatus(c plan.Conflict) Conflict {
	return Conflict{
		Group: c.Group, Key: c.Key, Bridge: l.ways[c.Origin.Bridge].Name,
		Service: c.Origin.Service, Winner: l.winner(c),
	}
}

func compareConflicts(a, b Conflict) int {
	if c := a.Group.Compare(b.Group); c != 0 {
		return c
	}
	return strings.Compare(a.Key+"\x00"+a.Bridge+"\x00"+string(a.Service), b.Key+"\x00"+b.Bridge+"\x00"+string(b.Service))
}

// plan returns what every group needs, and what is held back and why.
func (l *loop) plan(now time.Time) []Planned {
	var out []Planned
	for _, group := range slices.SortedFunc(l.planner.Groups(), registry.Group.Compare) {
		it, _ := l.agenda.item(group)
		full, _ := l.planner.Change(group)
		p := Planned{Change: l.permit(it, now)}
		it.stir()
		for _, h := range full.Delete {
			if o := it.orphans[h.Key]; o != nil && !slices.Contains(p.Change.Delete, h) {
				v := l.judge(o, now)
				p.Held = append(p.Held, HeldBack{Entry: h.Entry, Reason: v.reason, Detail: v.detail})
			}
		}
		if !p.Change.Empty() || len(p.Held) > 0 {
			out = append(out, p)
		}
	}
	return out
}
