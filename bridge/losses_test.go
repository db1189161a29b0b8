package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/memory"
)

// TestSchedulesOfLosses has a source lose much in random schedules, while it or
// the target is away for longer than a loss counts, replicas take over, persons
// decide and the mode of the guard changes. What goes beyond the share of the
// guard within its window has to have been approved, or confirmed, for exactly
// that set, or the guard did not hold then; and what a person denied stays. A
// seed that fails prints its schedule; XDS_BRIDGE_SEEDS is how many are tried.
func TestSchedulesOfLosses(t *testing.T) {
	seeds := 8
	if text := os.Getenv("XDS_BRIDGE_SEEDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("XDS_BRIDGE_SEEDS: %v", err)
		}
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newLosses(t, uint64(seed)).run() })
		})
	}
}

const services = 20 // of two endpoints each

// A set is some of the groups.
type set map[registry.Group]bool

func (s set) intersects(o set) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(s)), func(g registry.Group) bool { return o[g] })
}

// losses is a simulator of what takes services away, and of those who decide.
type losses struct {
	*story
	r        *rand.Rand
	judge    *judge
	board    *board // nil: it has no other replicas
	all      []*registry.Service
	shown    map[string]*registry.Service // by the source, as it was read last
	asked    atomic.Bool                  // for a reading over a new connection
	stale    bool
	down     bool // the target
	warm     bool
	term     int
	quietTo  time.Time // until when a hand-over may have holds made anew
	schedule []string
}

// A judge sees what is deleted, and knows what may be.
type judge struct {
	*recording
	t *testing.T

	mu        sync.Mutex
	mode      bridge.Mode
	base      int                          // services there were, at the most, since a hold ended
	spent     int                          // services that may have been let go before it and are there still
	lost      map[registry.Group]time.Time // when claims ended
	withdrawn set                          // of lost
	claimed   set
	emptied   set                       // since a hold ended, and for which nobody vouched
	vouched   set                       // may go, until they are claimed again
	decided   set                       // of those, what was let go of a hold
	holds     map[string]set            // as shown, by id
	begun     map[time.Time]string      // the last id of a hold
	denied    map[string]set            // whose set has not changed since
	untold    func(registry.Group) bool // what the source cannot tell of; nil: it can of all
	dialed    time.Time                 // when it last read over a new connection
	window    time.Duration
}

func newLosses(t *testing.T, seed uint64) *losses {
	t.Helper()
	s := newStory(t).bridge("b", bridge.DefaultGuard())
	s.opts.Retry.Max, s.opts.Refresh = 2*time.Minute, 20*time.Minute
	l := &losses{story: s, r: rand.New(rand.NewPCG(seed, 3)), all: fleet(services, 2), shown: map[string]*registry.Service{}, term: 1}
	if seed%2 == 0 {
		l.board = newBoard(2, decides)
		s.opts.Gate = l.board.gate()
	}
	s.target = memory.New(memory.Options{Owner: "me"})
	l.judge = &judge{
		recording: &recording{Target: s.target, texts: make(map[string]map[string]string)}, t: t, mode: bridge.GuardEnforce,
		base: services, lost: map[registry.Group]time.Time{}, emptied: set{}, withdrawn: set{}, decided: set{}, vouched: set{}, holds: map[string]set{},
		begun: map[time.Time]string{}, denied: map[string]set{}, window: bridge.DefaultGuard().Window - time.Minute,
	}
	s.opts.Tell = l.judge.told
	s.bridges[0].Recheck = func() { l.asked.Store(true) }
	return l
}

func (j *judge) Write(ctx context.Context, c registry.Change) error {
	err := j.Target.Write(ctx, c)
	if err == nil && len(c.Want) == 0 && len(c.Delete) > 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.goes(c.Group)
	}
	return err
}

// allowed returns how many services the guard may let go.
func (j *judge) allowed() int { return int(bridge.DefaultGuard().Share * float64(j.base)) }

