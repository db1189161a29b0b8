// Package guard decides which endpoints may be deleted that a source no longer
// claims. By what consumers would lose it distinguishes what is usual (scaling,
// restarts, the end of a service) from a source that has forgotten, and holds a mass
// deletion until a person or the source confirms it.
//
//   - The baseline of a service is the most endpoints that it had within the
//     window, less what was approved. Candidates beyond it were replaced and go.
//   - The loss of a service is its baseline less what stays: what is claimed, what
//     the source cannot report, what was denied. It does not count while half of
//     the baseline stays, unless the source did not report what is missing.
//   - The budget is a share of the services left without an endpoint and of the
//     endpoints lost. Beyond it each service with a loss is held, and stays held
//     until its own loss is settled. A source that shows nothing has no budget;
//     one service that was withdrawn may go if others keep endpoints.
//   - Approval and denial are by key. What is approved counts as gone; what is
//     denied stays until it is claimed again.
//   - A source confirms a hold that it has not added to for a while, by a reading
//     over a later connection. Where it shows nothing, or most services would be
//     left empty, only a person ends the hold.
//
// A service here is a registry.Group, or what the guard keeps of it. A hold is a
// deletion held back, never what a target holds.
//
// A Guard is a value: it is given facts and a time, starts nothing and does no
// I/O. It is not safe for concurrent use.
package guard

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Counts are the endpoints of a bridge that the target stores in a service.
type Counts struct {
	Claimed   int               // how many of them the source reports
	New       int               // of these, how many are stored before anything goes
	Unclaimed map[string]Report // the others, by key
}

// Report is what the source reports of an endpoint that it does not claim.
type Report uint8

// The reports. Endpoints that are Withdrawn or Missing are candidates for deletion.
const (
	Unknown   Report = iota // the source cannot report it: never read, refused, partial or stale
	Withdrawn               // the source reported its removal
	Missing                 // a complete reading does not show it
)

// Mode says what happens to a mass deletion. Ignorance and denials count in every mode.
type Mode string

// The modes. The zero value means Enforce.
const (
	Enforce Mode = "enforce" // it is held
	Warn    Mode = "warn"    // it is reported and goes
	Off     Mode = "off"     // it goes, and nothing waits
)

// Options are the settings of a guard. In the zero value nothing waits and no share applies.
type Options struct {
	Mode         Mode
	Share        float64       // of the services left without an endpoint, or of the endpoints: more losses within Window are held; 0 and 1: no such rule
	AtLeast      int           // endpoints that may be withdrawn within Window in any case, from services that keep others
	Window       time.Duration // how long a loss counts
	LastEndpoint time.Duration // how long the last endpoints of a service wait
	Settle       time.Duration // how long a Missing endpoint waits before it is a candidate
	Confirm      time.Duration // how long a hold lasts before the source may confirm it; 0: only a person ends it
}

// Fate says what happens to a candidate.
type Fate string

