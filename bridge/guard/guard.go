// Package guard decides which endpoints may be deleted that a source no longer claims. It
// measures what consumers would lose. So it distinguishes usual changes (scaling, restarts,
// the end of a service) from a source that lost its data. A mass deletion is held until an
// operator or the source confirms it.
//
//   - The baseline of a service is the most endpoints that it had within the window, less
//     the approved ones. Candidates in excess of the baseline were replaced, and are deleted.
//   - The loss of a service is its baseline less the endpoints that remain: claimed ones,
//     those that the source cannot report, and denied ones. The loss does not count while
//     half of the baseline remains, except for endpoints whose removal was not reported.
//   - The budget is a share of the services left without an endpoint, and of the endpoints
//     lost. If it is exceeded, each service with a loss is held until its own loss is
//     settled. A source that shows nothing has no budget. One service whose removal was
//     reported may be deleted if others keep endpoints.
//   - Approval and denial are by key. An approved endpoint counts as deleted; a denied one
//     is kept until it is claimed again.
//   - A source confirms a hold by a read over a later connection, if the hold has not grown
//     for a while. If the source shows nothing, or most services would be left empty, only
//     an operator ends the hold.
//
// A service in this package is a registry.Group, or what the guard knows of it. A hold is a
// deletion that is held back; entries in a target are stored.
//
//	guard      the Guard: judges all services against the budget
//	service    one service: counts what it has, loses and keeps
//	hold       a hold, as it is shown
//
// A Guard receives facts and the time. It starts nothing and does no I/O, and is not safe
// for concurrent use.
package guard

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Counts are the endpoints of a bridge that a service has in the target.
type Counts struct {
	Claimed   int               // claimed endpoints, stored or about to be
	New       int               // those of Claimed that are not stored yet; they are added before any deletion
	Unclaimed map[string]Report // stored endpoints that are unclaimed, by key
}

// Report is what the source reports of an endpoint that it does not claim.
type Report uint8

// The reports. Endpoints that are Withdrawn or Missing are candidates for deletion.
const (
	Unknown   Report = iota // the source cannot report it: never read, refused, partial or stale
	Withdrawn               // the source reported its removal
	Missing                 // a full read does not show it
)

// Mode says what happens to a mass deletion. In every mode, denied endpoints and those that
// the source cannot report are kept.
type Mode string

// The modes. The zero value means Enforce.
const (
	Enforce Mode = "enforce" // it is held
	Warn    Mode = "warn"    // it is reported and made
	Off     Mode = "off"     // it is made at once
)

// Options are the settings of a guard. In the zero value nothing waits and no share applies.
type Options struct {
	Mode Mode

	// Losses within Window are held if they exceed Share of the endpoints, or leave more
	// than Share of the services without an endpoint. 0 and 1: no such rule.
	Share  float64
	Window time.Duration

	// AtLeast is how many endpoints may be withdrawn within Window in any case, from
	// services that keep others.
	AtLeast int

	LastEndpoint time.Duration // how long the last endpoints of a service wait
	Settle       time.Duration // how long a Missing endpoint waits before it is judged
	Confirm      time.Duration // how long a hold lasts before the source may confirm it; 0: only an operator ends it
}

// Fate says what happens to a candidate.
type Fate string

// The fates. The zero value is that of a key that is not a candidate.
const (
	Free       Fate = "free"     // it may be deleted once the record of its service is stored
	Settling   Fate = "settling" // it has been missing for less than Options.Settle, or was not judged yet
	Last       Fate = "last"     // it is one of the last of its service, for less than Options.LastEndpoint
	Held       Fate = "held"     // it is part of a mass deletion
	Denied     Fate = "denied"   // an operator denied its deletion
	Unreported Fate = "unknown"  // the source cannot report it
)

// A Release is a service that is no longer held, and why.
type Release struct {
	Service registry.Group
	Cause   string
}

// A Round is the result of a judgement.
type Round struct {
	Free     []registry.Group // the services with candidates that are free
	Changed  []Record         // the records to be stored before an endpoint of their service is deleted
	Released []Release
	Warned   *Hold // what Enforce would hold, in mode Warn

	Reconnect bool      // a read over a new connection could confirm the hold
	Waits     bool      // a candidate waits only for time
	Next      time.Time // when time alone may change the judgement; zero: never
}

// A Guard judges the deletions of one bridge in one target. It is not safe for concurrent
// use.
type Guard struct {
	Options  Options
	services map[registry.Group]*guardedService
	active   map[*guardedService]struct{} // those with candidates, losses or a record
	sum      totals

	// As of the last judgement.
	hold       *Hold
	connection int       // to the source
	calmSince  time.Time // since when the source has shown something, and no held endpoint came back
}

// totals are sums over services that have a baseline, and over all claimed endpoints.
type totals struct{ services, endpoints, claimed int }

// New returns a guard that continues from the records of an earlier one.
func New(o Options, records []Record) *Guard {
	g := &Guard{Options: o, services: make(map[registry.Group]*guardedService), active: make(map[*guardedService]struct{})}
	g.Load(records)
	return g
}