// goes judges that a group has nothing left in the target.
func (j *judge) goes(g registry.Group) {
	at, lost := j.lost[g]
	if !lost {
		j.t.Errorf("%s is deleted and claimed", g)
	}
	for id, denied := range j.denied {
		if denied[g] && j.mode == bridge.GuardEnforce {
			j.t.Errorf("%v: %s is deleted, hold %s of which was denied", time.Now(), g, id)
		}
	}
	if j.vouched[g] || j.mode != bridge.GuardEnforce {
		return
	}
	j.emptied[g] = true
	n := 0
	for o := range j.emptied {
		if j.lost[o].Sub(at).Abs() < j.window {
			n++
		}
	}
	if n > j.allowed()+j.spent {
		j.t.Errorf("%v: %d of %d services are gone, of which %d may go: %s", time.Now(), n, j.base, j.allowed()+j.spent, g)
	}
}

// told notes who vouches for what is no longer held.
func (j *judge) told(e bridge.Event) {
	if e.Kind != bridge.EventRelease {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	approved, confirmed := strings.HasPrefix(e.Why, "approved"), strings.HasPrefix(e.Why, "the source still")
	if !approved && !confirmed && !strings.HasPrefix(e.Why, "guard.mode") {
		return
	}
	freed, known := j.holds[e.Subject]
	if !known && confirmed { // but for what the source cannot tell of
		freed = maps.Clone(j.holds[j.begun[e.Since]])
		maps.DeleteFunc(freed, func(g registry.Group, _ bool) bool { return j.untold != nil && j.untold(g) })
	}
	if confirmed {
		j.confirms(freed, e)
	}
	if approved {
		delete(j.denied, e.Subject)
	}
	maps.Copy(j.vouched, freed)
	maps.Copy(j.decided, freed)
	j.anew()
}

// confirms judges that a source confirmed that a hold goes.
func (j *judge) confirms(freed set, e bridge.Event) {
	for g := range freed {
		if time.Since(j.lost[g]) < bridge.DefaultGuard().Confirm || j.dialed.Before(e.Since) || j.untold != nil && j.untold(g) {
			j.t.Errorf("%v: %s is confirmed, which the source did not tell of for long enough", time.Now(), g)
		}
	}
}

// anew makes what is there what losses are measured by. What was permitted and
// is still there goes beside what may go from now on; what settles was not.
func (j *judge) anew() {
	pending := 0
	for g := range j.there() {
		if at, lost := j.lost[g]; lost && !j.vouched[g] && (j.withdrawn[g] || time.Since(at) >= bridge.DefaultGuard().Settle) {
			pending++
		}
	}
	j.spent = max(0, min(pending, j.allowed()+j.spent-len(j.emptied)))
	clear(j.emptied)
	j.base = 0
	j.grows()
}

// grows takes in what there is: what is claimed, and what the target holds but for
// what was let go of a hold.
func (j *judge) grows() {
	n := j.there()
	maps.Copy(n, j.claimed)
	maps.DeleteFunc(n, func(g registry.Group, _ bool) bool { return j.decided[g] })
	j.base = max(j.base, len(n))
}

// there returns the groups that the target holds something of.
func (j *judge) there() set {
	there := set{}
	for _, e := range j.Entries() {
		there[e.Group] = true
	}
	return there
}

func (l *losses) run() {
	l.starts(l.judge)
	l.shows(l.all)
	l.passes(10 * time.Minute)
	events := l.events()
	if l.board != nil {
		events["another replica decides, or this one again"] = l.handsOver
		events["another replica decides for longer than the window"] = func() { l.awhile(l.handsOver) }
		events["a denied hold goes to another replica and comes back"] = l.deniesAndHandsOver
	}
	names := slices.Sorted(maps.Keys(events))
	waits := []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, 50 * time.Second, 3 * time.Minute, 12 * time.Minute}
	for range 40 {
		l.heals()
		l.happens(names[l.r.IntN(len(names))], events)
		l.passes(waits[l.r.IntN(len(waits))])
	}
	if l.board != nil {
		l.growsAndShrinksElsewhere()
	}
	if l.t.Failed() {
		l.t.Logf("the schedule:\n%s", strings.Join(l.schedule, "\n"))
	}
}

