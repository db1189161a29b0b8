package guard

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Record is what outlives a process of a service: what its target does not store.
// It is empty where nothing was lost, held, denied or approved.
type Record struct {
	Service         registry.Group `json:"service"`
	Peaks           []Peak         `json:"peaks,omitempty"`    // falling counts of endpoints that it had within the window
	HeldSince       time.Time      `json:"held,omitzero"`      // since when it is held
	ClaimedWhenHeld int            `json:"heldAt,omitempty"`   // how many of its endpoints were claimed then
	Missed          bool           `json:"missed,omitempty"`   // endpoints went that were only found missing, or a part of its hold was let go: all of its loss counts
	Denied          []string       `json:"denied,omitempty"`   // keys that stay until they are claimed again
	DeniedSince     time.Time      `json:"deniedAt,omitzero"`  // since when some key is denied
	Approved        []string       `json:"approved,omitempty"` // keys that may go and are not deleted yet
}

// A Peak says that a service had N endpoints until then.
type Peak struct {
	N     int       `json:"n"`
	Until time.Time `json:"until"`
}

// Empty reports whether nothing has to be stored.
func (r Record) Empty() bool { return r.equal(Record{}) }

func (r Record) equal(o Record) bool {
	return r.HeldSince.Equal(o.HeldSince) && r.DeniedSince.Equal(o.DeniedSince) && r.ClaimedWhenHeld == o.ClaimedWhenHeld && r.Missed == o.Missed &&
		slices.Equal(r.Denied, o.Denied) && slices.Equal(r.Approved, o.Approved) && slices.Equal(r.Peaks, o.Peaks)
}

// A candidate is an endpoint that the target stores and the source no longer claims.
type candidate struct {
	missing    bool // the source did not report its removal
	unknown    bool // the source cannot report it at present
	decided    Fate // by a person or the source: Free, Denied; empty: not at all
	waitsSince time.Time
	fate       Fate
	freedAt    time.Time // when it became free
	waitsUntil time.Time // when a wait ends
}

// A guardedService counts its endpoints. Those that are stored and not let go are
// claimed, uncertain, denied or pending.
type guardedService struct {
	Record                 // Denied and Approved are in candidates instead
	lastReported    Record // as it was reported last
	candidates      map[string]*candidate
	connection      int  // to the source, when the service was held; 0: of an earlier process
	hasCount        bool // it has a count, or peaks of an earlier process
	level           int  // how many endpoints count as its own
	stored          int  // endpoints that are stored
	unknownKept     int  // that the source cannot report and that are no candidates
	newClaimed      int  // of those that are claimed, the new ones
	freed           int  // candidates that are free
	freesUnreplaced bool // with them it has less

	// Sums of endpoints: counted are those stored and not let go. Of uncertain ones
	// it is unknown whether they stay, or they settle; missing ones are those of pending.
	counted, claimed, uncertain, pending, missing int
}

// load applies what was recorded. What is known of the service since stays.
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

// observe records what is stored. An endpoint that the source cannot
// report keeps its state and its clock.
func (s *guardedService) observe(now time.Time, stored Counts) {
	before := s.candidates
	s.candidates, s.unknownKept = make(map[string]*candidate, len(stored.Unclaimed)), 0
	s.claimed, s.newClaimed, s.stored = stored.Claimed, stored.New, stored.Claimed+len(stored.Unclaimed)
	for key, report := range stored.Unclaimed {
		c := before[key]
		switch {
		case report == Unknown && c == nil && s.HeldSince.IsZero():
			s.unknownKept++
		case c == nil: // of a service that is held, all that is not claimed is
			s.candidates[key] = &candidate{missing: report != Withdrawn, unknown: report == Unknown, waitsSince: now, fate: Settling}
		default:
			c.observe(now, report)
			s.candidates[key] = c
		}
	}
}

func (c *candidate) observe(now time.Time, report Report) {
	if report != Unknown && (c.unknown || c.waitsSince.IsZero()) {
		c.waitsSince = now
	}
	c.unknown, c.missing = report == Unknown, c.missing || report == Missing
}

// markMissing makes all candidates missing as of now.
func (s *guardedService) markMissing(now time.Time) {
	for _, c := range s.candidates {
		c.missing, c.waitsSince = true, now
	}
}

// count counts the candidates. One that settles is as uncertain as what the source
// cannot report; one that is let go counts as gone.
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

func (c *candidate) settles(now time.Time, o Options) bool {
	return c.missing && o.Mode != Off && now.Sub(c.waitsSince) < o.Settle
}

// updateLevel sets how many endpoints count as the service's own: those that are counted,
// up to the baseline, and never less than those that are claimed or denied. So a
// candidate counts until it goes and raises nothing. Of a service that was not known
// all count but new ones.
func (s *guardedService) updateLevel(now time.Time) {
	n := s.counted - s.newClaimed
	if s.hasCount {
		n = max(s.remaining()-s.uncertain, min(s.counted, s.baseline()))
	}
	if n < s.level {
		s.Peaks = append(s.Peaks, Peak{s.level, roundUpToMinute(now)})
	}
	if i := slices.IndexFunc(s.Peaks, func(p Peak) bool { return p.N <= n }); i >= 0 {
		s.Peaks = slices.Clip(s.Peaks[:i]) // and nothing is appended to what was reported
	}
	s.level, s.hasCount = n, true
}

