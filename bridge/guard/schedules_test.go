package guard_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/registry"
)

const universe = 8 // endpoints that a service can have, each a bit

// A world is a bench between a source and a target, all by one seed.
type world struct {
	*bench

	r        *rand.Rand
	services []*mirrored
	log      []string // what happened
	broken   string   // the first invariant that did not hold
	shows    int      // endpoints that the source shows
	restored time.Time
	unasked  bool // in the last round a service lost more than half without approval
}

// A mirrored service, and what the invariants have to remember of it. None of it comes from the guard.
type mirrored struct {
	group    registry.Group
	shown    uint8 // by the source
	stored   uint8 // in the target
	seen     uint8 // shown over the present connection
	known    bool  // the source can report it
	denied   uint8 // by an operator, and not claimed since
	approved uint8
	claims   int
	dip      time.Time    // since when fewer of it are claimed
	fell     time.Time    // when they did last, for longer than that settles
	peaks    []guard.Peak // its counts since a loss was accepted
	held     int          // its baseline in the last hold; -1: it is not held
	from     int          // the same, also after the hold
}

func newWorld(t *testing.T, seed uint64, o guard.Options) *world {
	t.Helper()
	w := &world{bench: newBench(t, o), r: rand.New(rand.NewPCG(seed, 1))}
	for i := range 1 + w.r.IntN(12) {
		s := &mirrored{group: named(fmt.Sprintf("s%02d", i)), shown: 1<<(1+w.r.IntN(universe/2)) - 1, known: true, held: -1}
		if w.r.IntN(3) == 0 {
			s.shown = 1
		}
		s.stored = s.shown
		if w.r.IntN(8) == 0 { // left by an earlier process
			s.shown = 0
		}
		s.seen = s.shown
		w.services = append(w.services, s)
	}
	return w
}

func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *world) require(holds bool, format string, args ...any) { //nolint:revive // a finding, not a mode
	if !holds && w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.logf("BROKEN: %s", w.broken)
	}
}

func count(set uint8) int { return bits.OnesCount8(set) }

// endpoints returns what the source reports of the stored endpoints of a service.
func (s *mirrored) endpoints() (all []endpoint) {
	for i := range universe {
		bit := uint8(1) << i
		e := endpoint{Key: strconv.Itoa(i)}
		switch {
		case s.stored&bit == 0:
			continue
		case !s.known:
		case s.shown&bit != 0:
			e.Claimed = true
		case s.seen&bit != 0:
			e.Report = guard.Withdrawn
		default:
			e.Report = guard.Missing
		}
		all = append(all, e)
	}
	return all
}

// fates returns the candidates of a service that have one.
func (s *mirrored) fates(g *guard.Guard, fate guard.Fate) (set uint8) {
	for i := range universe {
		if is := g.Fate(s.group, strconv.Itoa(i)); is == fate && s.stored&(1<<i) != 0 {
			set |= 1 << i
		}
	}
	return set
}

// round adds missing endpoints, calls Judge, saves the records and deletes the free
// endpoints, or some of them if the process dies.
func (w *world) round() {
	w.shows = 0
	for _, s := range w.services {
		if s.known {
			s.stored |= s.shown
			s.denied &= s.stored &^ s.shown
			s.approved &= s.stored &^ s.shown
			s.fall(w.now, w.guard.Options.Settle)
		}
		w.shows += count(s.shown)
	}
	w.observe(w.guard)
	w.judge()
	r := w.bench.round
	w.logf("free %v, changed %d, released %v, hold %+v", r.Free, len(r.Changed), r.Released, w.guard.Hold())
	for _, x := range r.Released {
		w.released(x)
	}
	w.checkRestart()
	w.delete()
	w.checkBudget()
}

// fall records when fewer endpoints are claimed than before, for as long as Settle.
func (s *mirrored) fall(now time.Time, settle time.Duration) {
	n := count(s.shown)
	switch {
	case n >= s.claims:
		s.claims, s.dip = n, time.Time{}
	case s.dip.IsZero():
		s.dip = now
	case now.Sub(s.dip) >= settle:
		s.fell, s.claims, s.dip = s.dip, n, time.Time{}
	}
}

func (w *world) observe(g *guard.Guard) {
	for _, s := range w.services {
		g.Observe(w.now, s.group, stored(s.endpoints()))
	}
}

func (w *world) service(g registry.Group) *mirrored {
	return w.services[slices.IndexFunc(w.services, func(s *mirrored) bool { return s.group == g })]
}