func (l *losses) happens(name string, events map[string]func()) {
	l.schedule = append(l.schedule, time.Now().Format(time.DateTime)+" "+name)
	events[name]()
}

// heals ends now and then what would last until it happens again.
func (l *losses) heals() {
	if l.r.IntN(3) > 0 {
		return
	}
	heal := map[string]func(){}
	if l.stale {
		heal["the source is back with all"] = func() { l.sourceTurns(l.all) }
		heal["the source is back with a tenth"] = func() { l.sourceTurns(l.tenth()) }
	}
	if l.down {
		heal["the target is back"] = l.targetTurns
	}
	if l.warm {
		heal["this replica takes over"] = l.handsOver
	}
	if l.judge.mode != bridge.GuardEnforce {
		heal["guard.mode: enforce, as it was"] = func() { l.tunes(bridge.GuardEnforce) }
	}
	if names := slices.Sorted(maps.Keys(heal)); len(names) > 0 {
		l.happens(names[l.r.IntN(len(names))], heal)
	}
}

// events are what can happen, by name.
func (l *losses) events() map[string]func() {
	return map[string]func(){
		"a few services are withdrawn":                  func() { l.withdraws(1 + l.r.IntN(3)) },
		"many services are withdrawn":                   func() { l.withdraws(8 + l.r.IntN(10)) },
		"the source shows a tenth":                      func() { l.shows(l.tenth()) },
		"the source shows a half":                       func() { l.shows(l.some(services / 2)) },
		"the source shows all":                          func() { l.shows(l.all) },
		"the source is away, or back with a tenth":      func() { l.sourceTurns(l.tenth()) },
		"the source is away for longer than the window": func() { l.awhile(func() { l.sourceTurns(l.tenth()) }) },
		"the target is away, or back":                   l.targetTurns,
		"the target is away for longer than the window": func() { l.awhile(l.targetTurns) },
		"a part of the source is denied, or permitted":  l.scopeTurns,
		"a hold is approved":                            l.approves,
		"a hold is approved while more is missing":      l.approvesAmidst,
		"a hold is denied":                              l.denies,
		"guard.mode: off":                               func() { l.tunes(bridge.GuardOff) },
		"guard.mode: warn":                              func() { l.tunes(bridge.GuardWarn) },
		"guard.mode: enforce":                           func() { l.tunes(bridge.GuardEnforce) },
	}
}

// awhile has something be otherwise for longer than a loss counts.
func (l *losses) awhile(turns func()) {
	turns()
	l.passes(70 * time.Minute)
	turns()
}

// passes lets time pass. The source does what it is asked meanwhile.
func (l *losses) passes(d time.Duration) {
	for end := time.Now().Add(d); ; {
		l.in(min(30*time.Second, time.Until(end)))
		if l.asked.Swap(false) && !l.stale {
			l.shows(slices.Collect(maps.Values(l.shown)))
		}
		l.looks()
		if !time.Now().Before(end) {
			return
		}
	}
}

// looks notes what is held.
func (l *losses) looks() []bridge.Hold {
	holds := l.status().Holds
	l.judge.mu.Lock()
	defer l.judge.mu.Unlock()
	for _, h := range holds {
		l.judge.holds[h.ID], l.judge.begun[h.Since] = set{}, h.ID
		for _, g := range h.Groups {
			l.judge.holds[h.ID][g] = true
		}
	}
	l.judge.grows()
	return holds
}