// roundUpToMinute rounds up, so that a record does not change each second.
func roundUpToMinute(t time.Time) time.Time {
	return t.Add(time.Minute - 1).Truncate(time.Minute).UTC()
}

// expire forgets what the service had before the window, unless it is held for that.
func (s *guardedService) expire(now time.Time, window time.Duration) {
	for s.HeldSince.IsZero() && len(s.Peaks) > 0 && now.Sub(s.Peaks[0].Until) >= window {
		s.Peaks = s.Peaks[1:]
	}
	s.Missed = s.Missed && s.baseline() > s.remaining()
}

// baseline is the most that the service had within the window, less what was let go.
func (s *guardedService) baseline() int {
	if len(s.Peaks) > 0 {
		return s.Peaks[0].N
	}
	return s.level
}

// remaining is what is left when all candidates go.
func (s *guardedService) remaining() int { return s.counted - s.pending }

// compareServices orders services by group.
func compareServices(a, b *guardedService) int { return a.Service.Compare(b.Service) }

// has reports whether a candidate has a fate.
func (s *guardedService) has(fate Fate) bool {
	for _, c := range s.candidates {
		if c.fate == fate {
			return true
		}
	}
	return false
}

// emptied reports whether the service had endpoints and has none left when all
// candidates go; of one that is held, those too that are not decided yet.
func (s *guardedService) emptied() bool {
	stay := s.remaining()
	if !s.HeldSince.IsZero() {
		stay -= s.uncertain
	}
	return s.baseline() > 0 && stay == 0
}

// loss returns how many endpoints count as lost when the candidates go, and so
// many unknown ones too, and how many of them nobody reported. A loss that was
// reported does not count while half of the baseline stays.
func (s *guardedService) loss(uncertain int) (lost, unseen int) {
	lost = max(0, s.baseline()-s.remaining()+uncertain)
	unseen = min(lost, s.missing+uncertain)
	if 2*(s.remaining()-uncertain) >= s.baseline() && !s.Missed {
		return unseen, unseen
	}
	return lost, unseen
}

// beginHold begins to hold a service that has a loss.
func (s *guardedService) beginHold(now time.Time, connection int) {
	if lost, _ := s.loss(0); lost > 0 && s.pending > 0 && s.HeldSince.IsZero() {
		s.HeldSince, s.ClaimedWhenHeld, s.connection = now, s.claimed, connection
	}
}

// wantsReconnect reports whether the hold lasts for half the time after which the
// source may confirm it, and no later connection can.
func (s *guardedService) wantsReconnect(now time.Time, connection int, after time.Duration) bool {
	return after > 0 && connection <= s.connection && now.Sub(s.HeldSince) >= after/2
}

// tryConfirm reports whether the source confirms the hold: all of it is known, it
// has not fallen further for the whole time, and the connection is a later one. The
// hold begins anew where fewer endpoints are claimed than when it began.
func (s *guardedService) tryConfirm(now, calmSince time.Time, connection int, after time.Duration) bool {
	switch {
	case s.HeldSince.IsZero():
		return false
	case s.claimed+s.uncertain < s.ClaimedWhenHeld || s.HeldSince.After(now): // it begins anew
		s.HeldSince, s.ClaimedWhenHeld, s.connection = now, s.claimed, connection
		return false
	case s.uncertain > 0:
		s.ClaimedWhenHeld = max(s.ClaimedWhenHeld, s.claimed)
		return false
	}
	s.ClaimedWhenHeld = s.claimed
	return after > 0 && now.Sub(s.HeldSince) >= after && now.Sub(calmSince) >= after && connection > s.connection
}

// decide lets candidates go or keeps them. What stays when some are let go is
// what the service had.
func (s *guardedService) decide(now time.Time, o Options, fate Fate, these func(string, *candidate) bool) (n int) {
	for key, c := range s.candidates {
		if c.decided != fate && these(key, c) {
			c.decided, n = fate, n+1
		}
	}
	s.count(now, o)
	if n > 0 && fate == Free {
		s.Peaks, s.level = nil, s.counted
		s.Missed = s.Missed || !s.HeldSince.IsZero() // what is left of its hold counts whole
	}
	return n
}

// judgeCandidates decides about each candidate. As many go as were replaced; of a service
// that is held, only those whose removal the source reported.
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

// rank orders candidates as they go: those that were let go, those whose removal
// was reported, those that are missing, and those that stay.
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

// record returns what has to be stored before anything that is free is deleted.
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

// idle reports whether there is nothing to judge or to remember.
func (s *guardedService) idle() bool {
	return len(s.candidates)+len(s.Peaks) == 0 && s.HeldSince.IsZero() && !s.Missed
}

// nextChange returns when time alone may change something, and whether a candidate waits
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
