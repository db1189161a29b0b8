package guard

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Record is the part of the state of a service that a restart needs and its target does not
// store. It is empty if nothing was lost, held, denied or approved.
type Record struct {
	Service registry.Group `json:"service"`
	Peaks   []Peak         `json:"peaks,omitempty"` // falling counts of endpoints that it had within the window

	HeldSince       time.Time `json:"held,omitzero"`    // zero: it is not held
	ClaimedWhenHeld int       `json:"heldAt,omitempty"` // its claimed endpoints when the hold began, or later

	// Missed says that its whole loss counts: unreported removals were deleted, or a part of
	// its hold was released.
	Missed bool `json:"missed,omitempty"`

	Denied      []string  `json:"denied,omitempty"`   // keys that are kept until they are claimed again
	DeniedSince time.Time `json:"deniedAt,omitzero"`  // since when a key has been denied
	Approved    []string  `json:"approved,omitempty"` // keys that may be deleted and are not deleted yet
}

// A Peak says that a service had N endpoints until a time.
type Peak struct {
	N     int       `json:"n"`
	Until time.Time `json:"until"`
}

// Empty reports whether there is nothing to store.
func (r Record) Empty() bool { return r.equal(Record{}) }

func (r Record) equal(o Record) bool {
	return r.HeldSince.Equal(o.HeldSince) && r.DeniedSince.Equal(o.DeniedSince) &&
		r.ClaimedWhenHeld == o.ClaimedWhenHeld && r.Missed == o.Missed &&
		slices.Equal(r.Denied, o.Denied) && slices.Equal(r.Approved, o.Approved) && slices.Equal(r.Peaks, o.Peaks)
}

// A candidate is an endpoint that the target stores and the source no longer claims.
type candidate struct {
	missing bool // the source did not report its removal
	unknown bool // the source cannot report it at present
	decided Fate // by an operator or the source: Free or Denied; empty: undecided

	waitsSince time.Time // when its waits began

	// As of the last judgement.
	fate       Fate
	freedAt    time.Time // when it became free
	waitsUntil time.Time // zero: it does not wait for time
}

// A guardedService is the state of one service in a guard. Its endpoints are claimed,
// uncertain, denied, pending, or freed.
type guardedService struct {
	Record              // Denied and Approved are in candidates instead
	lastReported Record // as it was last returned in Round.Changed
	candidates   map[string]*candidate
	connection   int // to the source, when the hold began; 0: in an earlier process

	hasCount bool // level is known, or peaks of an earlier process are
	level    int  // how many endpoints count as its own, see updateLevel

	// As observed.
	stored      int // all endpoints, once claimed ones are added
	claimed     int
	newClaimed  int // those of claimed that are not stored yet
	unknownKept int // endpoints that the source cannot report and that are not candidates

	// As counted.
	counted   int // stored without the freed ones
	uncertain int // unknownKept, and candidates that settle or are unknown: they may remain
	pending   int // candidates to be judged
	missing   int // those of pending whose removal was not reported

	// As judged.
	freed           int  // candidates that are free
	freesUnreplaced bool // freed ones were not all replaced: the service becomes smaller
}

// load applies a record. What the service observed is kept.
func (s *guardedService) load(r Record) {
	s.Record, s.lastReported, s.hasCount = r, r, s.hasCount || len(r.Peaks) > 0
	for fate, keys := range map[Fate][]string{Denied: r.Denied, Free: r.Approved} {
		for _, key := range keys {
			if s.candidates[key] == nil {
				s.candidates[key] = &candidate{}
			}
			s.candidates[key].decided = fate
		}
	}
	s.Denied, s.Approved = nil, nil
}

// observe records the endpoints of the service. An endpoint that the source cannot report
// keeps its state and its wait.
func (s *guardedService) observe(now time.Time, stored Counts) {
	before := s.candidates
	s.candidates, s.unknownKept = make(map[string]*candidate, len(stored.Unclaimed)), 0
	s.claimed, s.newClaimed, s.stored = stored.Claimed, stored.New, stored.Claimed+len(stored.Unclaimed)
	for key, report := range stored.Unclaimed {
		c := before[key]
		switch {
		case report == Unknown && c == nil && s.HeldSince.IsZero():
			s.unknownKept++
		case c == nil: // in a held service, every unclaimed endpoint is a candidate
			s.candidates[key] = &candidate{
				missing: report != Withdrawn, unknown: report == Unknown, waitsSince: now, fate: Settling,
			}
		default:
			c.observe(now, report)
			s.candidates[key] = c
		}
	}
}

// observe records what the source reports of a candidate. Its wait begins again when the
// source can report it again.
func (c *candidate) observe(now time.Time, report Report) {
	if report != Unknown && (c.unknown || c.waitsSince.IsZero()) {
		c.waitsSince = now
	}
	c.unknown, c.missing = report == Unknown, c.missing || report == Missing
}

