package bridge_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// many begins with n services, some of which the source cannot report.
func (s *story) many(n, unknown int) *story {
	all := fleet(n, 1)
	s.starts()
	for _, x := range all[:unknown] {
		s.unknown(string(x.Name), errDown)
	}
	return s.has(all...).in(10 * time.Minute)
}

func TestLoop_Summary(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"counts services by reason": func(s *story) {
			expect := func(want map[bridge.Reason]int) {
				s.Helper()
				got := s.in(time.Second).loop.Summary()
				s.is("reasons", got.Bridges[0].Reasons, want)
				s.is("services, queue, owned", []int{got.Bridges[0].Services, got.Queue, got.Owned}, []int{10, 0, 10})
				s.is("lists", []bool{got.Services == nil, got.Bridges[0].Unknown == nil}, []bool{true, true})
			}
			s.many(10, 4)
			expect(map[bridge.Reason]int{bridge.ReasonSynced: 6, bridge.ReasonUnknown: 4})
			s.unknown("s0", nil).unknown("s1*", errDown)
			expect(map[bridge.Reason]int{bridge.ReasonSynced: 7, bridge.ReasonUnknown: 3})
			s.unknown("s1*", nil).put(service("s9"))
			expect(map[bridge.Reason]int{bridge.ReasonSynced: 6, bridge.ReasonUnknown: 3, bridge.ReasonWaiting: 1})
			s.is("scopes", s.loop.Summary().Bridges[0].Scopes, 3)
		},
		"is there before the loop runs": func(s *story) {
			loop := s.storing().new(s.target)
			for _, got := range []bridge.Status{loop.Summary(), loop.Status()} {
				s.is("status", []any{got.Target, got.Owner, got.Listed, got.InSync(), len(got.Services)}, []any{"memory", "me", false, false, 0})
			}
		},
		"waits for no loop that is busy": func(s *story) {
			s.has(fleet(3, 1)...).in(time.Minute).put(with(service("slow", "10.0.0.1:80"), "pause", "1m")).in(0)
			got := s.loop.Summary()
			s.is("services and in sync", []any{got.Counts.Services, got.InSync()}, []any{3, true})
			s.in(2*time.Minute).is("services", s.loop.Summary().Counts.Services, 4)
		},
		"counts holds and conflicts": func(s *story) {
			s.storing(theirs("s3", "10.0.3.1:80")).has(fleet(40, 1)...).in(10*time.Minute).loses(10, 20).in(time.Minute)
			c := s.loop.Summary().Counts
			s.is("holds and conflicts", []int{c.Holds, c.Conflicts}, []int{1, 1})
			s.between("seconds held", int(time.Since(c.HeldSince).Seconds()), 30, 60)
		},
	})
}

// TestLoop_SummaryCosts shows that a scrape costs the same for few services and for many,
// and for those that the source cannot report.
func TestLoop_SummaryCosts(t *testing.T) {
	costs := make([]float64, 0, 2)
	for _, n := range []int{10, 2000} {
		synctest.Test(t, func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).many(n, n/2)
			costs = append(costs, testing.AllocsPerRun(100, func() { s.loop.Summary() }))
		})
	}
	if costs[0] != costs[1] {
		t.Errorf("allocations of Summary() of 10 and of 2000 services = %v, want the same", costs)
	}
}