// claims takes in what the source shows by now.
func (l *losses) claims(shown []*registry.Service, withdrawn bool) {
	j := l.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	before := l.shown
	l.shown = map[string]*registry.Service{}
	for _, sv := range shown {
		l.shown[string(sv.Name)] = sv
	}
	changed := set{}
	j.claimed = set{}
	for _, sv := range l.all {
		g := group(string(sv.Name))
		_, was := before[string(sv.Name)]
		_, is := l.shown[string(sv.Name)]
		switch {
		case is:
			j.claimed[g] = true
			delete(j.lost, g)
			delete(j.vouched, g)
			delete(j.decided, g)
			delete(j.emptied, g)
		case was:
			j.lost[g], j.withdrawn[g] = time.Now(), withdrawn
		}
		if is != was {
			changed[g] = true
		}
	}
	j.grows()
	if time.Now().Before(l.quietTo) || l.warm {
		if len(changed) > 0 {
			clear(j.denied)
		}
	}
	maps.DeleteFunc(j.denied, func(_ string, s set) bool { return s.intersects(changed) })
}

// shows has the source tell of exactly these over a new connection.
func (l *losses) shows(shown []*registry.Service) {
	if l.stale {
		return
	}
	l.claims(shown, false)
	l.judge.mu.Lock()
	l.judge.dialed = time.Now()
	l.judge.mu.Unlock()
	l.dials(shown...)
}

func (l *losses) withdraws(n int) {
	left := l.some(len(l.shown) - n)
	var gone []registry.Name
	for _, sv := range l.all {
		if l.shown[string(sv.Name)] != nil && !slices.Contains(left, sv) {
			gone = append(gone, sv.Name)
		}
	}
	if l.stale {
		return
	}
	l.claims(left, true)
	l.table().Apply(nil, gone)
	l.in(0)
}

// some returns n of what is shown.
func (l *losses) some(n int) []*registry.Service {
	var shown []*registry.Service
	for _, sv := range l.all {
		if l.shown[string(sv.Name)] != nil {
			shown = append(shown, sv)
		}
	}
	l.r.Shuffle(len(shown), func(i, k int) { shown[i], shown[k] = shown[k], shown[i] })
	return shown[:min(len(shown), max(0, n))]
}

// tenth returns a tenth of all there ever is.
func (l *losses) tenth() []*registry.Service {
	first := l.r.IntN(services - 1)
	return l.all[first : first+services/10]
}

func (l *losses) sourceTurns(shown []*registry.Service) {
	if l.stale = !l.stale; l.stale {
		l.table().Stale(errLost)
		return
	}
	l.shows(shown)
}

func (l *losses) targetTurns() {
	l.down = !l.down
	l.fail(func(memory.Op, registry.Group) error { return map[bool]error{true: errDown}[l.down] })
}

func (l *losses) scopeTurns() {
	l.judge.mu.Lock()
	defer l.judge.mu.Unlock()
	if l.warm || time.Now().Before(l.quietTo) {
		clear(l.judge.denied)
	}
	if l.judge.untold != nil {
		l.judge.untold = nil
		l.table().Unknown("s1*", nil)
		return
	}
	l.judge.untold = func(g registry.Group) bool { return strings.HasPrefix(g.Name, "s1") }
	l.table().Unknown("s1*", errLost)
}

// handsOver has another replica decide, or this one again. It holds the same
// again where nothing else is to be judged.
func (l *losses) handsOver() {
	j := l.judge
	j.mu.Lock()
	pending := set{}
	for g := range j.there() {
		if _, lost := j.lost[g]; lost {
			pending[g] = true
		}
	}
	maps.DeleteFunc(j.denied, func(_ string, s set) bool { return !maps.Equal(s, pending) || j.untold != nil || l.stale })
	j.mu.Unlock()
	l.warm = !l.warm
	l.term++
	l.quietTo = time.Now().Add(5 * time.Minute)
	s := bridge.Stand{Role: bridge.RoleDecider, Term: int64(l.term), Turn: l.term, Decider: "me"}
	if l.warm {
		s.Role, s.Decider = bridge.RoleWarm, "other"
	}
	l.board.set(s)
	l.in(0)
}

// calms makes everything well again.
func (l *losses) calms() {
	if l.down {
		l.targetTurns()
		l.passes(3 * time.Minute)
	}
	if l.judge.untold != nil {
		l.scopeTurns()
		l.in(0)
	}
	if l.warm {
		l.handsOver()
	}
	if l.stale {
		l.sourceTurns(l.all)
	}
	if l.judge.mode != bridge.GuardEnforce {
		l.tunes(bridge.GuardEnforce)
	}
	l.shows(l.all)
	l.passes(10 * time.Minute)
}