// markMissing makes all candidates missing, whose waits begin now.
func (s *guardedService) markMissing(now time.Time) {
	for _, c := range s.candidates {
		c.missing, c.waitsSince = true, now
	}
}

// count counts the candidates. A settling one is as uncertain as one that the source cannot
// report; a freed one counts as deleted.
func (s *guardedService) count(now time.Time, o Options) {
	s.counted, s.uncertain, s.pending, s.missing = s.stored, s.unknownKept, 0, 0
	for _, c := range s.candidates {
		switch {
		case c.decided == Free:
			s.counted--
		case c.decided == Denied:
		case c.unknown || c.settles(now, o):
			s.uncertain++
		default:
			s.pending++
			if c.missing {
				s.missing++
			}
		}
	}
}

// settles reports whether a missing candidate still waits for Options.Settle.
func (c *candidate) settles(now time.Time, o Options) bool {
	return c.missing && o.Mode != Off && now.Sub(c.waitsSince) < o.Settle
}

// updateLevel sets how many endpoints count as the service's own: the counted ones, up to
// the baseline, and at least the claimed and denied ones. So a candidate counts until it is
// deleted, and never raises the baseline. In a new service all but the new endpoints count.
func (s *guardedService) updateLevel(now time.Time) {
	n := s.counted - s.newClaimed
	if s.hasCount {
		n = max(s.remaining()-s.uncertain, min(s.counted, s.baseline()))
	}
	if n < s.level {
		s.Peaks = append(s.Peaks, Peak{s.level, roundUpToMinute(now)})
	}
	if i := slices.IndexFunc(s.Peaks, func(p Peak) bool { return p.N <= n }); i >= 0 {
		s.Peaks = slices.Clip(s.Peaks[:i]) // nothing is appended to a list that was returned
	}
	s.level, s.hasCount = n, true
}

// roundUpToMinute rounds a time up, so that a record does not change every second.
func roundUpToMinute(t time.Time) time.Time {
	return t.Add(time.Minute - 1).Truncate(time.Minute).UTC()
}

// expire forgets the peaks before the window, unless the service is held.
func (s *guardedService) expire(now time.Time, window time.Duration) {
	for s.HeldSince.IsZero() && len(s.Peaks) > 0 && now.Sub(s.Peaks[0].Until) >= window {
		s.Peaks = s.Peaks[1:]
	}
	s.Missed = s.Missed && s.baseline() > s.remaining()
}

// baseline returns the most endpoints that the service had within the window, without the
// freed ones.
func (s *guardedService) baseline() int {
	if len(s.Peaks) > 0 {
		return s.Peaks[0].N
	}
	return s.level
}

// remaining returns how many endpoints are left if all pending candidates are deleted.
func (s *guardedService) remaining() int { return s.counted - s.pending }

// compareServices orders services by group.
func compareServices(a, b *guardedService) int { return a.Service.Compare(b.Service) }

// has reports whether any candidate has a fate.
func (s *guardedService) has(fate Fate) bool {
	for _, c := range s.candidates {
		if c.fate == fate {
			return true
		}
	}
	return false
}

// emptied reports whether the service had endpoints and would have none left if all
// candidates were deleted; in a held service, the uncertain ones, too.
func (s *guardedService) emptied() bool {
	stay := s.remaining()
	if !s.HeldSince.IsZero() {
		stay -= s.uncertain
	}
	return s.baseline() > 0 && stay == 0
}

// loss returns how many endpoints count as lost if the candidates, and so many uncertain
// ones, are deleted. Unseen ones are lost endpoints whose removal was not reported. A
// reported loss does not count while half of the baseline remains.
func (s *guardedService) loss(uncertain int) (lost, unseen int) {
	lost = max(0, s.baseline()-s.remaining()+uncertain)
	unseen = min(lost, s.missing+uncertain)
	if 2*(s.remaining()-uncertain) >= s.baseline() && !s.Missed {
		return unseen, unseen
	}
	return lost, unseen
}

// beginHold holds a service that has a loss.
func (s *guardedService) beginHold(now time.Time, connection int) {
	if lost, _ := s.loss(0); lost > 0 && s.pending > 0 && s.HeldSince.IsZero() {
		s.HeldSince, s.ClaimedWhenHeld, s.connection = now, s.claimed, connection
	}
}

// wantsReconnect reports whether a new connection is needed to confirm the hold: it has
// lasted for half of the given time, over the same connection.
func (s *guardedService) wantsReconnect(now time.Time, connection int, after time.Duration) bool {
	return after > 0 && connection <= s.connection && now.Sub(s.HeldSince) >= after/2
}

