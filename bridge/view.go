package bridge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// publishEvery is the shortest time between two updates of status, unless a method of Loop
// requires one.
const publishEvery = 100 * time.Millisecond

// A statusCache has the status of an engine a moment ago. The engine updates it; other
// goroutines read it without waiting for the engine's next turn.
type statusCache struct {
	state  *sharedState
	engine *engine

	// Owned by the goroutine of the loop.
	published time.Time // when the cache was last updated
	inSync    bool      // "in sync" was logged
	lastRead  time.Time
	lastWrite time.Time
	lastError error

	// mu guards the fields below, and reasons and unknowns of each pipeline.
	mu          sync.Mutex
	head        Status                        // without services, conflicts and kept entries
	services    map[plan.Origin]*serviceRow   // the rows are immutable
	conflicts   int                           // of all services
	keptEntries map[registry.Group][]omission // of unclaimed entries without a known service
}

// A serviceRow is the status of a service, with its conflicts.
type serviceRow struct {
	ServiceStatus

	conflicts []Conflict
}

func newStatusCache(e *engine) *statusCache {
	return &statusCache{
		state: e.state, engine: e,
		head:     Status{Target: e.state.opts.Target, Owner: e.state.opts.Owner, Holds: []Hold{}},
		services: make(map[plan.Origin]*serviceRow), keptEntries: make(map[registry.Group][]omission),
	}
}

// publish updates the cache, unless it was updated less than publishEvery ago. It returns
// when to call it again; zero: after the next event.
func (v *statusCache) publish(now time.Time) time.Time {
	if at := v.published.Add(publishEvery); now.Before(at) {
		return at
	}
	v.update(now)
	return time.Time{}
}

// update updates the cache. Its cost depends only on what changed since the last update.
func (v *statusCache) update(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.published = now
	for _, it := range v.state.agenda.dirty {
		it.dirty = false
		v.updateGroup(it)
	}
	v.state.agenda.dirty = nil
	for _, p := range v.state.pipelines {
		for name := range p.dirty {
			v.updateService(p, plan.Origin{Bridge: p.index, Service: name})
		}
		p.dirty = make(map[registry.Name]struct{})
	}
	v.head = v.newHead(now)
	// Before the admission another process may still write to the target.
	isInSync := v.head.InSync() && v.head.Counts.Holds+v.head.Counts.Conflicts == 0
	if isInSync && !v.inSync && v.state.admitted() == nil {
		v.inSync = true
		v.state.opts.Log.Info("in sync", "target", v.state.opts.Target, "entries", v.head.Owned)
	}
}

// updateGroup updates what is shown of a group, and marks the services dirty that claim in
// it or have orphans there.
func (v *statusCache) updateGroup(it *item) {
	it.reason, it.detail = v.reasonAndDetail(it)
	slices.SortStableFunc(it.omissions, func(a, b omission) int { return a.origin.Compare(b.origin) })
	it.others = v.state.planner.SelfRegistered(it.group)
	delete(v.keptEntries, it.group)
	for _, n := range it.omissions { // those of a known service are in its row
		if n.origin.IsZero() && (n.reason == ReasonUnknown || n.reason == ReasonWaiting) {
			v.keptEntries[it.group] = append(v.keptEntries[it.group], n)
		}
	}
	for _, origin := range v.state.planner.Claimants(it.group) {
		v.state.pipelines[origin.Bridge].markDirty(origin.Service)
	}
	for _, o := range it.orphans {
		if !o.Origin.IsZero() {
			v.state.pipelines[o.Origin.Bridge].markDirty(o.Origin.Service)
		}
	}
}

// updateService updates the row of a service, or the scope of that name.
func (v *statusCache) updateService(p *pipeline, origin plan.Origin) {
	if before := v.services[origin]; before != nil {
		p.reasons[before.Reason]--
		v.conflicts -= len(before.conflicts)
		delete(v.services, origin)
	}
	if s := p.services[origin.Service]; s != nil {
		row := v.newServiceRow(origin, s)
		p.reasons[row.Reason]++
		v.conflicts += len(row.conflicts)
		v.services[origin] = row
	}
	scope := string(origin.Service)
	delete(p.unknowns, scope)
	if err := p.certainty.Unknown[scope]; err != nil {
		p.unknowns[scope] = err.Error()
	}
}

