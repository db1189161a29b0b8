package bridge_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// standard has n services of two endpoints, long settled.
func (s *story) standard(n int) *story {
	s.Helper()
	return s.has(fleet(n, 2)...).in(10 * time.Minute).storesN(2 * n)
}

func TestGuard_UnknownSource(t *testing.T) {
	unsynced := func(mode bridge.Mode) func(*story) {
		return func(s *story) {
			s.bridges[0].Guard.Mode = mode
			s.storing(mine("gone", "10.0.0.8:80"), mine("a", "10.0.0.1:80")).starts().put(service("a", "10.0.0.1:80", "10.0.0.2:80"))
			s.in(time.Second).put(service("a", "10.0.0.2:80")).in(time.Hour).stores("a 10.0.0.1:80", "a 10.0.0.2:80", "gone 10.0.0.8:80")
			s.reason("a", bridge.ReasonUnknown, "not reported everything").has(service("a", "10.0.0.2:80")).in(time.Second).stores("a 10.0.0.2:80")
		}
	}
	stories(t, speed, map[string]func(*story){
		"nothing goes before it is synced":       unsynced(bridge.GuardEnforce),
		"nothing goes before it is synced, warn": unsynced(bridge.GuardWarn),
		"nothing goes before it is synced, off":  unsynced(bridge.GuardOff),
		"a stale one adds, and deletes nothing": func(s *story) {
			s.bridges[0].Guard.Mode = bridge.GuardOff
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Second).stale(errLost).put(service("a", "10.0.0.3:80"))
			s.in(time.Hour).stores("a 10.0.0.1:80", "a 10.0.0.2:80", "a 10.0.0.3:80").reason("a", bridge.ReasonUnknown, "istiod lost")
			b := s.status().Bridges[0]
			s.is("bridge", []any{b.Stale != "", b.Guard}, []any{true, bridge.GuardOff}).stale(nil).in(time.Second).stores("a 10.0.0.3:80")
		},
		"an unknown scope keeps only its services": func(s *story) {
			s.has(service("team-x/a", "10.0.0.1:80"), service("team-y/a", "10.0.0.2:80")).in(time.Second)
			s.unknown("team-x/*", errDown).delete("team-x/a").delete("team-y/a")
			s.in(time.Hour).stores("team-x/a 10.0.0.1:80").reason("team-x/a", bridge.ReasonUnknown, "down")
			s.is("scope", s.status().Bridges[0].Unknown["team-x/*"], "down").unknown("team-x/*", nil).in(time.Second).stores()
		},
		"an unwritable service keeps nothing back": func(s *story) {
			s.bridges[0].Guard = bridge.DefaultGuard()
			bad := fleet(10, 2)
			bad[3] = with(service("s3", "10.9.0.1:80"), "bad", "no IP address")
			s.standard(10).put(bad[3]).in(29*time.Second).storesN(20).reason("s3", bridge.ReasonUnwritable, "no IP address")
			s.in(2*time.Second).storesN(18).reason("s3", bridge.ReasonUnwritable, "no IP address").noHold()
			s.delete("s4").in(31 * time.Second).storesN(16).noHold()
			s.storing(mine("old", "10.0.0.8:80"))
			s.again().has(append(bad[:4:4], bad[5:]...)...).in(2*time.Minute).storesN(16).reason("s3", bridge.ReasonUnwritable, "no IP address")
		},
		"if all become unwritable they are held": func(s *story) {
			s.bridges[0].Guard = bridge.DefaultGuard()
			s.standard(10)
			for i := range 10 {
				s.put(with(service(fmt.Sprint("s", i), "10.9.0.1:80"), "bad", "no IP address"))
			}
			s.in(time.Hour).storesN(20).is("Count of the hold", s.hold().Count, 20)
		},
		"an orphan waits for every bridge and scope": func(s *story) {
			s.bridge("c", speed).storing(mine("old", "10.0.0.8:80")).has().in(time.Hour).stores("old 10.0.0.8:80")
			s.tables["c"].Unknown("x", errDown)
			s.also("c").in(time.Hour).stores("old 10.0.0.8:80")
			s.stale(errLost) // first: at no moment is everything known
			s.tables["c"].Unknown("x", nil)
			s.in(time.Hour).stores("old 10.0.0.8:80").stale(nil).in(time.Second).stores()
		},
		"no bridge waits for another's source": func(s *story) {
			s.bridge("c", speed).has(service("a", "10.0.0.1:80")).in(time.Second).delete("a").in(time.Second).stores()
		},
	})
}

