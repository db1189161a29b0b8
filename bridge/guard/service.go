package guard

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Record is what outlives a process of a service: what its target cannot tell.
// It is empty where nothing was lost, held, denied or approved.
type Record struct {
	Service  registry.Group `json:"service"`
	Peaks    []Peak         `json:"peaks,omitempty"`    // falling counts of endpoints that it had within the window
	Held     time.Time      `json:"held,omitzero"`      // since when it is held
	HeldAt   int            `json:"heldAt,omitempty"`   // how many of its endpoints were claimed then
	Missed   bool           `json:"missed,omitempty"`   // endpoints went that were only found missing, or a part of its hold was let go: all of its loss counts
	Denied   []string       `json:"denied,omitempty"`   // keys that stay until they are claimed again
	Approved []string       `json:"approved,omitempty"` // keys that may go and are not deleted yet
}

// A Peak says that a service had N endpoints until then.
type Peak struct {
	N     int       `json:"n"`
	Until time.Time `json:"until"`
}

// Empty reports whether nothing has to be stored.
func (r Record) Empty() bool { return r.equal(Record{}) }

func (r Record) equal(o Record) bool {
	return r.Held.Equal(o.Held) && r.HeldAt == o.HeldAt && r.Missed == o.Missed &&
		slices.Equal(r.Denied, o.Denied) && slices.Equal(r.Approved, o.Approved) && slices.Equal(r.Peaks, o.Peaks)
}

// A candidate is an endpoint that the target stores and the source no longer claims.
type candidate struct {
	missing bool // the source did not report its removal
	unknown bool // the source cannot tell at present
	decided Fate // by a person or the source: Free, Denied; empty: not at all
	since   time.Time
	fate    Fate
	until   time.Time // when a wait ends
}

// A service counts its endpoints. Those that are stored and not let go are
// claimed, unknown, denied or pending.
type service struct {
	Record            // Denied and Approved are in candidates instead
	saved      Record // as it was reported last
	candidates map[string]*candidate
	connection int  // to the source, when the service was held; 0: of an earlier process
	known      bool // it has a count, or peaks of an earlier process
	has        int  // how many endpoints count as its own
	all        int  // endpoints that are stored
	unreported int  // of which the source cannot tell and that are no candidates
	added      int  // of those that are claimed, the new ones
	going      int  // candidates that are free
	falls      bool // with them it has less

	stored, claimed, unknown, pending, missing int
}