// newServiceRow returns the row of a service. It collects what is known of the service in
// the groups in which it claims or has orphans.
func (v *statusCache) newServiceRow(origin plan.Origin, s *serviceState) *serviceRow {
	p, details := v.state.pipelines[origin.Bridge], []string(nil)
	out := &serviceRow{ServiceStatus: ServiceStatus{
		Bridge: p.Name, Service: origin.Service, Reason: ReasonSynced,
		Groups: v.state.planner.GroupsOf(origin), Entries: v.state.planner.EntriesOf(origin),
	}}
	add := func(reason Reason, detail string) { // keeps the worst reason, with all its details
		if reason.Compare(out.Reason) > 0 {
			out.Reason, details = reason, nil
		}
		if reason == out.Reason && detail != "" {
			details = append(details, detail)
		}
	}
	add(cmp.Or(s.reason, ReasonSynced), s.detail)
	unknown := registry.Certainty{Unknown: p.certainty.Unknown} // a stale source is shown by its bridge
	if err := unknownError(unknown.Of(origin.Service)); err != nil {
		add(ReasonUnknown, err.Error())
	}
	if len(s.orphans) > 0 {
		out.Groups = slices.AppendSeq(slices.Clone(out.Groups), maps.Keys(s.orphans))
		slices.SortFunc(out.Groups, registry.Group.Compare)
		out.Groups = slices.Compact(out.Groups)
	}
	for _, group := range out.Groups {
		it := v.state.agenda.items[group]
		if it == nil {
			add(ReasonPending, "the target was not listed yet")
			continue
		}
		add(it.reason, it.detail)
		out.addRegistered(origin, it)
		first, _ := slices.BinarySearchFunc(it.omissions, origin, func(n omission, o plan.Origin) int {
			return n.origin.Compare(o)
		})
		for _, n := range it.omissions[first:] {
			if n.origin != origin {
				break
			}
			add(n.reason, n.detail)
			for _, key := range n.keys {
				out.Left = append(out.Left, group.String()+" "+key)
			}
			out.Until = soonest(out.Until, n.until)
			if c := n.conflict; c != nil {
				out.conflicts = append(out.conflicts, Conflict{
					Group: group, Key: c.Key, Bridge: p.Name, Service: origin.Service,
					Winner: v.state.journal.describeWinner(*c),
				})
			}
		}
		out.LastWrite = later(out.LastWrite, it.wroteAt)
		out.LastError = cmp.Or(errorText(it.lastErr), out.LastError)
	}
	out.setDetail(details)
	slices.Sort(out.Left)
	return out
}

// setDetail sets the detail of the reason; for conflicts it names the winners.
func (r *serviceRow) setDetail(details []string) {
	if r.Reason == ReasonConflict {
		details = winnerTexts(r.conflicts)
	}
	slices.Sort(details)
	r.Detail = strings.Join(slices.Compact(details), "; ")
}

// winnerTexts returns, for each winner of conflicts, its entry or how many it has.
func winnerTexts(conflicts []Conflict) (all []string) {
	by := make(map[string][]string)
	for _, c := range conflicts {
		by[c.Winner] = append(by[c.Winner], c.Key)
	}
	for winner, keys := range by {
		if len(keys) == 1 {
			all = append(all, keys[0]+" belongs to "+winner)
		} else {
			all = append(all, fmt.Sprintf("%d entries belong to %s", len(keys), winner))
		}
	}
	return all
}

// reasonAndDetail returns what status shows of a group.
func (v *statusCache) reasonAndDetail(it *item) (Reason, string) {
	if who, standby := v.state.standby(it); standby {
		return ReasonStandby, who
	}
	reason, detail := it.reasonAndDetail()
	if reason == ReasonSynced {
		for _, n := range it.omissions {
			if n.origin.IsZero() && n.reason == ReasonUnknown {
				kept := registry.Counted(n.entries,
					"unclaimed entry of this owner is kept", "unclaimed entries of this owner are kept")
				return ReasonKept, kept + ": " + n.detail
			}
		}
	}
	return reason, detail
}

// newHead returns the current head of status.
func (v *statusCache) newHead(now time.Time) Status {
	counts := v.state.planner.Counts()
	s := Status{
		Target: v.state.opts.Target, Owner: v.state.opts.Owner, Listed: v.state.listed != nil,
		Groups: len(v.state.agenda.items) - 1, Owned: counts.Owned, Foreign: counts.Foreign,
		Arriving: len(v.state.agenda.arrivals), Budget: v.engine.budget.maxCalls(),
		LastRead: v.lastRead, LastWrite: v.lastWrite, LastError: errorText(v.lastError),
		Unrecorded: errorText(v.engine.state.records.problem()),
		Holds:      v.engine.guards.holdList(), Counts: Counts{Services: len(v.services), Conflicts: v.conflicts},
	}
	queue, first := v.state.agenda.countDue(now)
	for it, freed := range v.engine.guards.awaitingRecord { // a deletion that waits for its record is due
		if first = earlier(first, freed); it.queue == nil || it.dueAt.After(now) { // else countDue counted it
			queue++
		}
	}
	if queue > 0 {
		s.Queue, s.DueSince = queue, first
	}
	for _, h := range s.Holds {
		if h.Denied {
			s.Counts.Denied += h.Count
			s.Counts.DeniedSince = soonest(s.Counts.DeniedSince, h.Since)
			continue
		}
		s.Counts.Holds++
		s.Counts.HeldSince = soonest(s.Counts.HeldSince, h.Since)
	}
	for _, p := range v.state.pipelines {
		s.Bridges = append(s.Bridges, BridgeStatus{
			Name: p.Name, Policy: p.Policy, Guard: p.Guard.Mode,
			Synced: p.certainty.Synced, Stale: errorText(p.certainty.Stale),
			Unknown: p.unknowns, Scopes: len(p.certainty.Unknown), Entries: v.state.planner.BridgeEntries(p.index),
			Services: len(p.services), Reasons: p.reasons, Nothing: v.emptyExample(p),
		})
	}
	return s
}