// released checks that a hold ends by a possible cause.
func (w *world) released(x guard.Release) {
	s := w.service(x.Service)
	gone := s.stored &^ (s.shown | s.denied | s.approved)
	switch {
	case w.guard.Options.Mode != guard.Enforce:
	case x.Cause == "none of its entries is to be deleted any more":
		w.require(gone == 0 || 2*count(s.stored&(s.shown|s.denied)) >= s.from, "%s is no longer held and lacks %d", s.group.Name, count(gone))
		w.restored = w.now
	default:
		w.require(w.now.Sub(s.fell) >= w.guard.Options.Confirm && w.now.Sub(w.restored) >= w.guard.Options.Confirm, "%s is confirmed too early", s.group.Name)
		w.require(w.shows > 0 && s.known, "%s is confirmed by a source that cannot report", s.group.Name)
		s.accept(gone)
	}
	s.held = -1
}

// accept makes a loss count no longer.
func (s *mirrored) accept(gone uint8) {
	s.approved |= gone
	s.peaks = nil
}

// peak returns the most endpoints that a service had within the window, since a loss was accepted.
func (s *mirrored) peak(now time.Time, window time.Duration) int {
	n := count(s.stored &^ s.approved)
	for _, p := range s.peaks {
		if now.Sub(p.Until) < window {
			n = max(n, p.N)
		}
	}
	return n
}

func (w *world) delete() {
	dies := w.r.IntN(20) == 0
	w.unasked = false
	for _, s := range w.services {
		free := s.fates(w.guard, guard.Free)
		w.require(free&s.shown == 0 && (s.known || free == 0), "%s: what the source shows or cannot report is deleted: %08b", s.group.Name, free)
		w.require(free&s.denied == 0, "%s: a denied endpoint is deleted: %08b", s.group.Name, free&s.denied)
		if w.guard.Options.Mode == guard.Enforce && s.held >= 0 {
			n := count(s.stored &^ (free | s.approved))
			w.require(n >= min(s.held, count(s.stored&^s.approved)), "%s is held at %d and keeps %d", s.group.Name, s.held, n)
		}
		had := count(s.stored &^ s.approved)
		s.peaks = append(s.peaks, guard.Peak{N: had, Until: w.now})
		if dies {
			free &= uint8(w.r.Uint32())
		}
		unasked := free&^s.approved != 0
		s.stored &^= free
		w.unasked = w.unasked || unasked && 2*count(s.stored&^s.approved) < s.peak(w.now, w.guard.Options.Window)
		s.approved &= s.stored
		s.held = -1
	}
	if h := w.guard.Hold(); h != nil {
		for _, l := range h.Losses {
			w.service(l.Service).held, w.service(l.Service).from = l.From, l.From
		}
	}
	if dies {
		w.restart()
	}
}

// checkBudget checks that no more is lost within a window than the share, except for
// accepted losses.
func (w *world) checkBudget() {
	if w.guard.Options.Mode != guard.Enforce || !w.unasked {
		return
	}
	var emptied, services, lost, endpoints, left int
	for _, s := range w.services {
		peak, n := s.peak(w.now, w.guard.Options.Window), count(s.stored&^s.approved)
		left += count(s.stored)
		endpoints += peak
		if peak > 0 {
			services++
		}
		if peak > 0 && n == 0 {
			emptied++
		}
		if 2*n < peak {
			lost += peak - n
		}
	}
	share := w.guard.Options.Share
	w.require(emptied <= 1 || float64(emptied) <= share*float64(services), "%d of %d services are without an endpoint", emptied, services)
	w.require(emptied == 1 || float64(lost) <= share*float64(endpoints)+float64(w.guard.Options.AtLeast), "%d of %d endpoints are lost", lost, endpoints)
	w.require(left > 0, "nothing is left")
}

// checkRestart checks that a process which knows only the records deletes nothing
// that this one keeps for more than a wait, and holds and keeps the same.
func (w *world) checkRestart() {
	if w.guard.Options.Mode != guard.Enforce {
		return
	}
	next := guard.New(w.guard.Options, reread(w.t, w.saved))
	w.observe(next)
	next.Judge(w.now, w.connection)
	for _, s := range w.services {
		more := s.fates(next, guard.Free) &^ (s.fates(w.guard, guard.Free) | s.fates(w.guard, guard.Last))
		w.require(more == 0, "%s: after a restart %08b goes", s.group.Name, more)
		w.require(s.fates(w.guard, guard.Held)&^s.fates(next, guard.Held) == 0, "%s: after a restart less is held", s.group.Name)
		w.require(s.fates(w.guard, guard.Denied) == s.fates(next, guard.Denied), "%s: after a restart other keys are denied", s.group.Name)
	}
}