// load takes in what was recorded. What is known of the service since stays.
func (s *service) load(r Record) {
	s.Record, s.saved, s.known = r, r, s.known || len(r.Peaks) > 0
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

// observe takes in what is stored. An endpoint of which the source cannot tell
// keeps its state and its clock.
func (s *service) observe(now time.Time, endpoints []Endpoint) {
	before := s.candidates
	s.candidates, s.all, s.claimed, s.unreported, s.added = make(map[string]*candidate), len(endpoints), 0, 0, 0
	for _, e := range endpoints {
		c := before[e.Key]
		switch {
		case e.Claim == Claimed:
			s.claimed++
			if e.New {
				s.added++
			}
		case e.Claim == Unknown && c == nil && s.Held.IsZero():
			s.unreported++
		case c == nil: // of a service that is held, all that is not claimed is
			s.candidates[e.Key] = &candidate{missing: e.Claim != Withdrawn, unknown: e.Claim == Unknown, since: now, fate: Settling}
		default:
			c.observe(now, e.Claim)
			s.candidates[e.Key] = c
		}
	}
}

func (c *candidate) observe(now time.Time, claim Claim) {
	if claim != Unknown && (c.unknown || c.since.IsZero()) {
		c.since = now
	}
	c.unknown, c.missing = claim == Unknown, c.missing || claim == Missing
}

// markMissing makes all candidates missing as of now.
func (s *service) markMissing(now time.Time) {
	for _, c := range s.candidates {
		c.missing, c.since = true, now
	}
}

// count counts the candidates. One that settles is as unknown as what the source
// cannot report; one that is let go counts as gone.
func (s *service) count(now time.Time, o Options) {
	s.stored, s.unknown, s.pending, s.missing = s.all, s.unreported, 0, 0
	for _, c := range s.candidates {
		switch {
		case c.decided == Free:
			s.stored--
		case c.decided == Denied:
		case c.unknown || c.settles(now, o):
			s.unknown++
		default:
			s.pending++
			if c.missing {
				s.missing++
			}
		}
	}
}

func (c *candidate) settles(now time.Time, o Options) bool {
	return c.missing && o.Mode != Off && now.Sub(c.since) < o.Settle
}

// level moves how many endpoints count as the service's own. Candidates do until
// they go, and never make it more than it had; of a service that was not known
// they count as well, and new ones do not.
func (s *service) level(now time.Time) {
	n := s.stored - s.added
	if s.known {
		n = max(s.stay()-s.unknown, min(s.stored, s.base()))
	}
	if n < s.has {
		s.Peaks = append(s.Peaks, Peak{s.has, minute(now)})
	}
	if i := slices.IndexFunc(s.Peaks, func(p Peak) bool { return p.N <= n }); i >= 0 {
		s.Peaks = slices.Clip(s.Peaks[:i]) // and nothing is appended to what was reported
	}
	s.has, s.known = n, true
}

// minute rounds up, so that a record does not change each second.
func minute(t time.Time) time.Time { return t.Add(time.Minute - 1).Truncate(time.Minute).UTC() }

// expire forgets what the service had before the window, unless it is held for that.
func (s *service) expire(now time.Time, window time.Duration) {
	for s.Held.IsZero() && len(s.Peaks) > 0 && now.Sub(s.Peaks[0].Until) >= window {
		s.Peaks = s.Peaks[1:]
	}
	s.Missed = s.Missed && s.base() > s.stay()
}

// base is the most that the service had within the window, less what was let go.
func (s *service) base() int {
	if len(s.Peaks) > 0 {
		return s.Peaks[0].N
	}
	return s.has
}

// stay is what is left when all candidates go.
func (s *service) stay() int { return s.stored - s.pending }

// emptied reports whether the service had endpoints and has none left when all
// candidates go; of one that is held, those too of which nobody can tell yet.
func (s *service) emptied() bool {
	stay := s.stay()
	if !s.Held.IsZero() {
		stay -= s.unknown
	}
	return s.base() > 0 && stay == 0
}

// loss returns how many endpoints count as lost when the candidates go, and so
// many unknown ones too, and how many of them nobody reported. A loss that was
// reported does not count while half of the baseline stays.
func (s *service) loss(unknown int) (lost, unseen int) {
	lost = max(0, s.base()-s.stay()+unknown)
	unseen = min(lost, s.missing+unknown)
	if 2*(s.stay()-unknown) >= s.base() && !s.Missed {
		return unseen, unseen
	}
	return lost, unseen
}

// hold begins to hold a service that has a loss.
func (s *service) hold(now time.Time, connection int) {
	if lost, _ := s.loss(0); lost > 0 && s.pending > 0 && s.Held.IsZero() {
		s.Held, s.HeldAt, s.connection = now, s.claimed, connection
	}
}

// unconfirmed reports whether the hold lasts for half the time after which the
// source may confirm it, and no later connection can.
func (s *service) unconfirmed(now time.Time, connection int, after time.Duration) bool {
	return after > 0 && connection <= s.connection && now.Sub(s.Held) >= after/2
}

// confirmed reports whether the source confirms the hold: all of it is known, it
// has not fallen further for the whole time, and the connection is a later one.
func (s *service) confirmed(now, calm time.Time, connection int, after time.Duration) bool {
	switch {
	case s.Held.IsZero():
		return false
	case s.claimed+s.unknown < s.HeldAt || s.Held.After(now): // it begins anew
		s.Held, s.HeldAt, s.connection = now, s.claimed, connection
		return false
	case s.unknown > 0:
		s.HeldAt = max(s.HeldAt, s.claimed)
		return false
	}
	s.HeldAt = s.claimed
	return after > 0 && now.Sub(s.Held) >= after && now.Sub(calm) >= after && connection > s.connection
}

// decide lets candidates go or keeps them. What stays when some are let go is
// what the service had.
func (s *service) decide(now time.Time, o Options, fate Fate, these func(string, *candidate) bool) (n int) {
	for key, c := range s.candidates {
		if c.decided != fate && these(key, c) {
			c.decided, n = fate, n+1
		}
	}
	s.count(now, o)
	if n > 0 && fate == Free {
		s.Peaks, s.has = nil, s.stored
		s.Missed = s.Missed || !s.Held.IsZero() // what is left of its hold counts whole
	}
	return n
}

// judge decides about each candidate. As many go as were replaced; of a service
// that is held, only those whose removal the source reported.
func (s *service) judge(now time.Time, o Options) {
	s.going, s.falls = 0, false
	keys := slices.SortedFunc(maps.Keys(s.candidates), func(a, b string) int {
		x, y := s.candidates[a], s.candidates[b]
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), x.since.Compare(y.since), cmp.Compare(a, b))
	})
	for i, key := range keys {
		c := s.candidates[key]
		replaced := c.decided == Free || i < s.all-s.base()
		c.fate, c.until = s.fate(c, replaced, now, o)
		if c.fate == Free {
			s.going++
			s.falls = s.falls || !replaced
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

func (s *service) fate(c *candidate, replaced bool, now time.Time, o Options) (Fate, time.Time) {
	switch {
	case c.decided == Denied:
		return Denied, time.Time{}
	case c.unknown:
		return Unreported, time.Time{}
	case c.decided != "":
		return c.decided, time.Time{}
	case !s.Held.IsZero() && (!replaced || c.missing):
		return Held, time.Time{}
	case c.settles(now, o):
		return Settling, c.since.Add(o.Settle)
	case !replaced && s.stay() == 0 && o.Mode != Off && now.Sub(c.since) < o.LastEndpoint:
		return Last, c.since.Add(o.LastEndpoint)
	}
	return Free, time.Time{}
}

// record returns what has to be stored before anything that is free is deleted.
func (s *service) record(now time.Time) Record {
	r := s.Record
	if s.falls {
		r.Peaks = append(slices.Clone(r.Peaks), Peak{s.has, minute(now)})
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
	return r
}

// idle reports whether there is nothing to judge or to remember.
func (s *service) idle() bool {
	return len(s.candidates)+len(s.Peaks) == 0 && s.Held.IsZero() && !s.Missed
}

// next returns when time alone may change something, and whether a candidate waits
// for that.
func (s *service) next(now time.Time, o Options) (at time.Time, waits bool) {
	switch {
	case !s.Held.IsZero():
		at = now.Add(max(time.Second, o.Confirm/60))
	case len(s.Peaks) > 0:
		at = s.Peaks[0].Until.Add(o.Window)
	}
	for _, c := range s.candidates {
		at, waits = soonest(at, c.until), waits || !c.until.IsZero()
	}
	return at, waits
}
