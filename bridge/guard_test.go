package bridge_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errLost = errors.New("connection to istiod lost")

// with returns the default guard changed.
func with(change func(*bridge.Guard)) bridge.Guard {
	g := bridge.DefaultGuard()
	change(&g)
	return g
}

// timed is the default guard without the rules on how much may go.
func timed() bridge.Guard { return with(func(g *bridge.Guard) { g.Share = 1 }) }

// standard starts a bridge with the default guard and n services of two
// endpoints, long settled.
func standard(t *testing.T, n int) *story {
	t.Helper()
	s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
	return s.has(fleet(n, 2)...).in(10 * time.Minute).holdsN(2 * n)
}

// What gives way to another's entry is claimed, and no loss.
func TestWhatGivesWayIsNoLoss(t *testing.T) {
	registered := func(t *testing.T, all, themselves int) *story {
		t.Helper()
		s := standard(t, all)
		for _, sv := range fleet(themselves, 2) {
			for _, e := range sv.Endpoints {
				h := theirs(string(sv.Name), e.Address())
				h.Owner = "" // who has no mark comes before any owner
				s.target.Set(h)
			}
		}
		if err := s.loop.Resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.in(10 * time.Minute).holdsN(2 * all)
	}
	stories(t, map[string]func(*testing.T){
		"four of ten services register themselves, and a fifth ends": func(t *testing.T) {
			registered(t, 10, 4).loses(9, 1).in(2 * time.Minute).noHold().holdsN(18)
		},
		"three of four register themselves, and the fourth ends": func(t *testing.T) {
			s := registered(t, 4, 3).in(3 * time.Hour)
			s.loses(3, 1).in(2 * time.Minute).noHold().holdsN(6)
		},
	})
}

func TestIgnorance(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"nothing is deleted before the source is synced, whatever the mode": func(t *testing.T) {
			for _, mode := range []bridge.Mode{bridge.GuardEnforce, bridge.GuardWarn, bridge.GuardOff} {
				s := newStory(t).bridge("b", bridge.Guard{Mode: mode}).holding(mine("gone", "10.0.0.8:80"), mine("a", "10.0.0.1:80")).starts()
				s.table().Put(service("a", "10.0.0.1:80", "10.0.0.2:80"))
				s.in(time.Second)
				s.table().Put(service("a", "10.0.0.2:80"))
				s.in(time.Hour).holds("a 10.0.0.1:80", "a 10.0.0.2:80", "gone 10.0.0.8:80").reason("a", bridge.ReasonUnknown, "not reported everything")
				s.has(service("a", "10.0.0.2:80")).in(time.Second).holds("a 10.0.0.2:80")
				s.stop()
			}
		},
		"nothing is deleted while the source is stale, but what is new is written": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.Guard{Mode: bridge.GuardOff}).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Second)
			s.table().Stale(errLost)
			s.table().Put(service("a", "10.0.0.3:80"))
			s.in(time.Hour).holds("a 10.0.0.1:80", "a 10.0.0.2:80", "a 10.0.0.3:80").reason("a", bridge.ReasonUnknown, "istiod lost")
			if st := s.status(); st.Bridges[0].Stale == "" || st.Bridges[0].Guard != bridge.GuardOff {
				t.Errorf("%+v", st.Bridges)
			}
			s.table().Stale(nil)
			s.in(time.Second).holds("a 10.0.0.3:80")
		},
		"what is unknown freezes itself and nothing else": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("team-x/a", "10.0.0.1:80"), service("team-y/a", "10.0.0.2:80")).in(time.Second)
			s.table().Unknown("team-x/*", errors.New("access denied"))
			s.table().Delete("team-x/a")
			s.table().Delete("team-y/a")
			s.in(time.Hour).holds("team-x/a 10.0.0.1:80").reason("team-x/a", bridge.ReasonUnknown, "access denied")
			if got := s.status().Bridges[0].Unknown["team-x/*"]; got != "access denied" {
				t.Errorf("scope shown as %q", got)
			}
			s.table().Unknown("team-x/*", nil)
			s.in(time.Second).holds()
		},
		"what a service may have left that cannot be projected stays, after a restart too": func(t *testing.T) {
			s := standard(t, 10)
			bad := fleet(10, 2)
			bad[3].Attributes = registry.Attributes{"bad": "no such interface"}
			s.has(bad...).in(time.Hour).holdsN(20)
			s.stop()
			next := newStory(t).bridge("b", bridge.DefaultGuard())
			next.target = s.target
			next.starts().has(bad...).in(time.Hour).holdsN(20).reason("s3", bridge.ReasonInvalid, "no such interface")
			next.has(slices.Delete(bad, 3, 4)...).in(time.Hour).holdsN(18)
		},
		"a leftover of unknown origin waits for every bridge and every scope": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).bridge("c", speed).holding(mine("old", "10.0.0.8:80")).starts()
			s.has().in(time.Hour).holds("old 10.0.0.8:80")
			s.tables["c"].Unknown("x", errDown)
			s.tables["c"].Replace(slices.Values([]*registry.Service{}))
			s.in(time.Hour).holds("old 10.0.0.8:80")
			s.table().Stale(errLost) // first: at no moment is everything known
			s.tables["c"].Unknown("x", nil)
			s.in(time.Hour).holds("old 10.0.0.8:80")
			s.table().Stale(nil)
			s.in(time.Second).holds()
		},
		"the deletions of one bridge do not wait for the source of another": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).bridge("c", speed).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Second)
			s.table().Delete("a")
			s.in(time.Second).holds()
		},
		"istiod restarts and answers in halves": func(t *testing.T) {
			s := standard(t, 10)
			s.table().Stale(errLost)
			s.in(20 * time.Second).has().in(40 * time.Second).holdsN(20)
			s.has(fleet(4, 2)...).in(10 * time.Second).holdsN(20)
			s.has(fleet(10, 2)...).in(time.Hour).holdsN(20).noHold()
			if c := s.target.Counts(); c.Deleted != 0 {
				t.Errorf("%+v", c)
			}
		},
	})
}

