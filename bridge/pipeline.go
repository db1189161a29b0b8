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

// A pipeline is what the engine knows of one of its bridges.
type pipeline struct {
	Bridge
	index      int
	certainty  registry.Certainty
	reportedAt time.Time // when the source last reported everything anew
	services   map[registry.Name]*serviceState
	dirty      map[registry.Name]struct{} // services, and scopes, that status has to show anew
	anyScope   string                     // an example of the scopes that are unknown; empty: none are
	broadScope string                     // likewise, of those that are no one service

	reasons  map[Reason]int    // how many services status shows of each; guarded by view.mu, as is what follows
	unknowns map[string]string // why, by scope
}

// A serviceState is what the loop knows of a service beside its entries.
type serviceState struct {
	reason  Reason // as its projection found; empty where its entries say it
	detail  string
	gone    bool
	orphans map[registry.Group]int // how many orphans there are that it claimed last, by group
}

var errUnsynced = errors.New("the source has not reported everything yet")

// complete reports whether the source reported everything and still does.
func (p *pipeline) complete() bool { return p.certainty.Synced && p.certainty.Stale == nil }

// unknownReason returns why nothing may be concluded about a service.
func (p *pipeline) unknownReason(name registry.Name) error {
	if !p.certainty.Synced {
		return errUnsynced
	}
	return unknownError(p.certainty.Of(name))
}

func unknownError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the source cannot report it: %w", err)
}

// unknownReasonOf returns why nothing may be concluded about an entry of ours that
// this bridge may have written and nobody is known to have claimed. A source that
// is not complete may claim any. One that cannot report some services may claim
// what came from these, by what the entry says of itself.
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

// originOf returns the service that an entry says it came from; empty where it says
// none.
func (p *pipeline) originOf(e registry.Entry) registry.Name {
	if p.Trace == nil {
		return ""
	}
	return p.Trace.Origin(e)
}

// pickExamples picks the examples anew, the same ones for the same scopes.
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

// forbidding returns the policy that forbids deletions; empty where none does.
func (p *pipeline) forbidding() Policy {
	if p.Policy == PolicySync {
		return ""
	}
	return p.Policy
}

// setCertainty records how far the source may be relied on. It reports whether that may
// let deletions go that could not before, and whether what is complete settles
// anew: after a source was stale and when it reported everything anew, unless it
// does so all the time.
func (p *pipeline) setCertainty(d registry.Delta, now time.Time) (mayGo, fresh bool) {
	k, before, wasComplete := d.Certainty, p.certainty, p.complete()
	p.certainty = k
	again := k.Dials != before.Dials || k.Epoch != before.Epoch && now.Sub(p.reportedAt) >= p.Guard.Settle
	fresh = p.complete() && (!wasComplete || again)
	if k.Epoch != before.Epoch {
		p.reportedAt = now
	}
	if len(d.Scopes) > 0 {
		p.pickExamples()
	}
	return p.complete() != wasComplete || len(d.Scopes) > 0, fresh
}

// evidence returns how a row that changed is known.
func (p *pipeline) evidence(row registry.Row) plan.Evidence {
	if row.Found || !p.complete() {
		return plan.Missing
	}
	return plan.Withdrawn
}

// project returns what a service claims, and why it claims nothing where that
// is so.
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

func emptiness(s *registry.Service) string {
	for _, e := range s.Endpoints {
		if e.Health.Offered() {
			return "nothing to write: no service key"
		}
	}
	return "no offered endpoint"
}

// countOrphans records that a service claimed n more, or fewer, of the orphans of
// a group, and forgets one that is gone with all it left.
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

// forgetIfGone forgets a service that is gone with all it left.
func (p *pipeline) forgetIfGone(name registry.Name) {
	if s := p.services[name]; s.gone && len(s.orphans) == 0 {
		delete(p.services, name)
	}
}

// markDirty has status show a service anew, or a scope.
func (p *pipeline) markDirty(name registry.Name) { p.dirty[name] = struct{}{} }

// markScopes has status show scopes anew, and the services that they cover.
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

// setService records what a service is now and reports whether its text is new.
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

// A serviceProjection is the projection of a service: what it claims now.
type serviceProjection struct {
	name    registry.Name
	row     registry.Row
	entries []registry.Entry
	service serviceState
}

// Services are projected in parts, so that what is written of them need not
// all be held at a time, and on all processors where a part is worth it.
const (
	projectedAtATime = 512
	projectedByOne   = 32
)

// projectAll yields the rows with what they claim.
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

// projectPart works out what services claim and returns when all is done.
func (p *pipeline) projectPart(part []serviceProjection) {
	var all sync.WaitGroup
	defer all.Wait()
	for len(part) > projectedByOne {
		some := part[:projectedByOne]
		part = part[projectedByOne:]
		all.Go(func() { p.projectSome(some) })
	}
	p.projectSome(part)
}

func (p *pipeline) projectSome(some []serviceProjection) {
	for i := range some {
		one := &some[i]
		one.entries, one.service = p.project(one.row.Service)
	}
}
