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

// A view says what an engine is doing.
type view struct {
	*facts

	engine    *engine
	guards    *guards
	tally     *tally
	board     *board
	published time.Time // when the board was last written
	inSync    bool      // that was logged
	lastRead  time.Time
	lastWrite time.Time
	lastError error
}

// head returns what the loop is doing, without the lists that may be long.
func (v *view) head(now time.Time) Status {
	v.recount()
	counts := v.planner.Counts()
	queue, first := v.agenda.due(now)
	s := Status{
		Target: v.opts.Target, Owner: v.opts.Owner, Listed: v.listed != nil,
		Groups: len(v.agenda.items) - 1, Owned: counts.Owned, Foreign: counts.Foreign,
		Queue: queue, Arriving: len(v.agenda.arrivals), Budget: v.engine.budget.calls(), OldestDue: now.Sub(first), LastRead: v.lastRead, LastWrite: v.lastWrite,
		Bridges: make([]BridgeStatus, 0, len(v.ways)),
		Counts:  Counts{Conflicts: v.tally.conflicts},
	}
	if queue > 0 {
		s.DueSince = first
	}
	if v.lastError != nil {
		s.LastError = v.lastError.Error()
	}
	for _, b := range v.guards.scopes {
		if b.held != nil {
			s.Counts.Holds++
			s.Counts.HeldSince = soonest(s.Counts.HeldSince, b.held.Since)
		}
	}
	for _, h := range v.guards.elsewhere() {
		if h.Denied {
			continue
		}
		s.Counts.Holds++
		s.Counts.HeldSince = soonest(s.Counts.HeldSince, h.Since)
	}
	for _, w := range v.ways {
		s.Bridges = append(s.Bridges, v.bridgeStatus(w))
		s.Counts.Services += len(w.services)
	}
	return s
}

// overview returns what the loop is doing, all but the services.
func (v *view) overview(now time.Time) Status {
	s := v.head(now)
	for i, w := range v.ways {
		if len(w.known.Unknown) > 0 {
			s.Bridges[i].Unknown = make(map[string]string, len(w.known.Unknown))
		}
		for scope, err := range w.known.Unknown {
			s.Bridges[i].Unknown[scope] = err.Error()
		}
	}
	s.Services, s.Holds, s.Conflicts = []ServiceStatus{}, v.guards.holdList(), v.conflictList()
	s.Kept = v.guards.kept()
	return s
}

func (v *view) conflictList() []Conflict {
	list := make([]Conflict, 0, v.tally.conflicts)
	if v.tally.conflicts == 0 {
		return list
	}
	for _, it := range v.agenda.items {
		list = append(list, v.conflictsIn(it)...)
	}
	slices.SortFunc(list, compareConflicts)
	return list
}

// statusOf returns the status of the services of these names, and of all that have
// to do with the same groups or with those that named is true of.
func (v *view) statusOf(names map[registry.Name]bool, named func(registry.Group) bool, now time.Time) Status {
	s := v.head(now)
	s.Services, s.Holds, s.Conflicts = []ServiceStatus{}, []Hold{}, []Conflict{}
	groups, found := v.groupsOf(names, named)
	in := func(list []registry.Group) bool {
		return slices.ContainsFunc(list, func(g registry.Group) bool { return groups[g] })
	}
	for group := range groups {
		s.Conflicts = append(s.Conflicts, v.partiesTo(group, found)...)
	}
	for _, origin := range slices.SortedFunc(maps.Keys(found), plan.Origin.Compare) {
		if v.ways[origin.Bridge].services[origin.Service] != nil {
			s.Services = append(s.Services, v.serviceStatus(origin))
		}
	}
	for _, h := range v.guards.holdList() {
		if in(h.Groups) {
			s.Holds = append(s.Holds, h)
		}
	}
	for _, k := range v.guards.kept() {
		if in(k.Groups) {
			s.Kept = append(s.Kept, k)
		}
	}
	slices.SortFunc(s.Conflicts, compareConflicts)
	return s
}

// groupsOf returns the groups that services of these names have to do with, and
// those that named is true of; and the services.
func (v *view) groupsOf(names map[registry.Name]bool, named func(registry.Group) bool) (map[registry.Group]bool, map[plan.Origin]bool) {
	groups, found := make(map[registry.Group]bool), make(map[plan.Origin]bool)
	for _, w := range v.ways {
		for name := range names {
			origin := plan.Origin{Bridge: w.index, Service: name}
			if w.services[name] == nil {
				continue
			}
			found[origin] = true
			for _, group := range v.serviceStatus(origin).Groups {
				groups[group] = true
			}
		}
	}
	for group := range v.agenda.items {
		if named(group) {
			groups[group] = true
		}
	}
	return groups, found
}

// partiesTo adds who has to do with a group to those found, and returns the
// conflicts in it.
func (v *view) partiesTo(group registry.Group, found map[plan.Origin]bool) []Conflict {
	for origin := range v.planner.Claimants(group) {
		found[origin] = true
	}
	it := v.agenda.items[group]
	if it == nil {
		return nil
	}
	for _, left := range it.shares {
		found[left.origin] = true
	}
	return v.conflictsIn(it)
}

