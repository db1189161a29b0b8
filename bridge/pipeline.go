package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A pipeline is the state of one bridge.
type pipeline struct {
	Bridge
	index int // immutable

	// Owned by the goroutine of the loop.
	certainty  registry.Certainty
	reportedAt time.Time // when the source last reported everything again
	services   map[registry.Name]*serviceState
	dirty      map[registry.Name]struct{} // services and scopes that changed since the last update of status
	anyScope   string                     // one of the unknown scopes; empty: none
	broadScope string                     // one of the unknown scopes that cover more than one service; empty: none

	// Guarded by statusCache.mu.
	reasons  map[Reason]int    // the number of services with each reason
	unknowns map[string]string // why a scope is unknown
}

// A serviceState is the state of a service, except for its entries.
type serviceState struct {
	reason  Reason // of its projection; empty: that of its entries
	detail  string
	gone    bool                   // the source no longer reports it
	orphans map[registry.Group]int // the number of orphans that it claimed last, by group
}

var errUnsynced = errors.New("the source has not reported everything yet")

// complete reports whether the source is synced and not stale.
func (p *pipeline) complete() bool { return p.certainty.Synced && p.certainty.Stale == nil }

// unknownReason returns why it is unknown what a service claims; nil if it is known.
func (p *pipeline) unknownReason(name registry.Name) error {
	if !p.certainty.Synced {
		return errUnsynced
	}
	return unknownError(p.certainty.Of(name))
}

// unknownError wraps the reason that the source cannot report a service; nil for nil.
func unknownError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the source cannot report it: %w", err)
}

// unknownReasonOf returns why this bridge may claim one of our entries without a known
// claimant; nil if it does not claim the entry. A source that is not complete may claim any
// entry. A source that cannot report some services may claim the entries that came from
// these, or that do not name their service.
func (p *pipeline) unknownReasonOf(e registry.Entry) error {
	switch {
	case !p.certainty.Synced:
		return fmt.Errorf("bridge %s: %w", p.Name, errUnsynced)
	case p.certainty.Stale != nil:
		return fmt.Errorf("bridge %s: %w", p.Name, p.certainty.Stale)
	case len(p.certainty.Unknown) == 0:
		return nil
	}
	name := p.originOf(e)
	scope := p.anyScope
	if name != "" {
		scope = p.broadScope
		if _, covered := registry.Covering(p.certainty.Unknown, name); covered {
			scope = string(name)
		}
	}
	if scope == "" {
		return nil
	}
	err, _ := registry.Covering(p.certainty.Unknown, registry.Name(scope))
	return fmt.Errorf("bridge %s cannot report %s: %w", p.Name, scope, err)
}

// originOf returns the service that an entry came from; empty if the entry does not name it.
func (p *pipeline) originOf(e registry.Entry) registry.Name {
	if p.Trace == nil {
		return ""
	}
	return p.Trace.Origin(e)
}

// pickExamples sets anyScope and broadScope to the first of the unknown scopes.
func (p *pipeline) pickExamples() {
	p.anyScope, p.broadScope = "", ""
	for scope := range p.certainty.Unknown {
		if p.anyScope == "" || scope < p.anyScope {
			p.anyScope = scope
		}
		if (p.broadScope == "" || scope < p.broadScope) && p.Trace != nil && !p.Trace.Service(scope) {
			p.broadScope = scope
		}
	}
}

// forbidding returns the policy of the bridge if it forbids deletions, or else nothing.
func (p *pipeline) forbidding() Policy {
	if p.Policy == PolicySync {
		return ""
	}
	return p.Policy
}

// setCertainty records how far the source can be relied on. It reports whether deletions may
// be allowed that were not allowed before, and whether waits begin again. They do after the
// source was stale, and after it reported everything again, unless that happens all the time.
func (p *pipeline) setCertainty(d registry.Delta, now time.Time) (mayAllowDeletions, waitsRestart bool) {
	k, before, wasComplete := d.Certainty, p.certainty, p.complete()
	p.certainty = k
	again := k.Dials != before.Dials || k.Epoch != before.Epoch && now.Sub(p.reportedAt) >= p.Guard.Settle
	waitsRestart = p.complete() && (!wasComplete || again)
	if k.Epoch != before.Epoch {
		p.reportedAt = now
	}
	if len(d.Scopes) > 0 {
		p.pickExamples()
	}
	return p.complete() != wasComplete || len(d.Scopes) > 0, waitsRestart
}