func TestLoop_Status(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"services in the order of bridges and names": func(s *story) {
			s.bridge("a", bridge.DefaultGuard()).has(fleet(5, 1)...).in(time.Second).also("a", fleet(2, 1)...).in(time.Second)
			var got []string
			for _, sv := range s.status().Services {
				got = append(got, sv.Bridge+"/"+string(sv.Service))
			}
			s.is("Services", got, []string{"a/s0", "a/s1", "b/s0", "b/s1", "b/s2", "b/s3", "b/s4"}).stop()
			st := s.loop.Status() // as it was last
			s.is("services and in sync", []any{len(st.Services), st.InSync()}, []any{7, true})
		},
		"finds who shares a group": func(s *story) {
			one, two, other := service("one", "10.0.0.1:80"), service("two", "10.0.0.9:80"), service("else", "10.0.0.8:80")
			one.Application, two.Application = "app", "app"
			s.storing(theirs("app", "10.0.0.9:80"), theirs("else", "10.0.0.8:80")).has(one, two, other).in(time.Minute)
			s.logged(`msg="claim refused"`, 1) // of two
			for query, names := range map[string]map[registry.Name]bool{"one": {"one": true}, "app": nil, group("app").String(): nil} {
				st := s.loop.Status().Find(names, called(query))
				s.is("Find("+query+")", []int{len(st.Services), len(st.Conflicts), len(st.Holds)}, []int{2, 1, 0})
				s.is("second", st.Services[1].Reason, bridge.ReasonConflict)
			}
			st := s.loop.Status().Find(map[registry.Name]bool{"none": true}, called("none"))
			s.is("Find(none)", len(st.Services)+len(st.Conflicts), 0)
		},
		"finds what holds a service that is gone": func(s *story) {
			s.has(fleet(40, 1)...).in(10*time.Minute).loses(10, 20).in(time.Minute)
			st := s.loop.Status().Find(map[registry.Name]bool{"s12": true}, called("s12"))
			s.is("services and holds", []int{len(st.Services), len(st.Holds)}, []int{1, 1}).is("reason", st.Services[0].Reason, bridge.ReasonHeld)
			s.is("left", st.Services[0].Left, []string{group("s12").String() + " 10.0.12.1:80"})
		},
		"says what a service lacks if there is nothing to write": func(s *story) {
			s.has(service("b"), service("a"), service("c")).in(time.Second)
			s.is("nothing", s.status().Bridges[0].Nothing, "a: no offered endpoint")
			s.put(service("b", "10.0.0.1:80")).in(time.Second).is("nothing", s.status().Bridges[0].Nothing, "")
		},
		"says what stays and until when": func(s *story) {
			s.storing(append(stored(fleet(20, 1)...), mine("old", "10.9.9.9:80"), mine("older", "10.9.9.8:80"))...).has(append(fleet(20, 1), service("a", "10.0.0.1:80", "10.0.0.2:80"))...).in(10 * time.Second)
			until := s.begin.Add(time.Minute)
			st := s.loop.Status().Find(nil, called("old"))
			s.is("kept", st.Kept, []bridge.Kept{{
				Why: "not reported by its source; settling for 1m0s", Entries: 1, Groups: []registry.Group{group("old")}, Keys: []string{group("old").String() + " 10.9.9.9:80"}, Until: until,
			}})
			s.in(10*time.Minute).is("kept", s.status().Kept == nil, true)
			since := time.Now()
			s.has(append(fleet(20, 1), service("a", "10.0.0.1:80"))...).in(2 * time.Second)
			s.is("left", s.of("a").Left, []string{group("a").String() + " 10.0.0.2:80"}).is("until", s.of("a").Until, since.Add(time.Minute))
			s.in(time.Minute).is("left", s.of("a").Left == nil, true).is("until", s.of("a").Until, time.Time{})
		},
	})
}

// TestLoop_AppliedEvents shows that each batch names the written entries, for which service,
// why, and their values before.
func TestLoop_AppliedEvents(t *testing.T) {
	applied := func(s *story, changes int) bridge.Event { // the last one
		s.Helper()
		list := s.emitted(bridge.EventApplied)
		e := list[len(list)-1]
		s.is("event", []any{e.Target, e.Time.IsZero(), len(e.Changes)}, []any{"memory", false, changes})
		return e
	}
	stories(t, speed, map[string]func(*story){
		"created, updated, deleted": func(s *story) {
			e := applied(s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Second), 2)
			s.is("event", []string{e.Bridge, e.Subject, e.What}, []string{"b", group("a").String(), "entries: 2 created, 0 updated, 0 deleted"})
			created := bridge.EntryChange{
				Op: "create", Key: "10.0.0.1:80", Bridge: "b", Service: "a", Cause: "its service reports it", After: `{"weight":0}`,
			}
			s.is("created", e.Changes[0], created)
			e = applied(s.in(time.Minute).has(service("a", "10.0.0.1:80*7")).in(time.Minute), 2)
			d, u := e.Changes[0], e.Changes[1]
			s.is("deleted", []string{d.Op, d.Key, d.Before, d.After}, []string{"delete", "10.0.0.2:80", `{"weight":0}`, ""})
			s.says("cause", d.Cause, "full reads of its source have not shown it since 2")
			s.is("updated", []string{u.Op, u.Before, u.After}, []string{"update", `{"weight":0}`, `{"weight":7}`})
		},
		"an orphan of an earlier process": func(s *story) {
			e := applied(s.storing(mine("old", "10.0.0.9:80")).has().in(time.Hour), 1)
			s.is("deleted", []string{e.Changes[0].Op, e.Changes[0].Cause}, []string{"delete", "no bridge has claimed it since the start"})
		},
		"of a large batch the deletions": func(s *story) {
			applied(s.has(fleet(1, 30)...).in(time.Minute), 10)
			list := s.has(service("s0", "10.0.9.9:80")).in(time.Minute).emitted(bridge.EventApplied)
			if !slices.ContainsFunc(list, func(e bridge.Event) bool {
				return strings.HasSuffix(e.What, "30 deleted") && len(e.Changes) == 10 && e.Changes[9].Op == "delete"
			}) {
				s.Errorf("events = %+v, want one of 30 deletions that lists ten", list)
			}
		},
	})
}