// Load applies the records of an earlier guard. What this one has observed is kept.
func (g *Guard) Load(records []Record) {
	for _, r := range records {
		s := g.service(r.Service)
		g.update(s, func() { s.load(r) })
		g.active[s] = struct{}{}
	}
}

// service returns a service, and keeps it if it is new.
func (g *Guard) service(group registry.Group) *guardedService {
	s := g.services[group]
	if s == nil {
		s = &guardedService{Record: Record{Service: group}, candidates: make(map[string]*candidate)}
		s.lastReported = s.Record
		g.services[group] = s
		g.addToSum(s, +1)
	}
	return s
}

// Observe records the endpoints of a service. It reports whether they are to be judged: an
// unknown service without endpoints is not.
func (g *Guard) Observe(now time.Time, group registry.Group, stored Counts) bool {
	if g.services[group] == nil && stored.Claimed+len(stored.Unclaimed) == 0 {
		return false
	}
	s := g.service(group)
	g.update(s, func() {
		s.observe(now, stored)
		s.count(now, g.Options)
		s.updateLevel(now)
	})
	if !s.idle() || !s.lastReported.Empty() {
		g.active[s] = struct{}{}
	}
	return true
}

// update changes a service, and updates the sums.
func (g *Guard) update(s *guardedService, by func()) {
	g.addToSum(s, -1)
	by()
	g.addToSum(s, +1)
}

func (g *Guard) addToSum(s *guardedService, sign int) {
	g.sum.claimed += sign * s.claimed
	if s.baseline() > 0 {
		g.sum.services += sign
		g.sum.endpoints += sign * s.baseline()
	}
}

// Restart begins all waits again, as after the process was suspended or the source was stale.
func (g *Guard) Restart(now time.Time) {
	for s := range g.active {
		for _, c := range s.candidates {
			c.waitsSince = now
		}
	}
}

// Judge decides what may be deleted now. The number of the connection grows with each full
// read of the source over a new connection.
func (g *Guard) Judge(now time.Time, connection int) Round {
	var r Round
	active := g.ordered()
	for _, s := range active {
		if connection != g.connection { // a removal that another connection reported is missing for this one
			s.markMissing(now)
		}
		g.update(s, func() {
			s.count(now, g.Options)
			s.expire(now, g.Options.Window)
		})
		if lost, _ := s.loss(s.uncertain); !s.HeldSince.IsZero() && (lost == 0 || s.pending+s.uncertain == 0) {
			g.calmSince = now
			r.release(s, "none of its entries is to be deleted any more")
		}
	}
	g.connection = connection
	if g.calmSince.IsZero() || g.sum.claimed == 0 {
		g.calmSince = now
	}
	operatorOnly := g.sum.claimed == 0 || 2*g.emptied() > g.sum.services
	for _, s := range active {
		if s.tryConfirm(now, g.calmSince, connection, g.Options.Confirm) && !operatorOnly {
			g.accept(s, now)
			r.release(s, "the source confirmed it over a new connection")
		}
	}
	g.enforce(now, operatorOnly, active, &r)
	g.finishRound(now, active, &r)
	slices.SortFunc(r.Released, func(a, b Release) int { return a.Service.Compare(b.Service) })
	return r
}

// ordered returns the active services by group.
func (g *Guard) ordered() []*guardedService {
	return slices.SortedFunc(maps.Keys(g.active), compareServices)
}

// emptied returns how many services have no endpoint left if all candidates are deleted.
func (g *Guard) emptied() (n int) {
	for s := range g.active {
		if s.emptied() {
			n++
		}
	}
	return n
}

// enforce holds the losses if they exceed the budget, and decides about each candidate.
func (g *Guard) enforce(now time.Time, operatorOnly bool, active []*guardedService, r *Round) {
	over := g.exceeded()
	var held []*guardedService
	for _, s := range active {
		if over {
			s.beginHold(now, g.connection)
		}
		s.judgeCandidates(now, g.Options)
		if !s.HeldSince.IsZero() {
			held = append(held, s)
			r.Reconnect = r.Reconnect || !operatorOnly && s.wantsReconnect(now, g.connection, g.Options.Confirm)
		}
	}
	if g.hold = nil; len(held) == 0 {
		return
	}
	g.hold = g.newHold(held, operatorOnly, Held, Unreported) // also while the source cannot report it
	for _, s := range held {
		g.hold.Since = soonest(g.hold.Since, s.HeldSince)
		g.hold.Losses = append(g.hold.Losses, Loss{s.Service, s.baseline(), s.remaining()})
	}
	if g.Options.Mode == Warn || g.Options.Mode == Off {
		g.waive(now, r)
	}
}

// waive releases what is held, in a mode that holds nothing.
func (g *Guard) waive(now time.Time, r *Round) {
	if g.Options.Mode == Warn {
		r.Warned = g.hold
	}
	for s := range g.active {
		if !s.HeldSince.IsZero() {
			g.accept(s, now)
			r.release(s, "guard.mode is "+string(g.Options.Mode))
			s.judgeCandidates(now, g.Options)
		}
	}
	g.hold, r.Reconnect = nil, false
}