// TestGuard_Trace: entries name the service that they were written for.
func TestGuard_Trace(t *testing.T) {
	const headless = "headless.shop.svc.cluster.local:80"
	begin := func(s *story, held ...registry.Stored) {
		s.bridges[0].Trace = trace{}
		s.storing(held...).starts()
	}
	stories(t, bridge.Guard{Settle: time.Minute}, map[string]func(*story){
		"an unknown service keeps its own": func(s *story) {
			begin(s, mine("a", "10.0.0.1:80"), mine("a", "10.0.0.9:80"), mine("gone", "10.0.0.8:80"), mine(headless, "10.0.0.7:80"))
			s.unknown(headless, errDown).has(service("a", "10.0.0.1:80")).in(time.Hour).stores("a 10.0.0.1:80", headless+" 10.0.0.7:80")
			s.reason("a", bridge.ReasonSynced, "").unknown(headless, nil).in(2 * time.Minute).stores("a 10.0.0.1:80")
		},
		"a scope that is not a service keeps all": func(s *story) {
			begin(s, mine("a", "10.0.0.9:80"), mine("a", "10.0.0.8:80"), mine("gone", "10.0.0.7:80"))
			s.unknown(headless, errDown).unknown("service keys", errDown)
			const why = "bridge b cannot report service keys: down"
			s.has(service("a", "10.0.0.1:80"), service("c", "10.0.0.1:80")).in(time.Hour).storesN(5)
			s.reason("a", bridge.ReasonKept, why).reason("c", bridge.ReasonSynced, "")
			if k := s.status().Kept; len(k) != 1 || k[0].Why != why || k[0].Entries != 3 || len(k[0].Groups) != 2 {
				s.Errorf("Kept = %+v, want 3 entries of 2 groups", k)
			}
			s.is("Find(gone)", len(s.loop.Status().Find(nil, called("gone")).Kept), 1)
			s.unknown("service keys", nil).in(2*time.Minute).storesN(2).reason("a", bridge.ReasonSynced, "").is("Kept", len(s.status().Kept), 0)
		},
		"without a trace an unknown service keeps all": func(s *story) {
			const scope = "dubbo-interface:/dubbo/providers:api.Denied:*"
			s.storing(mine("a", "10.0.0.9:80"), mine("gone", "10.0.0.8:80")).starts().unknown(scope, errDown)
			s.has(service("a", "10.0.0.1:80")).in(time.Hour).stores("a 10.0.0.1:80", "a 10.0.0.9:80", "gone 10.0.0.8:80")
			s.reason("a", bridge.ReasonKept, "bridge b cannot report "+scope+": down").unknown(scope, nil).in(2 * time.Minute).stores("a 10.0.0.1:80")
		},
	})
}

// trace returns the name of the group as the service of an entry.
type trace struct{}

func (trace) Origin(e registry.Entry) registry.Name {
	if e.Group.Name == "unknown" {
		return ""
	}
	return registry.Name(e.Group.Name)
}

func (trace) Service(scope string) bool { return scope != "service keys" }

func called(name string) func(registry.Group) bool {
	return func(g registry.Group) bool { return g.Name == name || g.String() == name }
}