func (w *world) restart() {
	w.logf("restart")
	w.bench.restart()
	w.connect()
}

// connect reads the source over a new connection.
func (w *world) connect() {
	w.connection++
	for _, s := range w.services {
		s.seen = s.shown
	}
}

func (s *mirrored) show(set uint8) { s.shown, s.seen = set, s.seen|set }

// decide makes an operator decide about all candidates or some.
func (w *world) decide(fate guard.Fate, all bool) { //nolint:revive // of a test
	var keys []guard.Key
	for _, s := range w.services {
		open := s.fates(w.guard, guard.Held) | s.fates(w.guard, guard.Denied)
		if !all {
			open &= uint8(w.r.Uint32())
		}
		for i := range universe {
			if open&(1<<i) != 0 {
				keys = append(keys, guard.Key{Service: s.group, Key: strconv.Itoa(i)})
			}
		}
		switch fate {
		case guard.Free:
			if s.denied &^= open; open != 0 {
				s.accept(open)
			}
		default:
			s.denied |= open
			s.approved &^= open
		}
		s.held = -1
	}
	w.logf("%s: %d of %v", fate, w.guard.Decide(w.now, fate, keys), keys)
}

// act plays one event.
func (w *world) act() {
	s := w.services[w.r.IntN(len(w.services))]
	some := uint8(w.r.Uint32())
	switch w.r.IntN(14) {
	case 0:
		s.show(s.shown & some)
	case 1:
		s.show(0)
	case 2:
		s.show(some)
	case 3:
		s.show(s.shown | some)
	case 4: // the source restarts and lacks something
		for _, s := range w.services {
			s.shown &= []uint8{0, uint8(w.r.Uint32()), 0xff}[w.r.IntN(3)]
		}
		w.connect()
	case 5: // and lacks everything
		for _, s := range w.services {
			s.shown = 0
		}
		w.connect()
	case 6: // it shows everything again
		for _, s := range w.services {
			s.show(s.shown | s.stored)
			s.known = true
		}
	case 7:
		for _, s := range w.services {
			s.known = s.known && w.r.IntN(2) == 0
		}
	case 8:
		for _, s := range w.services {
			s.known = true
		}
	case 9, 10:
		w.connect()
	case 11:
		w.decide(guard.Free, w.r.IntN(2) == 0)
	case 12:
		w.decide(guard.Denied, w.r.IntN(2) == 0)
	case 13:
		w.restart()
	}
}

func (w *world) run(steps int) {
	pauses := []time.Duration{time.Second, 5 * time.Second, 31 * time.Second, 61 * time.Second, 2 * time.Minute, 6 * time.Minute, 11 * time.Minute, 25 * time.Minute}
	w.round()
	for range steps {
		w.act()
		w.now = w.now.Add(pauses[w.r.IntN(len(pauses))])
		w.round()
		if w.broken != "" {
			return
		}
	}
	w.settle()
}

// settle leaves the source as it is, and makes an operator approve. Then the target has the
// claimed and the denied endpoints.
func (w *world) settle() {
	for _, s := range w.services {
		s.known = true
	}
	for range 6 {
		w.decide(guard.Free, true)
		w.now = w.now.Add(2 * time.Minute)
		w.round()
	}
	for _, s := range w.services {
		w.require(s.stored == s.shown, "%s: in the end %08b is stored of %08b", s.group.Name, s.stored, s.shown)
	}
}

// TestGuard_Schedules: each seed gives the same decisions, and none breaks a rule.
func TestGuard_Schedules(t *testing.T) {
	schedules := 10_000
	if testing.Short() {
		schedules = 300
	}
	for seed := range uint64(schedules) { //nolint:gosec // it is small
		o := defaults()
		o.Mode = []guard.Mode{guard.Enforce, guard.Enforce, guard.Enforce, guard.Warn, guard.Off}[seed%5]
		w := newWorld(t, seed, o)
		w.run(40)
		if w.broken != "" {
			for _, line := range w.log {
				t.Log(line[:min(len(line), 200)])
			}
			t.Fatalf("seed %d: %s", seed, w.broken)
		}
		if seed%50 == 0 {
			again := newWorld(t, seed, o)
			again.run(40)
			if !slices.Equal(again.log, w.log) {
				t.Fatalf("seed %d: another run decides otherwise", seed)
			}
		}
	}
}