func TestWithdrawals(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"the last endpoints of a service wait, then go": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.3:80")).in(time.Second)
			s.table().Put(service("a"))
			s.table().Delete("b")
			s.in(29*time.Second).holds("a 10.0.0.1:80", "a 10.0.0.2:80", "b 10.0.0.3:80")
			s.reason("a", bridge.ReasonWaiting, "last endpoint").reason("b", bridge.ReasonWaiting, "last endpoint")
			s.in(time.Second).holds().reason("a", bridge.ReasonEmpty, "no offered endpoint")
		},
		"a new group that another writer races for has no wait looked at again and again": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).starts()
			s.has(service("a", "10.0.0.1:80"), service("b", "10.0.0.1:80")).in(time.Minute)
			s.table().Delete("a")
			s.in(28 * time.Second)
			s.fail(func(op memory.Op, g registry.Group) error {
				if op == memory.OpWrite && g == group("new") {
					return registry.ErrConflict
				}
				return nil
			})
			for i := range 8 { // it is touched while it waits
				s.table().Put(service("new", fmt.Sprintf("10.0.0.%d:80", i+1)))
				s.in(500 * time.Millisecond)
			}
			s.fail(nil)
			s.in(time.Minute).holds("b 10.0.0.1:80", "new 10.0.0.8:80")
		},
		"the last endpoint stays while the source is stale": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Second)
			s.table().Delete("a")
			s.in(20 * time.Second).table().Stale(errLost)
			s.in(time.Hour).holds("a 10.0.0.1:80").reason("a", bridge.ReasonUnknown, "lost")
			s.has().in(29 * time.Second).holds("a 10.0.0.1:80") // from the start
			s.in(2 * time.Second).holds()
		},
		"with the guard at zero everything goes at once": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(fleet(50, 2)...).in(time.Second)
			s.loses(0, 50)
			s.in(0).holds()
		},
		"removals during a gap of the connection are found and settle": func(t *testing.T) {
			s := standard(t, 10)
			s.table().Stale(errLost)
			s.in(time.Minute).has(fleet(9, 2)...).in(59 * time.Second).holdsN(20)
			s.reason("s9", bridge.ReasonWaiting, "what is missing settles for 1m0s")
			s.in(2 * time.Second).holdsN(18)
			if s.of("s9").Service != "" {
				t.Error("a service that is gone is still shown")
			}
		},
		"a leftover of an earlier run goes a minute after the source was complete": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).holding(mine("gone", "10.0.0.8:80"), theirs("gone", "10.0.0.9:80")).starts()
			s.in(time.Hour).has(service("a", "10.0.0.1:80")).in(59*time.Second).holds("a 10.0.0.1:80", "gone 10.0.0.8:80", "gone 10.0.0.9:80")
			s.in(2*time.Second).holds("a 10.0.0.1:80", "gone 10.0.0.9:80")
		},
		"settling starts anew when the source could not report the service": func(t *testing.T) {
			s := standard(t, 10)
			s.has(fleet(9, 2)...).in(50 * time.Second)
			s.table().Unknown("s9", errDown)
			s.in(10*time.Minute).holdsN(20).reason("s9", bridge.ReasonUnknown, "the source cannot report: down")
			s.table().Unknown("s9", nil)
			s.in(59 * time.Second).holdsN(20).in(2 * time.Second).holdsN(18)
		},
		"a source that reports everything every five seconds does not keep leftovers for ever": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).holding(mine("gone", "10.0.0.8:80")).starts()
			for range 12 {
				s.has().in(5 * time.Second)
			}
			s.in(time.Second).holds()
		},
		"a leftover is deleted by a reading of that moment": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).holding(mine("gone", "10.0.0.8:80")).starts()
			s.has().in(61 * time.Second).holds()
			if r := s.when("read", "gone"); len(r) != 2 || r[1] != time.Minute {
				t.Errorf("read at %v", r)
			}
		},
		"a change of all values is no removal": func(t *testing.T) {
			s := standard(t, 10)
			next := fleet(10, 2)
			for _, sv := range next {
				for i := range sv.Endpoints {
					sv.Endpoints[i].Weight = 9
				}
			}
			s.has(next...).in(time.Second).noHold()
			if c := s.target.Counts(); c.Deleted != 0 || c.Put != 40 {
				t.Errorf("%+v", c)
			}
		},
	})
}