// evidence returns how it is known that the claims of a changed row ended.
func (p *pipeline) evidence(row registry.Row) plan.Evidence {
	if row.Found || !p.complete() {
		return plan.Missing
	}
	return plan.Withdrawn
}

// project returns the entries of a service, and its state.
func (p *pipeline) project(s *registry.Service) ([]registry.Entry, serviceState) {
	if s == nil {
		return nil, serviceState{gone: true}
	}
	entries, err := p.Project(s)
	reason, detail := Reason(""), ""
	if left := registry.LeftOutBy(err); left != nil {
		reason, detail = Reason(left.All), left.Error()
	}
	if len(entries) == 0 {
		reason, detail = cmp.Or(reason, ReasonEmpty), cmp.Or(detail, emptiness(s))
	}
	return entries, serviceState{reason: reason, detail: detail}
}

// emptiness returns why nothing of a service is to be written.
func emptiness(s *registry.Service) string {
	for _, e := range s.Endpoints {
		if e.Health.Offered() {
			return "nothing to write: no service key"
		}
	}
	return "no offered endpoint"
}

// countOrphans adds n to the number of orphans of a group that a service claimed last. It
// forgets a service that is gone and has no orphans.
func (p *pipeline) countOrphans(name registry.Name, group registry.Group, n int) {
	p.markDirty(name)
	s := p.services[name]
	if s == nil {
		s = &serviceState{gone: true}
		p.services[name] = s
	}
	if s.orphans == nil {
		s.orphans = make(map[registry.Group]int, 1)
	}
	if s.orphans[group] += n; s.orphans[group] <= 0 {
		delete(s.orphans, group)
	}
	p.forgetIfGone(name)
}

// forgetIfGone forgets a service that is gone and has no orphans.
func (p *pipeline) forgetIfGone(name registry.Name) {
	if s := p.services[name]; s.gone && len(s.orphans) == 0 {
		delete(p.services, name)
	}
}

// markDirty has status show a service or a scope again.
func (p *pipeline) markDirty(name registry.Name) { p.dirty[name] = struct{}{} }

// markScopes has status show scopes again, and the services that they cover.
func (p *pipeline) markScopes(scopes map[string]struct{}) {
	isBroad := false
	for scope := range scopes {
		p.markDirty(registry.Name(scope))
		isBroad = isBroad || strings.HasSuffix(scope, "*")
	}
	if !isBroad {
		return
	}
	for name := range p.services {
		if _, covered := registry.Covering(scopes, name); covered {
			p.markDirty(name)
		}
	}
}

// setService records the state of a service. It reports whether its reason or detail changed.
func (p *pipeline) setService(name registry.Name, next serviceState) bool {
	p.markDirty(name)
	s := p.services[name]
	if s == nil {
		if next.gone {
			return false
		}
		s = &serviceState{}
		p.services[name] = s
	}
	isNew := s.reason != next.reason || s.detail != next.detail
	s.reason, s.detail, s.gone = next.reason, next.detail, next.gone
	p.forgetIfGone(name)
	return isNew
}

// A serviceProjection is a service with the entries that it claims now.
type serviceProjection struct {
	name    registry.Name
	row     registry.Row
	entries []registry.Entry
	service serviceState
}

// Services are projected in parts, so that the entries of only one part are in memory at a
// time. A part is spread over goroutines.
const (
	projectedAtATime = 512 // services of a part
	projectedByOne   = 32  // services of a goroutine
)

// projectAll yields the projection of each row, by name.
func (p *pipeline) projectAll(rows map[registry.Name]registry.Row) func(yield func(*serviceProjection) bool) {
	return func(yield func(*serviceProjection) bool) {
		for names := range slices.Chunk(slices.Sorted(maps.Keys(rows)), projectedAtATime) {
			part := make([]serviceProjection, len(names))
			for i, name := range names {
				part[i].name, part[i].row = name, rows[name]
			}
			p.projectPart(part)
			for i := range part {
				if !yield(&part[i]) {
					return
				}
			}
		}
	}
}

// projectPart projects the services of a part, and returns when all are projected.
func (p *pipeline) projectPart(part []serviceProjection) {
	var group sync.WaitGroup
	defer group.Wait()
	for len(part) > projectedByOne {
		some := part[:projectedByOne]
		part = part[projectedByOne:]
		group.Go(func() { p.projectSome(some) })
	}
	p.projectSome(part)
}

// projectSome projects services one after the other.
func (p *pipeline) projectSome(some []serviceProjection) {
	for i := range some {
		one := &some[i]
		one.entries, one.service = p.project(one.row.Service)
	}
}