func TestGuard_Waits(t *testing.T) {
	stories(t, timed(), map[string]func(*story){
		"the last endpoints of a service": func(s *story) {
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.3:80")).in(time.Second)
			s.put(service("a")).delete("b").in(29*time.Second).stores("a 10.0.0.1:80", "a 10.0.0.2:80", "b 10.0.0.3:80")
			s.reason("a", bridge.ReasonWaiting, "last endpoint").reason("b", bridge.ReasonWaiting, "last endpoint")
			s.in(time.Second).stores().reason("a", bridge.ReasonEmpty, "no offered endpoint")
		},
		"each bridge by its own guard": func(s *story) {
			s.bridge("c", speed).starts().also("c", service("z", "10.9.9.9:80")).has(service("a", "10.0.0.1:80")).in(time.Second)
			s.also("c").delete("a").in(time.Second).stores("a 10.0.0.1:80")
		},
		"what a gap of the connection hid": func(s *story) {
			s.standard(10).stale(errLost).in(time.Minute).has(fleet(9, 2)...).in(59 * time.Second).storesN(20)
			s.reason("s9", bridge.ReasonWaiting, "not reported by its source; settling for 1m0s").in(2 * time.Second).storesN(18)
			s.is("s9", s.of("s9").Service, registry.Name(""))
		},
		"an orphan settles once the source is synced": func(s *story) {
			s.storing(mine("gone", "10.0.0.8:80"), theirs("gone", "10.0.0.9:80")).starts().in(time.Hour).has(service("a", "10.0.0.1:80"))
			s.in(59*time.Second).stores("a 10.0.0.1:80", "gone 10.0.0.8:80", "gone 10.0.0.9:80")
			s.in(2*time.Second).stores("a 10.0.0.1:80", "gone 10.0.0.9:80")
			at := s.when(memory.OpRead, "gone")
			s.is("last read", at[len(at)-1], time.Hour+time.Minute) // it goes by a reading of that moment
		},
		"not for ever during endless reads": func(s *story) {
			s.storing(mine("gone", "10.0.0.8:80")).starts()
			for range 12 {
				s.has().in(5 * time.Second)
			}
			s.in(time.Second).stores()
		},
		"a part that is referred to no more": func(s *story) {
			s.has(referring("r1", "10.0.0.1:80")).in(10*time.Minute).stores("a #r1", "a 10.0.0.1:80")
			s.put(referring("r2", "10.0.0.1:80*2")).in(30*time.Second).stores("a #r1", "a #r2", "a 10.0.0.1:80")
			s.in(time.Minute).stores("a #r2", "a 10.0.0.1:80")
		},
	})
}

// referring is the service a, whose endpoints refer to a part of its group.
func referring(part string, addrs ...string) *registry.Service {
	return with(service("a", addrs...), "part", part)
}

func TestGuard_Share(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a mass deletion is held and reported": func(s *story) {
			h := s.standard(20).loses(0, 10).in(time.Hour).storesN(40).hold()
			if h.Bridge != "b" || len(h.Groups) != 10 || len(h.Entries) != 20 || h.ID == "" || h.Release == "" {
				s.Errorf("hold = %+v, want 20 entries of 10 groups of b", h)
			}
			s.is("reason", h.Reason, "10 of 20 services would have no endpoint left").is("observed", s.count(bridge.ObservedHold, ""), 20)
			s.reason("s0", bridge.ReasonHeld, "10 of 20").reason("s15", bridge.ReasonSynced, "")
			s.put(service("s15", "10.0.15.1:80")).in(time.Second).storesN(39).same(h) // later removals are none of it
		},
		"warn deletes and reports": func(s *story) {
			s.bridges[0].Guard.Mode = bridge.GuardWarn
			s.has(fleet(20, 2)...).in(time.Second).loses(0, 20).in(time.Minute).stores().noHold()
			s.logged("mode=warn", 1).logged(`ends="at once: guard.mode is warn"`, 1).is("observed", s.count(bridge.ObservedHold, ""), 40)
		},
		"an entry that yields is not a loss": func(s *story) { // three of four services register themselves
			s.standard(4)
			for _, h := range stored(fleet(3, 2)...) {
				h.Owner, h.Value = "", "x" // who has no mark comes before any owner
				s.target.Set(h)
			}
			s.resync().in(3*time.Hour).storesN(8).loses(3, 1).in(2 * time.Minute).noHold().storesN(6)
		},
	})
}

