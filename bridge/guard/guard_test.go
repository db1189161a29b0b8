package guard_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/registry"
)

func defaults() guard.Options {
	return guard.Options{
		Share: 0.3, AtLeast: 10, Window: time.Hour, LastEndpoint: 30 * time.Second, Settle: time.Minute, Confirm: 10 * time.Minute,
	}
}

func named(service string) registry.Group { return registry.Group{Name: service} }

// An endpoint is stored by the target.
type endpoint struct {
	Key   string
	Claim claim
	New   bool
}

// A claim is what the source reports of an endpoint.
type claim int

const (
	unknown claim = iota
	claimed
	withdrawn
	missing
)

// stored returns endpoints as a guard observes them.
func stored(all []endpoint) (s guard.Stored) {
	s.Unclaimed = make(map[string]guard.Report)
	for _, e := range all {
		switch {
		case e.Claim != claimed:
			s.Unclaimed[e.Key] = map[claim]guard.Report{unknown: guard.Unknown, withdrawn: guard.Withdrawn, missing: guard.Missing}[e.Claim]
		case e.New:
			s.New++
			fallthrough
		default:
			s.Claimed++
		}
	}
	return s
}

// A bench drives one guard by hand.
type bench struct {
	t          *testing.T
	guard      *guard.Guard
	now        time.Time
	connection int
	stored     map[string][]endpoint
	round      guard.Round
	saved      map[registry.Group]guard.Record
	deleted    int // in the last round
}

func newBench(t *testing.T, o guard.Options) *bench {
	t.Helper()
	return &bench{
		t: t, guard: guard.New(o, nil), now: time.Unix(1e9, 0).UTC(), connection: 1,
		stored: make(map[string][]endpoint), saved: make(map[registry.Group]guard.Record),
	}
}

// set makes a service store endpoints: each claim so many times.
func (b *bench) set(service string, claims map[claim]int) {
	var all []endpoint
	for _, c := range []claim{claimed, withdrawn, missing, unknown} {
		for range claims[c] {
			all = append(all, endpoint{Key: strconv.Itoa(len(all)), Claim: c})
		}
	}
	b.stored[service] = all
}

func (b *bench) claimed(service string, n int) {
	b.set(service, map[claim]int{claimed: n})
}

// settled returns a bench of services s0 and so on, each of as many claimed endpoints.
func settled(t *testing.T, o guard.Options, services, endpoints int) *bench {
	t.Helper()
	b := newBench(t, o)
	b.sets(services, map[claim]int{claimed: endpoints})
	b.in(0)
	return b
}

// sets makes the first services store endpoints: each claim so many times.
func (b *bench) sets(services int, claims map[claim]int) {
	for i := range services {
		b.set(fmt.Sprint("s", i), claims)
	}
}

// in lets time pass, has the guard judge, stores records and deletes what may go.
func (b *bench) in(d time.Duration) {
	b.t.Helper()
	b.now = b.now.Add(d)
	b.observe()
	b.round = b.guard.Judge(b.now, b.connection)
	for _, r := range b.round.Changed {
		b.saved[r.Service] = r
	}
	b.deleted = 0
	for service, all := range b.stored {
		b.stored[service] = slices.DeleteFunc(all, func(e endpoint) bool {
			fate := b.guard.Fate(named(service), e.Key)
			if fate == guard.Free {
				b.deleted++
			}
			return fate == guard.Free
		})
	}
	b.observe()
}

func (b *bench) observe() {
	for service, all := range b.stored {
		b.guard.Observe(b.now, named(service), stored(all))
	}
}

func (b *bench) held() []guard.Key {
	if h := b.guard.Hold(); h != nil {
		return h.Keys
	}
	return nil
}

func (b *bench) want(what string, deleted, held int) {
	b.t.Helper()
	if n := len(b.held()); b.deleted != deleted || n != held {
		b.t.Errorf("%s: deleted %d, holds %d, want %d and %d", what, b.deleted, n, deleted, held)
	}
}

// restart continues with a guard that knows the records alone, as they are stored.
func (b *bench) restart() {
	b.t.Helper()
	b.guard = guard.New(b.guard.Options, reread(b.t, b.saved))
	b.connection = 1
	for _, all := range b.stored {
		for i := range all {
			if all[i].Claim == withdrawn {
				all[i].Claim = missing
			}
		}
	}
}