// accept releases the held candidates of a service.
func (g *Guard) accept(s *guardedService, now time.Time) {
	g.update(s, func() {
		s.decide(now, g.Options, Free, func(_ string, c *candidate) bool { return c.fate == Held && c.decided == "" })
	})
}

// losses are sums over services that lost endpoints.
type losses struct {
	lost int // endpoints

	emptied       int // services without an endpoint
	emptiedUnseen int // those of emptied with an unreported removal, or that are held
	withdrawn     int // endpoints of the others of emptied

	kept   int // endpoints lost by services that keep others
	unseen int // those of kept whose removal was not reported
}

func (l *losses) add(s *guardedService) {
	n, unseen := s.loss(0)
	l.lost += n
	switch {
	case s.baseline() == 0:
	case s.remaining() > 0:
		l.kept, l.unseen = l.kept+n, l.unseen+unseen
	case unseen > 0 || s.Missed || !s.HeldSince.IsZero():
		l.emptied, l.emptiedUnseen = l.emptied+1, l.emptiedUnseen+1
	default:
		l.emptied, l.withdrawn = l.emptied+1, l.withdrawn+n
	}
}

// exceeded reports whether the losses exceed the budget. A source that shows nothing has no
// budget.
func (g *Guard) exceeded() bool {
	share := g.Options.Share
	if share == 0 || share >= 1 || g.Options.Mode == Off {
		return false
	}
	var l losses
	for s := range g.active {
		l.add(s)
	}
	if l.unseen == 0 && l.kept <= g.Options.AtLeast {
		l.lost -= l.kept
	}
	if l.emptied == 1 && l.emptiedUnseen == 0 && g.sum.claimed > 0 { // the reported removal of one service
		l.emptied, l.lost = 0, l.lost-l.withdrawn
	}
	return g.sum.claimed == 0 ||
		float64(l.emptied) > share*float64(g.sum.services) || float64(l.lost) > share*float64(g.sum.endpoints)
}

// finishRound reports what changed, and forgets services of which nothing is left.
func (g *Guard) finishRound(now time.Time, active []*guardedService, r *Round) {
	for _, s := range active {
		if s.freed > 0 {
			r.Free = append(r.Free, s.Service)
		}
		next := s.record(now)
		switch {
		case !next.equal(s.lastReported):
			s.lastReported = next
			r.Changed = append(r.Changed, next)
		case s.idle():
			delete(g.active, s)
			if s.stored == 0 {
				delete(g.services, s.Service)
			}
		}
		at, waits := s.nextChange(now, g.Options)
		r.Next, r.Waits = soonest(r.Next, at), r.Waits || waits
	}
}

// release ends the hold of a service.
func (r *Round) release(s *guardedService, cause string) {
	r.Released = append(r.Released, Release{s.Service, cause})
	s.HeldSince, s.ClaimedWhenHeld, s.connection = time.Time{}, 0, 0
}

// Fate returns the fate of a key as of the last judgement.
func (g *Guard) Fate(group registry.Group, key string) Fate {
	if s := g.services[group]; s != nil && s.candidates[key] != nil {
		return s.candidates[key].fate
	}
	return ""
}

// FreeSince returns when a free key became free. Its loss is in the record of its service
// that this judgement, or an earlier one, returned.
func (g *Guard) FreeSince(group registry.Group, key string) time.Time {
	if s := g.services[group]; s != nil && s.candidates[key] != nil {
		return s.candidates[key].freedAt
	}
	return time.Time{}
}

// Until returns when the wait of a key ends, as of the last judgement; zero if it does not
// wait for time.
func (g *Guard) Until(group registry.Group, key string) time.Time {
	if s := g.services[group]; s != nil && s.candidates[key] != nil {
		return s.candidates[key].waitsUntil
	}
	return time.Time{}
}

// Decide applies the decision of an operator about candidates. Free releases them; they no
// longer count as a loss. Denied keeps them until the source claims them again or they are
// freed. It returns how many candidates it changed.
func (g *Guard) Decide(now time.Time, fate Fate, keys []Key) (n int) {
	named := make(map[registry.Group]map[string]bool)
	for _, k := range keys {
		if named[k.Service] == nil {
			named[k.Service] = make(map[string]bool)
		}
		named[k.Service][k.Key] = true
	}
	for group, keys := range named {
		if s := g.services[group]; s != nil {
			g.update(s, func() { n += s.decide(now, g.Options, fate, func(key string, _ *candidate) bool { return keys[key] }) })
		}
	}
	return n
}

// Hold returns the hold of the last judgement; nil if there is none.
func (g *Guard) Hold() *Hold { return g.hold }

// Denied returns the endpoints that an operator keeps, as a hold; nil if there are none.
func (g *Guard) Denied() *Hold {
	var denied []*guardedService
	for s := range g.active {
		if s.has(Denied) {
			denied = append(denied, s)
		}
	}
	if len(denied) == 0 {
		return nil
	}
	slices.SortFunc(denied, compareServices)
	h := g.newHold(denied, true, Denied)
	for _, s := range denied {
		h.Since = soonest(h.Since, s.DeniedSince)
	}
	return h
}

// soonest returns the earlier of two times. The zero time does not count.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