// tryConfirm reports whether the source confirms the hold: it can report all endpoints, and
// the connection is a later one. For the whole given time it must not have claimed fewer
// endpoints; if it did, the hold begins again.
func (s *guardedService) tryConfirm(now, calmSince time.Time, connection int, after time.Duration) bool {
	switch {
	case s.HeldSince.IsZero():
		return false
	case s.claimed+s.uncertain < s.ClaimedWhenHeld || s.HeldSince.After(now): // it begins again
		s.HeldSince, s.ClaimedWhenHeld, s.connection = now, s.claimed, connection
		return false
	case s.uncertain > 0:
		s.ClaimedWhenHeld = max(s.ClaimedWhenHeld, s.claimed)
		return false
	}
	s.ClaimedWhenHeld = s.claimed
	return after > 0 && now.Sub(s.HeldSince) >= after && now.Sub(calmSince) >= after && connection > s.connection
}

// decide frees or denies the candidates that match. After some were freed, the remaining
// endpoints are the new baseline.
func (s *guardedService) decide(now time.Time, o Options, fate Fate, matches func(string, *candidate) bool) (n int) {
	for key, c := range s.candidates {
		if c.decided != fate && matches(key, c) {
			c.decided, n = fate, n+1
		}
	}
	s.count(now, o)
	if n > 0 && fate == Free {
		s.Peaks, s.level = nil, s.counted
		s.Missed = s.Missed || !s.HeldSince.IsZero() // the rest of its hold counts in full
	}
	return n
}

// judgeCandidates decides about each candidate. Those in excess of the baseline were
// replaced, and are freed; in a held service, only if the source reported their removal.
func (s *guardedService) judgeCandidates(now time.Time, o Options) {
	s.freed, s.freesUnreplaced = 0, false
	keys := slices.SortedFunc(maps.Keys(s.candidates), func(a, b string) int {
		x, y := s.candidates[a], s.candidates[b]
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), x.waitsSince.Compare(y.waitsSince), cmp.Compare(a, b))
	})
	for i, key := range keys {
		c := s.candidates[key]
		replaced := c.decided == Free || i < s.stored-s.baseline()
		before := c.fate
		c.fate, c.waitsUntil = s.fate(c, replaced, now, o)
		if c.fate == Free && before != Free {
			c.freedAt = now
		}
		if c.fate == Free {
			s.freed++
			s.freesUnreplaced = s.freesUnreplaced || !replaced
			s.Missed = s.Missed || !replaced && c.missing
		}
	}
}

// rank is the order in which candidates are freed: decided ones, those whose removal was
// reported, missing ones, and those that are kept.
func (c *candidate) rank() int {
	switch {
	case c.decided == Free:
		return 0
	case c.decided == Denied, c.unknown:
		return 3
	case c.missing:
		return 2
	}
	return 1
}

// fate returns the fate of a candidate and, if it waits for time, until when.
func (s *guardedService) fate(c *candidate, replaced bool, now time.Time, o Options) (Fate, time.Time) {
	switch {
	case c.decided == Denied:
		return Denied, time.Time{}
	case c.unknown:
		return Unreported, time.Time{}
	case c.decided != "":
		return c.decided, time.Time{}
	case !s.HeldSince.IsZero() && (!replaced || c.missing):
		return Held, time.Time{}
	case c.settles(now, o):
		return Settling, c.waitsSince.Add(o.Settle)
	case !replaced && s.remaining() == 0 && o.Mode != Off && now.Sub(c.waitsSince) < o.LastEndpoint:
		return Last, c.waitsSince.Add(o.LastEndpoint)
	}
	return Free, time.Time{}
}

// record returns the record that has to be stored before a free candidate is deleted.
func (s *guardedService) record(now time.Time) Record {
	r := s.Record
	if s.freesUnreplaced {
		r.Peaks = append(slices.Clone(r.Peaks), Peak{s.level, roundUpToMinute(now)})
	}
	for key, c := range s.candidates {
		switch c.decided {
		case Denied:
			r.Denied = append(r.Denied, key)
		case Free:
			r.Approved = append(r.Approved, key)
		default:
		}
	}
	slices.Sort(r.Denied)
	slices.Sort(r.Approved)
	switch {
	case len(r.Denied) == 0:
		r.DeniedSince = time.Time{}
	case r.DeniedSince.IsZero():
		r.DeniedSince = now
	}
	s.DeniedSince = r.DeniedSince
	return r
}

// idle reports whether the service has nothing to judge or to remember.
func (s *guardedService) idle() bool {
	return len(s.candidates)+len(s.Peaks) == 0 && s.HeldSince.IsZero() && !s.Missed
}

// nextChange returns when time alone may change the judgement, and whether a candidate waits
// for that.
func (s *guardedService) nextChange(now time.Time, o Options) (at time.Time, waits bool) {
	switch {
	case !s.HeldSince.IsZero():
		at = now.Add(max(time.Second, o.Confirm/60))
	case len(s.Peaks) > 0:
		at = s.Peaks[0].Until.Add(o.Window)
	}
	for _, c := range s.candidates {
		at, waits = soonest(at, c.waitsUntil), waits || !c.waitsUntil.IsZero()
	}
	return at, waits
}