func TestShare(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a mass deletion is held and reported": func(t *testing.T) {
			s := standard(t, 20)
			s.loses(0, 10)
			s.in(time.Hour).holdsN(40)
			h := s.hold()
			if h.Bridge != "b" || len(h.Groups) != 10 || len(h.Entries) != 20 || h.ID == "" {
				t.Errorf("%+v", h)
			}
			if h.Reason != "10 of 20 services would have no endpoint left" || h.Release == "" {
				t.Errorf("%+v", h)
			}
			s.reason("s0", bridge.ReasonHeld, "10 of 20").reason("s15", bridge.ReasonSynced, "")
			if s.count(bridge.ObservedHold, "") != 20 {
				t.Error("the hold was not observed once")
			}
		},
		"what is held once it has settled says so": func(t *testing.T) {
			s := standard(t, 10)
			s.table().Stale(errLost)
			s.in(time.Minute).has(fleet(4, 2)...).in(59*time.Second).reason("s9", bridge.ReasonWaiting, "what is missing settles for 1m0s")
			s.in(2*time.Second).reason("s9", bridge.ReasonHeld, "6 of 10").holdsN(20)
		},
		"a hold ends when the source shows the services again": func(t *testing.T) {
			s := standard(t, 20)
			s.has().in(2 * time.Minute)
			s.hold()
			s.has(fleet(20, 2)...).in(time.Second).noHold().holdsN(40)
			if n := strings.Count(s.log.String(), "hold ended"); n != 1 || s.target.Counts().Deleted != 0 {
				t.Errorf("its end was logged %d times, and %+v", n, s.target.Counts())
			}
		},
		"what a reading does not show any more may not": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts().has(fleet(1, 11)...).in(time.Minute)
			s.has(fleet(1, 1)...).in(time.Hour).holdsN(11)
			if h := s.hold(); h.Reason != "10 of 11 endpoints would be gone within 1h0m0s" {
				t.Errorf("%+v", h)
			}
		},
		"an endpoint that flaps is one entry, and others' removals continue": func(t *testing.T) {
			s := standard(t, 20)
			for range 60 { // for ten minutes, damped by nothing
				s.table().Put(service("s0", "10.0.0.1:80"))
				s.in(5 * time.Second).noHold().holdsN(39)
				s.table().Put(fleet(20, 2)[0])
				s.in(5 * time.Second).noHold().holdsN(40)
			}
			s.loses(5, 5).in(time.Minute).noHold().holdsN(30)
			s.table().Put(service("s0", "10.0.0.1:80"))
			s.in(time.Second).noHold().holdsN(29)
		},
		"one hold does not hold what comes later": func(t *testing.T) {
			s := standard(t, 20)
			s.loses(0, 10)
			s.in(time.Minute)
			id := s.hold().ID
			s.table().Put(service("s15", "10.0.15.1:80"))
			s.in(time.Second).holdsN(39)
			if h := s.hold(); h.ID != id {
				t.Errorf("the set of the hold changed: %+v", h)
			}
		},
		"mode warn deletes, reports what it would have held, and shows no hold": func(t *testing.T) {
			s := newStory(t).bridge("b", with(func(g *bridge.Guard) { g.Mode = bridge.GuardWarn })).starts()
			s.has(fleet(20, 2)...).in(time.Second)
			s.loses(0, 20)
			s.in(time.Minute).holdsN(0).noHold()
			if log := s.log.String(); !strings.Contains(log, "mode=warn") || !strings.Contains(log, `ends="at once: guard.mode is warn"`) {
				t.Errorf("the log says\n%s", log)
			}
			if n := s.count(bridge.ObservedHold, ""); n != 40 {
				t.Errorf("%d deletions were observed, want 40", n)
			}
		},
	})
}