func reread(t *testing.T, saved map[registry.Group]guard.Record) (records []guard.Record) {
	t.Helper()
	for _, r := range saved {
		if r.Empty() {
			continue
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again guard.Record
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		records = append(records, again)
	}
	return records
}

// fallen has ten services of ten endpoints, four of which the source does not show after it was read anew.
func fallen(t *testing.T, o guard.Options) *bench {
	t.Helper()
	b := settled(t, o, 10, 10)
	b.connection++
	b.sets(4, map[claim]int{missing: 10})
	b.in(time.Second)
	b.in(time.Minute)
	return b
}

func TestGuard_HoldsAMassDeletion(t *testing.T) {
	b := fallen(t, defaults())
	b.want("four of ten services", 0, 40)
	h := b.guard.Hold()
	if h.Emptied != 4 || h.Services != 10 || h.Lost != 40 || h.Endpoints != 100 || h.Person || !h.Since.Equal(b.now) {
		t.Errorf("hold %+v", h)
	}
	b.in(4 * time.Minute)
	if b.round.Reconnect {
		t.Error("a new connection is wanted after 4 minutes, want 5")
	}
	b.in(time.Minute)
	if !b.round.Reconnect {
		t.Error("no new connection is wanted after 5 minutes")
	}
	b.in(20 * time.Minute)
	b.want("over the old connection", 0, 40)
	b.connection++
	b.in(time.Second)
	b.want("a second into a new connection", 0, 40)
	b.in(time.Minute)
	b.want("over a new connection", 40, 0)
	if len(b.round.Released) != 4 || b.round.Released[0].Service != named("s0") {
		t.Errorf("released %v", b.round.Released)
	}
}

func TestGuard_ApprovalOfAPartLeavesTheRest(t *testing.T) {
	b := fallen(t, defaults())
	part := b.held()[:20] // s0 and s1
	if n := b.guard.Decide(b.now, guard.Free, part); n != 20 {
		t.Errorf("approved %d, want 20", n)
	}
	b.in(time.Second)
	b.want("two of four services", 20, 20)
	b.in(time.Second)
	b.want("two of eight are less than the share and stay held", 0, 20)
}

func TestGuard_DenialsStayUntilClaimed(t *testing.T) {
	b := fallen(t, defaults())
	b.guard.Decide(b.now, guard.Denied, b.held())
	b.in(time.Second)
	b.want("denied", 0, 0)
	b.restart()
	for range 3 {
		b.in(time.Hour)
		b.connection++
	}
	b.want("three hours and a restart later", 0, 0)
	b.claimed("s0", 10)
	b.in(time.Second)
	b.set("s0", map[claim]int{claimed: 9, withdrawn: 1})
	b.in(time.Second)
	b.want("claimed again, and withdrawn", 1, 0)
	keys := make([]guard.Key, 10)
	for i := range keys {
		keys[i] = guard.Key{Service: named("s1"), Key: strconv.Itoa(i)}
	}
	b.guard.Decide(b.now, guard.Free, keys)
	b.in(time.Second)
	b.want("approved after all", 10, 0)
}

func TestGuard_Modes(t *testing.T) {
	o := defaults()
	o.Mode = guard.Warn
	b := fallen(t, o)
	b.want("warn", 40, 0)
	if b.round.Warned == nil || len(b.round.Warned.Keys) != 40 {
		t.Errorf("warned of %+v", b.round.Warned)
	}
	b.in(time.Second)
	if b.round.Warned != nil {
		t.Error("warned twice")
	}
	o.Mode = guard.Off
	b = newBench(t, o)
	b.claimed("a", 1)
	b.in(0)
	b.set("a", map[claim]int{withdrawn: 1})
	b.in(time.Second)
	b.want("off", 1, 0)
	b = fallen(t, defaults())
	b.guard.Options.Mode = guard.Off
	b.in(time.Second)
	b.want("a mode that holds nothing ends the hold", 40, 0)
}

func TestGuard_MostOfABridgeNeedsAPerson(t *testing.T) {
	b := settled(t, defaults(), 10, 2)
	b.sets(6, map[claim]int{withdrawn: 2})
	b.in(time.Minute)
	b.want("six of ten", 0, 12)
	b.connection++
	b.in(time.Hour)
	b.want("the source says the same for an hour", 0, 12)
}

func TestGuard_RecordsAreOfLossesAlone(t *testing.T) {
	b := settled(t, defaults(), 100, 10)
	if len(b.saved) != 0 {
		t.Errorf("nothing happens, and %v is recorded", b.saved)
	}
	b.set("s0", map[claim]int{claimed: 9, withdrawn: 1})
	b.in(time.Second)
	if r := b.saved[named("s0")]; len(b.saved) != 1 || len(r.Peaks) != 1 || r.Peaks[0].N != 10 {
		t.Errorf("before a deletion %v is recorded", b.saved)
	}
	b.in(2 * time.Hour)
	if r := b.saved[named("s0")]; !r.Empty() {
		t.Errorf("after the window %v is recorded", r)
	}
}

func TestGuard_WhatTheSourceCouldNotTellOfGoesOnceItsRemovalIsReported(t *testing.T) {
	b := settled(t, defaults(), 1, 4)
	b.set("s0", map[claim]int{claimed: 3, unknown: 1})
	b.in(time.Minute)
	b.want("unknown", 0, 0)
	b.set("s0", map[claim]int{claimed: 3, withdrawn: 1})
	b.in(time.Second)
	b.want("withdrawn", 1, 0)
}

func TestGuard_ARecordStaysAsItWasReported(t *testing.T) {
	b := newBench(t, defaults())
	for _, n := range []int{10, 8, 5} {
		b.claimed("a", n)
		b.in(time.Second)
	}
	for _, n := range []int{9, 7} { // before the guard judges again
		b.claimed("a", n)
		b.observe()
	}
	b.in(time.Second)
	if c := b.round.Changed; len(c) != 1 || len(c[0].Peaks) != 2 || c[0].Peaks[1].N != 9 {
		t.Errorf("after 10, 8, 5, 9 and 7 endpoints %v is to be stored, want 10 and 9", c)
	}
}

func TestGuard_ASmallBridgeMayLoseOneServiceThatIsWithdrawn(t *testing.T) {
	b := newBench(t, defaults())
	for _, s := range []string{"a", "b", "c"} {
		b.claimed(s, 1)
	}
	b.in(0)
	b.set("a", map[claim]int{withdrawn: 1})
	b.in(time.Second)
	b.want("the last endpoint waits", 0, 0)
	b.in(30 * time.Second)
	b.want("and goes", 1, 0)
	b.set("b", map[claim]int{withdrawn: 1})
	b.in(31 * time.Second)
	b.want("a second one within the window", 0, 1)
	b = newBench(t, defaults())
	b.claimed("a", 1)
	b.claimed("b", 1)
	b.in(0)
	b.connection++
	b.set("a", map[claim]int{missing: 1})
	b.in(time.Second)
	b.in(time.Minute)
	b.want("missing after a restart of the source", 0, 1)
}

// newHeldBench returns a bench whose service a holds five missing endpoints of six.
func newHeldBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, defaults())
	b.claimed("a", 6)
	b.in(0)
	b.connection++
	b.set("a", map[claim]int{claimed: 1, missing: 5})
	b.in(time.Second)
	b.in(time.Minute)
	b.want("five of six are missing", 0, 5)
	return b
}