func TestPolicies(t *testing.T) {
	policy := func(p bridge.Policy, weights []int, entries ...string) func(*story) {
		return func(s *story) {
			s.bridges[0].Policy = p
			s.storing(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.2:80"), mine("old", "10.0.0.3:80"))
			s.has(service("a", "10.0.0.1:80*7", "10.0.0.4:80"), service("n", "10.0.0.5:80")).in(time.Minute).stores(entries...).weighs(weights...)
		}
	}
	all := []string{"a 10.0.0.1:80", "a 10.0.0.2:80", "a 10.0.0.4:80", "n 10.0.0.5:80", "old 10.0.0.3:80"}
	upsert := policy(bridge.PolicyUpsertOnly, []int{7, 0, 0, 0, 0}, all...)
	create := policy(bridge.PolicyCreateOnly, []int{0, 0, 0, 0, 0}, all...)
	read := policy(bridge.PolicyReadOnly, []int{0, 0, 0}, "a 10.0.0.1:80", "a 10.0.0.2:80", "old 10.0.0.3:80")
	stories(t, speed, map[string]func(*story){
		"sync does all": policy(bridge.PolicySync, []int{7, 0, 0}, "a 10.0.0.1:80", "a 10.0.0.4:80", "n 10.0.0.5:80"),
		"upsert-only deletes nothing": func(s *story) {
			upsert(s)
			s.delete("n").in(time.Minute).storesN(5).reason("n", bridge.ReasonReadOnly, "upsert-only keeps").noHold()
		},
		"create-only updates nothing either": func(s *story) {
			create(s)
			s.reason("a", bridge.ReasonReadOnly, "create-only forbids the write")
		},
		"read-only writes nothing": func(s *story) {
			read(s)
			s.reason("n", bridge.ReasonReadOnly, "read-only").is("writes", s.writes(), 0)
		},
		"any bridge may keep an orphan": func(s *story) {
			s.bridge("c", speed).bridges[1].Policy = bridge.PolicyUpsertOnly
			s.storing(mine("old", "10.0.0.3:80")).has().also("c").in(time.Hour).stores("old 10.0.0.3:80")
		},
	})
}

func TestGuard_Author(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a bridge that is not configured requires an operator": func(s *story) {
			s.opts.Author = func(e registry.Entry) string {
				if strings.HasPrefix(e.Group.Name, "gone") {
					return "gone"
				}
				return "b"
			}
			s.storing(mine("gone1", "10.0.0.1:80"), mine("gone2", "10.0.0.1:80"), mine("gone3", "10.0.0.1:80"), mine("old", "10.0.0.1:80"))
			h := s.has(fleet(4, 1)...).in(2 * time.Hour).storesN(7).hold() // what the bridge itself left is gone
			s.is("hold", []any{h.Bridge, len(h.Entries), h.Reason}, []any{"gone", 3, "bridge gone is not configured"})
			s.approves().in(time.Minute).storesN(4).noHold()
		},
		"a replica that differs may claim orphans": func(s *story) {
			s.bridges[0].Guard = bridge.Guard{Settle: time.Minute}
			var alike atomic.Bool
			s.opts.Differ = func() string {
				if alike.Load() {
					return ""
				}
				return "replica x is configured otherwise"
			}
			s.storing(mine("theirs", "10.0.0.1:80"), mine("c", "10.0.0.9:80"))
			s.has(service("c", "10.0.0.1:80"), service("d", "10.0.0.1:80")).in(time.Hour)
			s.stores("c 10.0.0.1:80", "d 10.0.0.1:80", "theirs 10.0.0.1:80") // no dead address is kept next to others
			if k := s.status().Kept; len(k) != 1 || k[0].Why != "replica x is configured otherwise" {
				s.Errorf("Kept = %+v, want one that names replica x", k)
			}
			s.delete("d").in(time.Hour).stores("c 10.0.0.1:80", "theirs 10.0.0.1:80") // a withdrawn endpoint is deleted
			alike.Store(true)
			s.resync().in(2 * time.Minute).stores("c 10.0.0.1:80")
		},
	})
}