// deniesAndHandsOver has a person deny all that is about to go before another
// replica decides for a while, and finds this one hold the same again.
func (l *losses) deniesAndHandsOver() {
	l.calms()
	l.withdraws(8 + l.r.IntN(8))
	l.passes(20 * time.Second)
	l.denies()
	l.handsOver()
	l.passes(time.Duration(l.r.IntN(180)) * time.Second)
	l.handsOver()
	l.passes(25 * time.Minute)
}

// growsAndShrinksElsewhere has another replica write what services grow by while
// this one is away, and keep what they lose then. What comes back to this one is
// far more than the share of what there was, and nobody vouched for it.
func (l *losses) growsAndShrinksElsewhere() {
	l.calms()
	l.board.set(away)
	l.passes(10 * time.Minute)
	grown := fleet(services, 6)
	for _, sv := range grown {
		for _, e := range sv.Endpoints {
			l.target.Set(mine(string(sv.Name), e.Address()))
		}
	}
	l.shows(grown)
	l.passes(10 * time.Minute)
	l.shows(l.all)
	l.passes(2 * time.Hour)
	l.board.set(bridge.Stand{Role: bridge.RoleWarm, Term: int64(l.term + 1), Turn: l.term + 1, Decider: "other"})
	l.passes(5 * time.Minute)
	l.board.set(bridge.Stand{Role: bridge.RoleDecider, Term: int64(l.term + 2), Turn: l.term + 2, Decider: "me"})
	l.passes(5 * time.Minute)
	if n := len(l.target.Entries()); n != 6*services {
		l.t.Errorf("%d of %d entries are left of what another replica kept", n, 6*services)
	}
}

func (l *losses) approves() {
	if holds := l.looks(); len(holds) > 0 {
		if err := l.loop.Approve(l.t.Context(), holds[l.r.IntN(len(holds))].ID, "ann"); err != nil && !errors.Is(err, bridge.ErrUnrecorded) {
			l.t.Error(err)
		}
	}
}

// approvesAmidst has a hold approved, beside which more went missing meanwhile.
func (l *losses) approvesAmidst() {
	l.withdraws(8 + l.r.IntN(5))
	l.passes(time.Duration(l.r.IntN(60)) * time.Second)
	l.shows(l.some(l.r.IntN(len(l.shown) + 1)))
	l.passes(time.Duration(l.r.IntN(60)) * time.Second)
	l.approves()
}

func (l *losses) denies() {
	holds := l.looks()
	if len(holds) == 0 {
		return
	}
	id := holds[l.r.IntN(len(holds))].ID
	if err := l.loop.Deny(l.t.Context(), id, "ann"); err != nil && !errors.Is(err, bridge.ErrUnrecorded) {
		l.t.Error(err)
		return
	}
	l.judge.mu.Lock()
	defer l.judge.mu.Unlock()
	l.judge.denied[id] = l.judge.holds[id]
}

// tunes sets the mode of the guard. What it let go by then and is there still
// may go later.
func (l *losses) tunes(mode bridge.Mode) {
	holds, j := l.looks(), l.judge
	j.mu.Lock()
	before := j.mode
	if mode != bridge.GuardEnforce {
		j.mode = mode
		clear(j.denied)
		for _, h := range holds {
			maps.Copy(j.vouched, j.holds[h.ID])
		}
	}
	j.mu.Unlock()
	guard := with(func(g *bridge.Guard) { g.Mode = mode })
	if err := l.loop.Tune(l.t.Context(), map[string]bridge.Guard{"b": guard}, l.opts); err != nil {
		l.t.Error(err)
	}
	l.in(0)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mode = mode
	if before == bridge.GuardWarn {
		for g := range j.lost {
			j.vouched[g] = true
		}
	}
	if before != mode {
		j.anew()
	}
}
