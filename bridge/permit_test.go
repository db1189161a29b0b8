package bridge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// overlaps has the target leave what is replaced for three seconds.
func (s *story) overlaps() *story {
	s.hooks.Overlap = 3 * time.Second
	return s
}

// weighs fails the test unless the target holds these values.
func (s *story) weighs(want ...int) *story {
	s.t.Helper()
	got := []string{}
	for _, e := range s.target.Entries() {
		got = append(got, e.Value)
	}
	text := []string{}
	for _, w := range want {
		text = append(text, fmt.Sprintf(`{"weight":%d}`, w))
	}
	if fmt.Sprint(got) != fmt.Sprint(text) {
		s.t.Errorf("after %v the target holds %v, want %v\n%s", time.Since(s.begin), got, text, s.log.String())
	}
	return s
}

// before is an entry of ours as it was before a change.
func before(g, addr string) registry.Held {
	h := mine(g, addr)
	h.Value = `{"weight":9}`
	return h
}

// Consumers of some formats have no provider where an entry is replaced at
// once.
func TestOverlap(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"what is replaced stays for a while beside what replaces it": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard()).starts()
			s.has(service("a", "10.0.0.1:80*1")).in(10 * time.Minute).weighs(1)
			s.table().Put(service("a", "10.0.0.1:80*2"))
			s.in(2*time.Second).weighs(1, 2).reason("a", bridge.ReasonSynced, "").noHold()
			s.in(2*time.Second).weighs(2).reason("a", bridge.ReasonSynced, "")
			if writes := s.writes(); writes != 3 {
				t.Errorf("%d writes, want one for each step", writes)
			}
		},
		"what a process that ended left of many replacements goes after its time, is no loss, and was changed by nobody": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard())
			var held []registry.Held
			var services []*registry.Service
			for i := range 40 {
				name, addr := fmt.Sprint("s", i), fmt.Sprintf("10.0.0.%d:80", i)
				held = append(held, mine(name, addr), before(name, addr))
				services = append(services, service(name, addr))
			}
			s.holding(held...).starts().has(services...).in(2 * time.Second).holdsN(80)
			s.in(3 * time.Second).holdsN(40).noHold()
			if n := s.count(bridge.ObservedDrift, "") + s.count(bridge.ObservedConflict, ""); n != 0 {
				t.Errorf("%d entries were found changed or in conflict", n)
			}
			if c := s.target.Counts(); c.Put != 0 {
				t.Errorf("%+v, want nothing written once more", c)
			}
		},
		"what was replaced before the source is known stays": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard())
			s.holding(mine("a", "10.0.0.1:80"), before("a", "10.0.0.1:80")).starts().in(time.Hour).holdsN(2)
		},
		"a value that comes back meanwhile is not written again, and stays": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard()).starts()
			s.has(service("a", "10.0.0.1:80*1")).in(10 * time.Minute)
			s.table().Put(service("a", "10.0.0.1:80*2"))
			s.in(2*time.Second).weighs(1, 2)
			s.table().Put(service("a", "10.0.0.1:80*1"))
			s.in(2*time.Second).weighs(1, 2) // what has been there for two seconds may be all that a consumer knows
			s.in(2 * time.Second).weighs(1)
			if c := s.target.Counts(); c.Put != 2 {
				t.Errorf("%+v, want two entries put", c)
			}
		},
		"an endpoint that goes meanwhile goes with what it replaced, under the rules of one": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard()).starts()
			s.has(service("a", "10.0.0.1:80*1"), service("b", "10.0.1.1:80", "10.0.1.2:80"), service("c", "10.0.2.1:80"), service("d", "10.0.3.1:80")).in(2 * time.Hour)
			s.table().Put(service("a", "10.0.0.1:80*2"))
			s.in(time.Second).holdsN(6)
			s.table().Delete("a")
			s.in(20*time.Second).holdsN(6).reason("a", bridge.ReasonWaiting, "the last endpoint waits")
			s.in(20 * time.Second).holdsN(4).noHold()
		},
		"one that changes all the time has few": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard()).starts()
			s.has(service("a", "10.0.0.1:80*1")).in(10 * time.Minute)
			for i := range 300 {
				s.table().Put(service("a", fmt.Sprint("10.0.0.1:80*", i+2)))
				s.in(200 * time.Millisecond)
				if n := len(s.target.Entries()); n > 15 || n > 5 && i > 50 { // ten writes may be made in advance, then one a second
					t.Fatalf("%d entries after %d changes", n, i)
				}
			}
			s.in(4 * time.Second).weighs(301)
		},
		"a replica that took over in between deletes what the one before left, and that one does not": func(t *testing.T) {
			s, e := elected(t, leader(1), bridge.DefaultGuard())
			s.overlaps().starts()
			s.has(service("a", "10.0.0.1:80*1")).in(10 * time.Minute)
			s.table().Put(service("a", "10.0.0.1:80*2"))
			s.in(time.Second).weighs(1, 2)
			e.set(standby(2))
			s.in(time.Hour).weighs(1, 2)
			e.set(leader(3))
			s.in(2*time.Second).weighs(1, 2)
			s.in(2 * time.Second).weighs(2).noHold()
		},
		"a replacement of another owner is one conflict, and left alone": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard())
			other := theirs("a", "10.0.0.1:80")
			other.Value = "y"
			s.holding(theirs("a", "10.0.0.1:80"), other).starts().has(service("a", "10.0.0.1:80")).in(time.Hour)
			if n := len(s.status().Conflicts); n != 1 || s.writes() != 0 {
				t.Errorf("%d conflicts, %d writes", n, s.writes())
			}
		},
		"a policy that forbids deletions, and not updates, forbids none of these": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard())
			s.bridges[0].Policy = bridge.PolicyUpsertOnly
			s.starts().has(service("a", "10.0.0.1:80*1")).in(10 * time.Minute)
			s.table().Put(service("a", "10.0.0.1:80*2"))
			s.in(time.Minute).weighs(2)
		},
		"a write that fails in between is finished": func(t *testing.T) {
			s := newStory(t).overlaps().bridge("b", bridge.DefaultGuard()).starts()
			s.has(service("a", "10.0.0.1:80*1")).in(10 * time.Minute)
			s.table().Put(service("a", "10.0.0.1:80*2"))
			s.in(time.Second).weighs(1, 2)
			s.fail(failing(memory.OpWrite, errDown))
			s.in(time.Minute).weighs(1, 2)
			s.fail(nil)
			s.in(time.Minute).weighs(2)
		},
	})
}