func TestGuard_AHeldServiceLetsOnlyReportedReplacementsGo(t *testing.T) {
	b := newHeldBench(t)
	b.stored["a"] = append(b.stored["a"], endpoint{Key: "new", Claim: claimed})
	b.in(time.Second)
	b.want("one came, and nobody knows which it replaces", 0, 5)
}

func TestGuard_AHeldServiceLetsAReportedReplacementGo(t *testing.T) {
	b := newHeldBench(t)
	b.stored["a"] = append(b.stored["a"], endpoint{Key: "new", Claim: claimed}, endpoint{Key: "newer", Claim: claimed})
	b.in(time.Second)
	b.stored["a"][len(b.stored["a"])-1].Claim = withdrawn
	b.in(time.Second)
	b.want("one of two that came is withdrawn", 1, 5)
}

func TestGuard_NewEndpointsReplaceLeftoversOfAnEarlierProcess(t *testing.T) {
	b := newBench(t, defaults())
	b.claimed("other", 2)
	b.stored["a"] = []endpoint{
		{Key: "old", Claim: missing},
		{Key: "older", Claim: missing},
		{Key: "new", Claim: claimed, New: true},
		{Key: "newer", Claim: claimed, New: true},
	}
	b.in(0)
	b.in(time.Minute)
	b.want("two of two", 2, 0)
}

func TestGuard_WhatIsLeftOfAHoldCountsWhole(t *testing.T) {
	b := settled(t, defaults(), 10, 4)
	b.sets(8, map[claim]int{claimed: 1, withdrawn: 3})
	b.in(time.Second)
	b.want("three of four in eight of ten services", 0, 24)
	b.guard.Decide(b.now, guard.Free, b.held()[:2])
	b.in(time.Second)
	b.want("two of the three in one service are approved", 2, 22)
	b.in(time.Second)
	b.want("the third is half of what is left", 0, 22)
}

