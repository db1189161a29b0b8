package bridge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// before returns one of our entries as it was before a change.
func before(g, addr string) registry.Stored {
	h := mine(g, addr)
	h.Value = `{"weight":9}`
	return h
}

// TestWrite_Overlap: the target keeps replaced entries for three seconds, because consumers
// of some formats have no provider if an entry is replaced at once.
func TestWrite_Overlap(t *testing.T) {
	overlaps := func(s *story) *story {
		s.target = newFake(memory.Options{Overlap: 3 * time.Second})
		return s
	}
	replaces := func(s *story) *story { // a weight, a second ago
		return overlaps(s).has(service("a", "10.0.0.1:80*1")).in(10 * time.Minute).weighs(1).put(service("a", "10.0.0.1:80*2")).in(time.Second)
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a replaced entry is kept for a while": func(s *story) {
			replaces(s).in(time.Second).weighs(1, 2).reason("a", bridge.ReasonSynced, "").noHold()
			s.in(2*time.Second).weighs(2).reason("a", bridge.ReasonSynced, "").is("writes", s.writes(), 3)
		},
		"an entry that an earlier process replaced is not a loss": func(s *story) {
			overlaps(s)
			var services []*registry.Service
			for i := range 40 {
				name, addr := fmt.Sprint("s", i), fmt.Sprintf("10.0.0.%d:80", i)
				s.storing(mine(name, addr), before(name, addr))
				services = append(services, service(name, addr))
			}
			s.has(services...).in(2*time.Second).storesN(80).in(3*time.Second).storesN(40).noHold().wrote(0, 40)
			s.is("drift and conflicts", s.count(bridge.ObservedDrift, "")+s.count(bridge.ObservedConflict, ""), 0)
		},
		"an entry that was replaced before the source is known": func(s *story) {
			overlaps(s).storing(mine("a", "10.0.0.1:80"), before("a", "10.0.0.1:80")).starts().in(time.Hour).storesN(2)
		},
		"a value that comes back meanwhile": func(s *story) {
			replaces(s).in(time.Second).weighs(1, 2).put(service("a", "10.0.0.1:80*1"))
			s.in(2*time.Second).weighs(1, 2) // what has been there for two seconds may be all that a consumer knows
			s.in(2*time.Second).weighs(1).wrote(2, 1)
		},
		"an endpoint that goes meanwhile": func(s *story) {
			others := []*registry.Service{service("b", "10.0.1.1:80", "10.0.1.2:80"), service("c", "10.0.2.1:80"), service("d", "10.0.3.1:80")}
			overlaps(s).has(append(others, service("a", "10.0.0.1:80*1"))...).in(2 * time.Hour).put(service("a", "10.0.0.1:80*2"))
			s.in(time.Second).storesN(6).delete("a").in(20*time.Second).storesN(6).reason("a", bridge.ReasonWaiting, "the last endpoint of its service; waits for guard.lastEndpoint")
			s.in(20 * time.Second).storesN(4).noHold()
		},
		"one that changes all the time has few": func(s *story) {
			overlaps(s).has(service("a", "10.0.0.1:80*1")).in(10 * time.Minute)
			for i := range 300 {
				s.put(service("a", fmt.Sprint("10.0.0.1:80*", i+2))).in(200 * ms)
				s.between("entries", len(s.target.Entries()), 1, map[bool]int{true: 15, false: 5}[i <= 50]) // ten writes may be made in advance
			}
			s.in(4 * time.Second).weighs(301)
		},
		"a replica that took over in between": func(s *story) {
			replaces(s.elected(leader(1))).weighs(1, 2).becomes(standby(2)).in(time.Hour).weighs(1, 2)
			s.becomes(leader(3)).in(2*time.Second).weighs(1, 2).in(2 * time.Second).weighs(2).noHold()
		},
		"a policy that forbids deletions": func(s *story) {
			s.bridges[0].Policy = bridge.PolicyUpsertOnly
			replaces(s).in(time.Minute).weighs(2)
		},
	})
}