func TestPolicies(t *testing.T) {
	act := func(t *testing.T, policy bridge.Policy) *story {
		t.Helper()
		s := newStory(t).bridge("b", speed).holding(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.2:80"), mine("old", "10.0.0.3:80"))
		s.bridges[0].Policy = policy
		s.starts().has(service("a", "10.0.0.1:80*7", "10.0.0.4:80"), service("n", "10.0.0.5:80"))
		return s.in(time.Minute)
	}
	value := func(s *story) string { return s.target.Entries()[0].Value }
	stories(t, map[string]func(*testing.T){
		"sync": func(t *testing.T) {
			s := act(t, bridge.PolicySync).holds("a 10.0.0.1:80", "a 10.0.0.4:80", "n 10.0.0.5:80")
			if value(s) != `{"weight":7}` {
				t.Error(value(s))
			}
		},
		"upsert-only deletes nothing": func(t *testing.T) {
			s := act(t, bridge.PolicyUpsertOnly).holds("a 10.0.0.1:80", "a 10.0.0.2:80", "a 10.0.0.4:80", "n 10.0.0.5:80", "old 10.0.0.3:80")
			if value(s) != `{"weight":7}` {
				t.Error(value(s))
			}
			s.table().Delete("n")
			s.in(time.Minute).holdsN(5).reason("n", bridge.ReasonReadOnly, "upsert-only keeps").noHold()
		},
		"create-only updates and deletes nothing": func(t *testing.T) {
			s := act(t, bridge.PolicyCreateOnly).holds("a 10.0.0.1:80", "a 10.0.0.2:80", "a 10.0.0.4:80", "n 10.0.0.5:80", "old 10.0.0.3:80")
			if value(s) != `{"weight":0}` {
				t.Error(value(s))
			}
			s.reason("a", bridge.ReasonReadOnly, "create-only forbids the write")
		},
		"read-only writes nothing": func(t *testing.T) {
			s := act(t, bridge.PolicyReadOnly).holds("a 10.0.0.1:80", "a 10.0.0.2:80", "old 10.0.0.3:80").reason("n", bridge.ReasonReadOnly, "read-only")
			if s.writes() != 0 {
				t.Errorf("%d writes", s.writes())
			}
		},
		"a leftover stays if any bridge could have kept it": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).bridge("c", speed).holding(mine("old", "10.0.0.3:80"))
			s.bridges[1].Policy = bridge.PolicyUpsertOnly
			s.starts().has()
			s.tables["c"].Replace(slices.Values([]*registry.Service{}))
			s.in(time.Hour).holds("old 10.0.0.3:80")
		},
	})
}