// status returns what the loop is doing, all of it at once.
func (v *view) status(now time.Time) Status {
	s := v.overview(now)
	all := v.origins(func(plan.Origin) bool { return true })
	slices.SortFunc(all, plan.Origin.Compare)
	for _, origin := range all {
		s.Services = append(s.Services, v.serviceStatus(origin))
	}
	return s
}

// origins returns the services that are asked for, in no order.
func (v *view) origins(wanted func(plan.Origin) bool) []plan.Origin {
	var all []plan.Origin
	for _, w := range v.ways {
		for name := range w.services {
			if origin := (plan.Origin{Bridge: w.index, Service: name}); wanted(origin) {
				all = append(all, origin)
			}
		}
	}
	return all
}

func (v *view) conflictsIn(it *item) (list []Conflict) {
	for _, n := range it.notes {
		if n.conflict != nil {
			list = append(list, v.conflictStatus(*n.conflict))
		}
	}
	return list
}

func (v *view) bridgeStatus(w *way) BridgeStatus {
	s := BridgeStatus{
		Name: w.Name, Policy: w.Policy, Guard: w.Guard.Mode,
		Synced: w.known.Synced, Entries: v.planner.Claimed(w.index),
		Scopes: len(w.known.Unknown), Services: len(w.services), Reasons: v.byReason(w),
	}
	if w.known.Stale != nil {
		s.Stale = w.known.Stale.Error()
	}
	return s
}

// serviceStatus returns what became of a service. What is said of it lies with
// the groups that it claims in or, where it claims no more, left something in.
func (v *view) serviceStatus(origin plan.Origin) ServiceStatus {
	w := v.ways[origin.Bridge]
	out := ServiceStatus{
		Bridge: w.Name, Service: origin.Service,
		Groups:  slices.Clone(v.planner.ClaimedIn(origin)),
		Entries: v.planner.ClaimedBy(origin),
	}
	sum := summary{reason: ReasonSynced}
	state := w.services[origin.Service]
	sum.add(cmp.Or(state.reason, ReasonSynced), state.detail)
	if err := w.unknown(origin.Service); err != nil {
		sum.add(ReasonUnknown, err.Error())
	}
	for it := range v.tally.found[origin] {
		if !slices.Contains(out.Groups, it.group) {
			out.Groups = append(out.Groups, it.group)
		}
	}
	for _, group := range out.Groups {
		it := v.agenda.items[group]
		for _, n := range it.notesOf(origin) {
			sum.add(n.reason, n.detail)
		}
		sum.add(v.finding(it))
		if it != nil {
			out.LastWrite = later(out.LastWrite, it.wroteAt)
			if it.err != nil {
				out.LastError = it.err.Error()
			}
		}
	}
	slices.SortFunc(out.Groups, registry.Group.Compare)
	out.Reason, out.Detail = sum.reason, sum.detail()
	return out
}

// finding says how far a group is, and what is kept in it.
func (v *view) finding(it *item) (Reason, string) {
	if who, standby := v.standby(it); standby {
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

func (v *view) conflictStatus(c plan.Conflict) Conflict {
	return Conflict{
		Group: c.Group, Key: c.Key, Bridge: v.ways[c.Origin.Bridge].Name,
		Service: c.Origin.Service, Winner: v.journal.winner(c),
	}
}

func compareConflicts(a, b Conflict) int {
	if c := a.Group.Compare(b.Group); c != 0 {
		return c
	}
	return strings.Compare(a.Key+"\x00"+a.Bridge+"\x00"+string(a.Service), b.Key+"\x00"+b.Bridge+"\x00"+string(b.Service))
}

// unlisted returns the error of a target that may not be listed; nil where it may.
func (v *view) unlisted() error {
	if list := v.agenda.items[registry.Group{}]; list != nil && list.attempts > 0 && list.refused() {
		return list.err
	}
	return nil
}

// plan returns what every group needs, and what is held back and why.
func (v *view) plan(now time.Time) []Planned {
	var out []Planned
	for _, group := range slices.SortedFunc(v.planner.Groups(), registry.Group.Compare) {
		it, _ := v.agenda.item(group)
		full, _ := v.planner.Change(group)
		d := draft{facts: v.facts, guards: v.guards, item: it, now: now}
		p := Planned{Change: d.permit()}
		it.stir()
		for _, h := range full.Delete {
			if o := it.orphans[h.Key]; o != nil && !slices.Contains(p.Change.Delete, h) {
				v := v.guards.judge(o, now)
				p.Held = append(p.Held, HeldBack{Entry: h.Entry, Reason: v.reason, Detail: v.detail})
			}
		}
		if !p.Change.Empty() || len(p.Held) > 0 {
			out = append(out, p)
		}
	}
	return out
}