// The fates. The zero value is that of a key that is no candidate.
const (
	Free       Fate = "free"     // it may be deleted once the record of its service is stored
	Settling   Fate = "settling" // it is missing for less than Options.Settle, or not judged yet
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

// A Round is what a judgement changed.
type Round struct {
	Free      []registry.Group // services with candidates that may be deleted
	Changed   []Record         // those that changed; each is to be stored before anything of its service is deleted
	Released  []Release
	Warned    *Hold     // what would be held, in mode Warn
	Reconnect bool      // a new connection to the source could confirm the hold
	Waits     bool      // a candidate waits for time alone
	Next      time.Time // when time alone may change something; zero: never
}

// A Guard judges the deletions of one bridge from one target.
type Guard struct {
	Options    Options
	services   map[registry.Group]*guardedService
	active     map[*guardedService]struct{} // those with candidates, losses or a record
	sum        totals
	calmSince  time.Time // since when the source shows something and nothing that was held came back
	hold       *Hold
	connection int // to the source, at the last judgement
}

// totals are sums over services.
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

// service returns a service, a new one where there was none.
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

// Observe records which endpoints of the bridge the target stores in a service
// once what is to be added there is added. It reports whether that is to be judged:
// of a service without any there is nothing to say.
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

// update changes a service and keeps the sums.
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

// Restart begins all waits anew, as after a standstill of the process or of the source.
func (g *Guard) Restart(now time.Time) {
	for s := range g.active {
		for _, c := range s.candidates {
			c.waitsSince = now
		}
	}
}

// Judge decides what may be deleted now. Connection numbers the connections to
// the source: it grows with each complete reading over a new one.
func (g *Guard) Judge(now time.Time, connection int) Round {
	var r Round
	active := g.ordered()
	for _, s := range active {
		if connection != g.connection { // what another connection reported, this one only does not show
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
	personOnly := g.sum.claimed == 0 || 2*g.emptied() > g.sum.services
	for _, s := range active {
		if s.tryConfirm(now, g.calmSince, connection, g.Options.Confirm) && !personOnly {
			g.accept(s, now)
			r.release(s, "the source confirmed it over a new connection")
		}
	}
	g.enforce(now, personOnly, active, &r)
	g.finishRound(now, active, &r)
	slices.SortFunc(r.Released, func(a, b Release) int { return a.Service.Compare(b.Service) })
	return r
}

// ordered returns the active services in order.
func (g *Guard) ordered() []*guardedService {
	return slices.SortedFunc(maps.Keys(g.active), compareServices)
}

// emptied returns how many services have no endpoint left when all candidates go.
func (g *Guard) emptied() (n int) {
	for s := range g.active {
		if s.emptied() {
			n++
		}
	}
	return n
}

// enforce holds what exceeds the budget, and decides about each candidate.
func (g *Guard) enforce(now time.Time, personOnly bool, active []*guardedService, r *Round) {
	over := g.exceeded()
	var held []*guardedService
	for _, s := range active {
		if over {
			s.beginHold(now, g.connection)
		}
		s.judgeCandidates(now, g.Options)
		if !s.HeldSince.IsZero() {
			held = append(held, s)
			r.Reconnect = r.Reconnect || !personOnly && s.wantsReconnect(now, g.connection, g.Options.Confirm)
		}
	}
	if g.hold = nil; len(held) == 0 {
		return
	}
	g.hold = g.newHold(held, personOnly, Held, Unreported) // also while the source cannot report it
	for _, s := range held {
		g.hold.Since = soonest(g.hold.Since, s.HeldSince)
		g.hold.Losses = append(g.hold.Losses, Loss{s.Service, s.baseline(), s.remaining()})
	}
	if g.Options.Mode == Warn || g.Options.Mode == Off {
		g.waive(now, r)
	}
}

// waive lets what is held go, since the mode holds nothing.
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

// accept lets what is held of a service go.
func (g *Guard) accept(s *guardedService, now time.Time) {
	g.update(s, func() {
		s.decide(now, g.Options, Free, func(_ string, c *candidate) bool { return c.fate == Held && c.decided == "" })
	})
}

// losses are sums over services that lost something.
type losses struct {
	emptied, emptiedUnseen int // services without an endpoint, and those of them of which one was missing or held
	withdrawn              int // endpoints of the services that were
	kept, unseen           int // endpoints lost by services that keep others, and those of them that nobody reported
	lost                   int // endpoints
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

// exceeded reports whether the losses exceed the budget. A source that shows
// nothing has none.
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
	if l.emptied == 1 && l.emptiedUnseen == 0 && g.sum.claimed > 0 { // one service goes as whoever withdrew it wants
		l.emptied, l.lost = 0, l.lost-l.withdrawn
	}
	return g.sum.claimed == 0 ||
		float64(l.emptied) > share*float64(g.sum.services) || float64(l.lost) > share*float64(g.sum.endpoints)
}

// finishRound reports what changed and forgets services of which nothing is left.
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

func (r *Round) release(s *guardedService, cause string) {
	r.Released = append(r.Released, Release{s.Service, cause})
	s.HeldSince, s.ClaimedWhenHeld, s.connection = time.Time{}, 0, 0
}

// Fate returns what the last judgement made of a key.
func (g *Guard) Fate(group registry.Group, key string) Fate {
	if s := g.services[group]; s != nil && s.candidates[key] != nil {
		return s.candidates[key].fate
	}
	return ""
}

// FreeSince returns when a key became free that is: the record of its service that was
// returned by that judgement, or an earlier one, has its loss.
func (g *Guard) FreeSince(group registry.Group, key string) time.Time {
	if s := g.services[group]; s != nil && s.candidates[key] != nil {
		return s.candidates[key].freedAt
	}
	return time.Time{}
}

// Until returns when the wait of a key ends, as of the last judgement; zero: it waits
// for no time.
func (g *Guard) Until(group registry.Group, key string) time.Time {
	if s := g.services[group]; s != nil && s.candidates[key] != nil {
		return s.candidates[key].waitsUntil
	}
	return time.Time{}
}

// Decide applies what a person decided about candidates: Free lets them go,
// after which they count as a loss no longer; Denied keeps them until the source
// claims them again or they are let go. It returns how many candidates it changed.
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

// Hold returns what the last judgement holds; nil for nothing.
func (g *Guard) Hold() *Hold { return g.hold }

// Denied returns the endpoints that a person keeps, as a hold; nil for none.
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

// soonest returns the earlier of two times, of which a zero one is none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
