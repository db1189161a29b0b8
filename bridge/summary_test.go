package bridge_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// many returns a story of n services, of which the source cannot report some.
func many(t *testing.T, n, unknown int) *story {
	t.Helper()
	s := newStory(t).bridge("b", bridge.DefaultGuard())
	s.starts()
	all := fleet(n, 1)
	for _, x := range all[:unknown] {
		s.table().Unknown(string(x.Name), errDown)
	}
	return s.has(all...).in(10 * time.Minute)
}

func TestSummary(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"counts services by reason as things change": func(t *testing.T) {
			s := many(t, 10, 4)
			expect := func(want map[bridge.Reason]int, queue, owned int) {
				t.Helper()
				s.in(time.Second)
				got := s.loop.Summary()
				if b := got.Bridges[0]; fmt.Sprint(b.Reasons) != fmt.Sprint(want) || b.Services != 10 || got.Queue != queue || got.Owned != owned {
					t.Errorf("%+v, want %v", got, want)
				}
				if got.Services != nil || got.Bridges[0].Unknown != nil {
					t.Error("lists services or scopes")
				}
			}
			expect(map[bridge.Reason]int{bridge.ReasonSynced: 6, bridge.ReasonUnknown: 4}, 0, 10)
			s.table().Unknown("s0", nil)
			s.table().Unknown("s1*", errDown)
			expect(map[bridge.Reason]int{bridge.ReasonSynced: 7, bridge.ReasonUnknown: 3}, 0, 10)
			s.table().Unknown("s1*", nil)
			s.table().Put(service("s9"))
			expect(map[bridge.Reason]int{bridge.ReasonSynced: 6, bridge.ReasonUnknown: 3, bridge.ReasonWaiting: 1}, 0, 10)
			if s.loop.Summary().Bridges[0].Scopes != 3 {
				t.Error("does not count unknown scopes")
			}
		},
		"is there before the loop runs": func(t *testing.T) {
			loop, err := bridge.New(many(t, 1, 0).target, []bridge.Bridge{{Name: "b", Table: registry.NewTable(), Project: perService}},
				bridge.Options{Owner: "me", Target: "zk"})
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range []bridge.Status{loop.Summary(), loop.Status()} {
				if got.Target != "zk" || got.Owner != "me" || got.Listed || got.InSync() || len(got.Services) != 0 {
					t.Errorf("%+v", got)
				}
			}
		},
		"waits for no loop that is busy, and tells for how long something has been due": func(t *testing.T) {
			busy := make(chan struct{})
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.bridges[0].Project = func(sv *registry.Service) ([]registry.Entry, error) {
				if sv.Name == "slow" {
					<-busy
				}
				return perService(sv)
			}
			s.starts().has(fleet(3, 1)...).in(time.Minute)
			s.table().Put(service("slow", "10.0.0.1:80"))
			synctest.Wait()
			if got := s.loop.Summary(); got.Counts.Services != 3 || !got.InSync() {
				t.Errorf("%+v", got)
			}
			close(busy)
			s.in(time.Second)
			if got := s.loop.Summary(); got.Counts.Services != 4 {
				t.Errorf("%+v", got)
			}
		},
		"counts holds and conflicts": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.holding(theirs("s3", "10.0.3.1:80"))
			s.starts().has(fleet(40, 1)...).in(10 * time.Minute)
			s.loses(10, 20).in(time.Minute)
			if c := s.loop.Summary().Counts; c.Holds != 1 || c.Conflicts != 1 || time.Since(c.HeldSince) < 30*time.Second {
				t.Errorf("%+v", c)
			}
		},
	})
}

// What a scrape reads costs the same for few services and for many, and
// for those that cannot be known.
func TestSummaryCostsTheSameForMany(t *testing.T) {
	costs := make([]float64, 0, 2)
	for _, n := range []int{10, 2000} {
		synctest.Test(t, func(t *testing.T) {
			s := many(t, n, n/2)
			costs = append(costs, testing.AllocsPerRun(100, func() { s.loop.Summary() }))
		})
	}
	if costs[0] != costs[1] {
		t.Errorf("allocations of 10 and of 2000 services: %v", costs)
	}
}

func TestServices(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"in the order of bridges and names, each once": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).bridge("a", bridge.DefaultGuard()).starts()
			s.has(fleet(5, 1)...).in(time.Second)
			s.tables["a"].Replace(slices.Values(fleet(2, 1)))
			s.in(time.Second)
			var got []string
			for _, sv := range s.status().Services {
				got = append(got, sv.Bridge+"/"+string(sv.Service))
			}
			if want := []string{"a/s0", "a/s1", "b/s0", "b/s1", "b/s2", "b/s3", "b/s4"}; !slices.Equal(got, want) {
				t.Errorf("got %v", got)
			}
		},
		"as they were last, of a loop that has stopped": func(t *testing.T) {
			s := many(t, 3, 0)
			s.stop()
			if st := s.loop.Status(); len(st.Services) != 3 || !st.InSync() {
				t.Errorf("%+v", st)
			}
		},
	})
}

func called(name string) func(registry.Group) bool {
	return func(g registry.Group) bool { return g.Name == name || g.String() == name }
}

func TestFind(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a service, who shares its group, and what is in the way there": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.holding(theirs("app", "10.0.0.9:80"), theirs("else", "10.0.0.8:80"))
			one, two, three := service("one", "10.0.0.1:80"), service("two", "10.0.0.9:80"), service("else", "10.0.0.8:80")
			one.Application, two.Application = "app", "app"
			s.starts().has(one, two, three).in(time.Minute)
			for query, names := range map[string]map[registry.Name]bool{"one": {"one": true}, "app": nil, group("app").String(): nil} {
				st := s.loop.Status().Find(names, called(query))
				if len(st.Services) != 2 || st.Services[1].Reason != bridge.ReasonConflict || len(st.Conflicts) != 1 || len(st.Holds) != 0 {
					t.Errorf("%s: %+v", query, st)
				}
			}
			if st := s.loop.Status().Find(map[registry.Name]bool{"none": true}, called("none")); len(st.Services)+len(st.Conflicts) != 0 {
				t.Errorf("%+v", st)
			}
		},
		"what a service left behind that is gone, and what holds it": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(fleet(40, 1)...).in(10 * time.Minute)
			s.loses(10, 20).in(time.Minute)
			st := s.loop.Status().Find(map[registry.Name]bool{"s12": true}, called("s12"))
			if len(st.Services) != 1 || st.Services[0].Reason != bridge.ReasonHeld || len(st.Holds) != 1 {
				t.Errorf("%+v", st)
			}
		},
	})
}
