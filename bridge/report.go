package bridge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// status returns what the loop is doing.
func (l *loop) status(now time.Time) Status {
	counts := l.planner.Counts()
	queue, first := l.agenda.due(now)
	s := Status{
		Target: l.opts.Target, Owner: l.opts.Owner, Listed: l.listed != nil,
		Groups: len(l.agenda.items) - 1, Owned: counts.Owned, Foreign: counts.Foreign,
		Queue: queue, Arriving: len(l.agenda.arrivals), Budget: l.budget.calls(), OldestDue: now.Sub(first), LastRead: l.lastRead, LastWrite: l.lastWrite,
		Bridges: make([]BridgeStatus, 0, len(l.ways)), Services: []ServiceStatus{},
		Holds: make([]Hold, 0, len(l.holds)), Conflicts: []Conflict{},
	}
	if l.lastError != nil {
		s.LastError = l.lastError.Error()
	}
	for _, h := range l.holds {
		s.Holds = append(s.Holds, h.report())
	}
	s.Holds = append(s.Holds, l.holdsElsewhere()...)
	notes := l.notes()
	for _, w := range l.ways {
		s.Bridges = append(s.Bridges, l.bridgeStatus(w))
		for _, name := range slices.Sorted(maps.Keys(w.services)) {
			origin := plan.Origin{Bridge: w.index, Service: name}
			s.Services = append(s.Services, l.serviceStatus(w, origin, notes[origin]))
		}
	}
	for _, it := range l.agenda.items {
		for _, n := range it.notes {
			if n.conflict != nil {
				s.Conflicts = append(s.Conflicts, l.conflictStatus(*n.conflict))
			}
		}
	}
	slices.SortFunc(s.Conflicts, compareConflicts)
	return s
}

// located is a note with the group that it is of.
type located struct {
	note
	group registry.Group
}

// notes returns the notes of all groups, by whom they concern.
func (l *loop) notes() map[plan.Origin][]located {
	out := make(map[plan.Origin][]located)
	for _, it := range l.agenda.items {
		for _, n := range it.notes {
			if n.known {
				out[n.origin] = append(out[n.origin], located{n, it.group})
			}
		}
	}
	return out
}

func (l *loop) bridgeStatus(w *way) BridgeStatus {
	s := BridgeStatus{
		Name: w.Name, Policy: w.Policy, Guard: w.Guard.Mode,
		Synced: w.known.Synced, Entries: l.planner.Claimed(w.index),
	}
	if w.known.Stale != nil {
		s.Stale = w.known.Stale.Error()
	}
	for scope, err := range w.known.Unknown {
		if s.Unknown == nil {
			s.Unknown = make(map[string]string, len(w.known.Unknown))
		}
		s.Unknown[scope] = err.Error()
	}
	return s
}

func (l *loop) serviceStatus(w *way, origin plan.Origin, notes []located) ServiceStatus {
	out := ServiceStatus{
		Bridge: w.Name, Service: origin.Service,
		Groups:  slices.Clone(l.planner.ClaimedIn(origin)),
		Entries: l.planner.ClaimedBy(origin),
	}
	state := w.services[origin.Service]
	v := summary{reason: ReasonSynced}
	v.add(cmp.Or(state.reason, ReasonSynced), state.detail)
	if err := w.unknown(origin.Service); err != nil {
		v.add(ReasonUnknown, err.Error())
	}
	for _, n := range notes {
		v.add(n.reason, n.detail)
		if !slices.Contains(out.Groups, n.group) {
			out.Groups = append(out.Groups, n.group)
		}
	}
	for _, group := range out.Groups {
		it := l.agenda.items[group]
		if who, standby := l.standby(it); standby {
			v.add(ReasonStandby, who)
		} else {
			v.add(it.finding())
		}
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

// finding says how far a group is.
func (it *item) finding() (Reason, string) {
	switch {
	case it == nil:
		return ReasonPending, "the target was not listed yet"
	case it.attempts > 0 && it.refused():
		return ReasonRefused, it.err.Error()
	case it.attempts > 0:
		return ReasonRetrying, it.err.Error()
	case it.missed >= stubborn:
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

// rank returns how bad a reason is.
func (r Reason) rank() int {
	return slices.Index([]Reason{
		"", ReasonSynced, ReasonStandby, ReasonEmpty, ReasonExcluded, ReasonReadOnly, ReasonPending, ReasonWaiting,
		ReasonUnknown, ReasonHeld, ReasonConflict, ReasonInvalid, ReasonRetrying, ReasonRefused,
	}, r)
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
		for _, h := range full.Delete {
			if s := it.surplus[h.Key]; s != nil && !slices.Contains(p.Change.Delete, h) {
				v := l.judge(s, now)
				p.Held = append(p.Held, HeldBack{Entry: h.Entry, Reason: v.reason, Detail: v.detail})
			}
		}
		if !p.Change.Empty() || len(p.Held) > 0 {
			out = append(out, p)
		}
	}
	return out
}