// TestWrite_Exclusive: two services that mean different things claim one host of the mesh, and
// the first one has it.
func TestWrite_Exclusive(t *testing.T) {
	stores := func(s *story, addr string) *story {
		s.Helper()
		return s.stores("host ", "host "+addr, "other ", "other 10.8.8.8:80")
	}
	begin := func(s *story) *story {
		s.bridges[0].Project = func(sv *registry.Service) ([]registry.Entry, error) {
			entries, err := headed(sv)
			for i := range entries {
				if sv.Name != "other" {
					entries[i].Group = registry.Group{Kind: "test", Name: "host", Exclusive: true}
				}
			}
			return entries, err
		}
		s.has(service("a", "10.0.0.1:80"), service("z", "10.9.9.9:80"), service("other", "10.8.8.8:80")).in(time.Minute)
		return stores(s, "10.0.0.1:80")
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a restart of its only instance": func(s *story) {
			begin(s).put(service("a")).in(29*time.Second).reason("z", bridge.ReasonWaiting, "another service has the host")
			stores(stores(s, "10.0.0.1:80").put(service("a", "10.0.0.1:80")).in(time.Hour), "10.0.0.1:80")
		},
		"a replaced instance": func(s *story) {
			stores(begin(s).put(service("a")).in(20*time.Second).put(service("a", "10.0.0.2:80")).in(time.Second), "10.0.0.2:80")
		},
		"after its wait the other has the host": func(s *story) {
			writes := begin(s).writes()
			stores(s.delete("a").in(29*time.Second), "10.0.0.1:80")
			stores(s.in(2*time.Second), "10.9.9.9:80").noHold().is("writes", s.writes()-writes, 1)
		},
		"not while it is unknown": func(s *story) {
			stores(begin(s).delete("a").unknown("a", errDown).in(time.Hour), "10.0.0.1:80")
		},
	})
}

// TestWrite_Head: the head of a group is deleted last.
func TestWrite_Head(t *testing.T) {
	begin := func(s *story) *story {
		s.bridges[0].Project = headed
		return s
	}
	stories(t, timed(), map[string]func(*story){
		"it is not an endpoint": func(s *story) {
			begin(s).has(service("a", "10.0.0.1:80")).in(time.Second).stores("a ", "a 10.0.0.1:80")
			s.put(service("a")).in(20*time.Second).stores("a ", "a 10.0.0.1:80").in(20 * time.Second).stores("a ")
		},
		"a restart leaves it for the window": func(s *story) {
			begin(s).storing(mine("a", registry.HeadKey), mine("a", "10.0.0.1:80")).reports().starts()
			s.in(5 * time.Minute).stores("a ").in(50 * time.Minute).stores("a ").in(10 * time.Minute).stores()
		},
		"it stays as long as an endpoint": func(s *story) {
			begin(s).has(service("a", "10.0.0.1:80")).in(time.Second).delete("a")
			s.in(20*time.Second).stores("a ", "a 10.0.0.1:80").in(20 * time.Second).stores()
		},
	})
}

func TestServing(t *testing.T) {
	begin := func(s *story) *serving {
		target := &serving{fake: s.target}
		s.starts(target)
		return target
	}
	completed := func(s *story, target *serving, times, entries int) {
		s.Helper()
		s.is("SourcesComplete()", target.completed, times).is("entries at that time", len(target.held), entries)
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"complete once every bridge is written": func(s *story) {
			s.bridge("c", speed).target.delay = time.Second
			target := begin(s)
			completed(s.has(fleet(3, 2)...).in(time.Hour), target, 0, 0)
			completed(s.stale(errDown).also("c", service("z", "10.9.9.9:80")).in(time.Hour), target, 0, 0) // the first is stale
			completed(s.stale(nil).in(time.Hour), target, 1, 7)
		},
		"it does not wait for deletions": func(s *story) {
			s.storing(mine("s0", "10.9.9.9:80"))
			target := begin(s)
			completed(s.has(fleet(3, 2)...).in(time.Second), target, 1, 7)
		},
		"it is listed before sources are read": func(s *story) {
			s.bridges[0].Project = func(x *registry.Service) ([]registry.Entry, error) {
				if time.Since(s.begin) < time.Second {
					s.Errorf("Project(%v) before the target was listed", x)
				}
				return perService(x)
			}
			s.target.delay = time.Second
			begin(s.reports(fleet(3, 2)...))
			s.in(time.Minute).storesN(6)
		},
	})
}