func TestEntriesOfABridgeThatIsGone(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"they are held under its name until a person approves, and count for no other": func(t *testing.T) {
			hours(t)
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.opts.Author = func(e registry.Entry) string {
				if strings.HasPrefix(e.Group.Name, "gone") {
					return "gone"
				}
				return "b"
			}
			s.holding(mine("gone1", "10.0.0.1:80"), mine("gone2", "10.0.0.1:80"), mine("gone3", "10.0.0.1:80"), mine("old", "10.0.0.1:80"))
			s.starts().has(fleet(4, 1)...).in(24 * time.Hour).holdsN(7) // what the bridge itself left is gone
			h := s.hold()
			if h.Bridge != "gone" || len(h.Entries) != 3 || h.Reason != "bridge gone is not configured" {
				t.Errorf("%+v", h)
			}
			s.approves(h.ID, "ann")
			s.in(time.Minute).holdsN(4).noHold()
		},
		"each bridge's guard counts for what it wrote": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.Guard{Mode: bridge.GuardOff}).bridge("c", bridge.DefaultGuard())
			s.opts.Author = func(e registry.Entry) string { return e.Group.Name[:1] }
			for i := range 20 {
				s.holding(mine(fmt.Sprint("b", i), "10.0.0.1:80"), mine(fmt.Sprint("c", i), "10.0.0.1:80"))
			}
			s.starts().has()
			s.tables["c"].Replace(slices.Values([]*registry.Service{}))
			s.in(time.Hour).holdsN(20)
			if h := s.hold(); h.Bridge != "c" || len(h.Entries) != 20 {
				t.Errorf("%+v", h)
			}
		},
		"while a source cannot report, another may have taken its services over": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.opts.Author = func(registry.Entry) string { return "gone" }
			s.holding(mine("gone1", "10.0.0.1:80")).starts().has(fleet(2, 1)...)
			s.table().Unknown("x", errDown)
			s.in(time.Hour).holdsN(3).noHold()
			s.table().Unknown("x", nil)
			s.in(time.Hour).holdsN(3)
			if h := s.hold(); h.Bridge != "gone" {
				t.Errorf("%+v", h)
			}
		},
		"while another replica may claim them those of services stay that nobody here claims, and no dead address beside": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.Guard{Settle: time.Minute})
			var differ atomic.Bool
			differ.Store(true)
			s.opts.Differ = func() string {
				if differ.Load() {
					return "replica x is configured otherwise"
				}
				return ""
			}
			s.holding(mine("theirs", "10.0.0.1:80"), mine("c", "10.0.0.9:80")).starts().has(service("c", "10.0.0.1:80"), service("d", "10.0.0.1:80")).in(time.Hour)
			s.holds("c 10.0.0.1:80", "d 10.0.0.1:80", "theirs 10.0.0.1:80")
			if st := s.status(); len(st.Kept) != 1 || st.Kept[0].Why != "replica x is configured otherwise" {
				t.Errorf("%+v", st.Kept)
			}
			s.table().Delete("d")
			s.in(time.Hour).holds("c 10.0.0.1:80", "theirs 10.0.0.1:80") // what is withdrawn goes
			differ.Store(false)
			if err := s.loop.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.in(2 * time.Minute).holds("c 10.0.0.1:80")
		},
	})
}