// emptyExample returns one of the empty services, and why it is empty, if a bridge has some
// and claims nothing.
func (v *statusCache) emptyExample(p *pipeline) string {
	if v.state.planner.BridgeEntries(p.index) > 0 || p.reasons[ReasonEmpty] == 0 {
		return ""
	}
	var first registry.Name
	for name, s := range p.services {
		if s.reason == ReasonEmpty && (first == "" || name < first) {
			first = name
		}
	}
	if first == "" {
		return ""
	}
	return string(first) + ": " + p.services[first].detail
}

// errorText returns the text of an error; empty for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// summary returns status without its lists. The caller must hold mu.
func (v *statusCache) summary() Status {
	s := v.head
	s.Holds, s.Bridges = nil, slices.Clone(s.Bridges)
	for i := range s.Bridges {
		b := &s.Bridges[i]
		b.Unknown, b.Reasons = nil, maps.Clone(b.Reasons)
		maps.DeleteFunc(b.Reasons, func(_ Reason, n int) bool { return n == 0 })
	}
	if !s.DueSince.IsZero() {
		s.OldestDue = time.Since(s.DueSince)
	}
	return s
}

// status returns the whole status.
func (v *statusCache) status() Status {
	v.mu.Lock()
	s, services, kept := v.summary(), slices.Collect(maps.Values(v.services)), maps.Clone(v.keptEntries)
	s.Holds = slices.Clone(v.head.Holds)
	for i, b := range v.head.Bridges {
		s.Bridges[i].Unknown = maps.Clone(b.Unknown)
	}
	v.mu.Unlock()
	slices.SortFunc(services, func(a, b *serviceRow) int {
		return cmp.Or(cmp.Compare(a.Bridge, b.Bridge), cmp.Compare(a.Service, b.Service))
	})
	s.Services, s.Conflicts = make([]ServiceStatus, len(services)), []Conflict{}
	for i, r := range services {
		s.Services[i] = r.copied()
		s.Conflicts = append(s.Conflicts, r.conflicts...)
	}
	slices.SortStableFunc(s.Conflicts, func(a, b Conflict) int {
		return cmp.Or(a.Group.Compare(b.Group), cmp.Compare(a.Key, b.Key))
	})
	by := make(map[string]Kept)
	for _, group := range slices.SortedFunc(maps.Keys(kept), registry.Group.Compare) {
		for _, n := range kept[group] {
			k := by[n.detail]
			k.Why, k.Entries, k.Until = n.detail, k.Entries+n.entries, soonest(k.Until, n.until)
			for _, key := range n.keys {
				k.Keys = append(k.Keys, group.String()+" "+key)
			}
			if i := len(k.Groups); i == 0 || k.Groups[i-1] != group {
				k.Groups = append(k.Groups, group)
			}
			by[n.detail] = k
		}
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		s.Kept = append(s.Kept, by[why])
	}
	return s
}

// listError returns the error of a target that refuses to be listed; nil if it does not.
func (v *statusCache) listError() error {
	if list := v.state.agenda.items[registry.Group{}]; list != nil && list.attempts > 0 && list.refused() {
		return list.lastErr
	}
	return nil
}

// plan returns what has to be written to each group, and which deletions are held back.
func (v *statusCache) plan(now time.Time) []Planned {
	var out []Planned
	for _, group := range slices.SortedFunc(v.state.planner.Groups(), registry.Group.Compare) {
		it, _ := v.state.agenda.item(group)
		full, _ := v.state.planner.Change(group)
		d := draft{state: v.state, guards: v.engine.guards, item: it, now: now}
		p := Planned{Change: d.allow()}
		it.markDirty()
		for _, h := range full.Delete {
			if o := it.orphans[h.Key]; o != nil && !slices.Contains(p.Change.Delete, h) {
				judged := d.guards.judge(o, now)
				if judged.reason == "" { // the guard allows it
					judged.reason, judged.detail = ReasonWaiting, "it is deleted with the last other entry of its group"
				}
				p.HeldBack = append(p.HeldBack, HeldBack{Entry: h.Entry, Reason: judged.reason, Detail: judged.detail})
			}
		}
		if !p.Change.Empty() || len(p.HeldBack) > 0 {
			out = append(out, p)
		}
	}
	return out
}