func TestGuard_AServiceThatFallsFurtherIsConfirmedLater(t *testing.T) {
	b := settled(t, defaults(), 10, 10)
	b.connection++
	b.sets(10, map[claim]int{claimed: 4, missing: 6})
	b.in(time.Second)
	b.in(time.Minute)
	b.want("six of ten in each service", 0, 60)
	b.in(8 * time.Minute)
	b.connection++
	b.set("s0", map[claim]int{claimed: 3, missing: 7})
	b.in(time.Second)
	b.in(2 * time.Minute)
	b.want("ten minutes later, but for the one that fell", 54, 7)
	b.in(7 * time.Minute)
	b.want("nine minutes after it fell", 0, 7)
}

func TestGuard_AHeldServiceKeepsItsBaseline(t *testing.T) {
	b := newBench(t, defaults())
	b.claimed("a", 40)
	b.claimed("b", 10)
	b.in(0)
	b.set("a", map[claim]int{claimed: 20, withdrawn: 20})
	b.in(time.Second)
	b.want("half of a service", 20, 0)
	b.set("a", map[claim]int{claimed: 10, withdrawn: 10})
	b.in(30 * time.Minute)
	b.want("half of the rest", 0, 10)
	b.in(2 * time.Hour)
	b.want("after the window", 0, 10)
}

func TestGuard_AFewWithdrawnEndpointsMayGo(t *testing.T) {
	b := newBench(t, defaults())
	b.claimed("a", 11)
	b.in(0)
	b.set("a", map[claim]int{claimed: 1, withdrawn: 10})
	b.in(time.Second)
	b.want("ten of eleven", 10, 0)
}

func TestGuard_ASourceThatShowsNothingHasNoBudget(t *testing.T) {
	b := settled(t, defaults(), 10, 1)
	b.sets(9, map[claim]int{withdrawn: 1})
	b.in(time.Second)
	b.guard.Decide(b.now, guard.Denied, b.held())
	b.in(time.Second)
	b.set("s9", map[claim]int{withdrawn: 1})
	b.in(time.Second)
	b.in(time.Minute)
	b.want("the last service beside nine that were denied", 0, 1)
	if b.in(10 * time.Minute); !b.guard.Hold().Person || b.round.Reconnect {
		t.Errorf("hold %+v, a new connection is wanted: %v", b.guard.Hold(), b.round.Reconnect)
	}
}

func TestGuard_ASourceThatShowsNothingHasNoBudgetWhileEndpointsSettle(t *testing.T) {
	b := settled(t, defaults(), 10, 2)
	b.connection++
	b.in(0)
	for i := range 10 { // nothing is claimed any more before the first has settled
		b.set(fmt.Sprint("s", i), map[claim]int{missing: 2})
		b.in(5 * time.Second)
	}
	b.in(10 * time.Second)
	for i := range 10 {
		b.in(5 * time.Second)
		b.want(fmt.Sprint(i+1, " of ten services settled"), 0, 2*(i+1))
	}
}

func TestGuard_AHoldEndsWhenEndpointsComeBack(t *testing.T) {
	b := fallen(t, defaults())
	for i := range 4 {
		b.claimed(fmt.Sprint("s", i), 10)
	}
	b.in(time.Second)
	if b.guard.Hold() != nil || len(b.round.Released) != 4 {
		t.Errorf("hold %+v, released %v", b.guard.Hold(), b.round.Released)
	}
	b.in(time.Second)
	for g, r := range b.saved {
		if !r.Empty() {
			t.Errorf("%s: %v is recorded", g, r)
		}
	}
}

func TestGuard_AStandstillBeginsWaitsAnew(t *testing.T) {
	b := newBench(t, defaults())
	b.claimed("a", 1)
	b.claimed("b", 4)
	b.in(0)
	b.set("a", map[claim]int{withdrawn: 1})
	b.in(time.Second)
	b.guard.Restart(b.now.Add(time.Hour))
	b.in(time.Hour + 29*time.Second)
	b.want("29 s after a standstill of an hour", 0, 0)
	b.in(time.Second)
	b.want("30 s after it", 1, 0)
}

func BenchmarkGuard_OneServiceOfMany(b *testing.B) {
	g := guard.New(defaults(), nil)
	now := time.Unix(1e9, 0)
	for i := range 500 {
		var all []endpoint
		for j := range 20 {
			all = append(all, endpoint{Key: strconv.Itoa(j), Claim: claimed})
		}
		g.Observe(now, named(strconv.Itoa(i)), stored(all))
	}
	one := []endpoint{{Key: "a", Claim: claimed}, {Key: "b", Claim: claimed}, {Key: "c", Claim: withdrawn}}
	for b.Loop() {
		now = now.Add(time.Second)
		g.Observe(now, named("s"), stored(one))
		g.Judge(now, 1)
	}
}
