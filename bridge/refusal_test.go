package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// picks starts the story with a target that refuses keys by a prefix.
func (s *story) picks(prefix string) *picky {
	p := &picky{fake: s.target}
	p.refuse(func(key string) bool { return strings.HasPrefix(key, prefix) })
	s.starts(p)
	return p
}

func TestRefusal(t *testing.T) {
	const bad = "10.9.0.1:80"
	stories(t, speed, map[string]func(*story){
		"delays no other change of its group": func(s *story) {
			s.picks("10.9")
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80", bad), service("b", "10.0.0.1:80")).in(2 * time.Second)
			s.stores("a 10.0.0.1:80", "a 10.0.0.2:80", "b 10.0.0.1:80").reason("a", bridge.ReasonRefused, bad).reason("b", bridge.ReasonSynced, "")
			st := s.inSync(false).status()
			s.is("owned and queue", []int{st.Owned, st.Queue}, []int{3, 0})
			_, _, err := s.awaitsIdle(time.Minute)
			s.is("AwaitIdle()", err, nil).delete("b")
			s.put(service("a", "10.0.0.2:80", "10.0.0.3:80", bad)).in(time.Second).stores("a 10.0.0.2:80", "a 10.0.0.3:80")
			s.put(service("a", "10.0.0.3:80*5", bad)).in(time.Second).stores("a 10.0.0.3:80").reason("a", bridge.ReasonRefused, bad)
			s.put(service("a", "10.0.0.3:80*5")).in(time.Second).stores("a 10.0.0.3:80").reason("a", bridge.ReasonSynced, "")
		},
		"a refused replacement": func(s *story) {
			s.bridges[0].Guard = bridge.DefaultGuard()
			p := s.picks("10.9")
			s.has(service("a", "10.0.0.1:80"), service("b", "10.0.0.1:80")).in(10 * time.Minute).put(service("a", bad))
			s.in(5*time.Second).stores("a 10.0.0.1:80", "b 10.0.0.1:80").reason("a", bridge.ReasonRefused, bad)
			p.accept()
			s.in(31*time.Second).stores("a "+bad, "b 10.0.0.1:80")
		},
		"all is tried at the slowest rate": func(s *story) {
			p := s.picks("10.9")
			s.has(service("a", bad, "10.9.0.2:80", "10.9.0.3:80", "10.0.0.1:80")).in(2 * time.Second)
			before := s.writes()
			s.in(5*time.Minute).between("writes", s.writes()-before, 9, 11) // Retry.Max is 30 s
			s.is("events", len(s.emitted(bridge.EventRefused)), 1)
			p.accept()
			s.in(31*time.Second).stores("a 10.0.0.1:80", "a "+bad, "a 10.9.0.2:80", "a 10.9.0.3:80").reason("a", bridge.ReasonSynced, "")
		},
		"later refusals delay no earlier one": func(s *story) {
			p := s.picks("10.9")
			s.has(service("a", bad, "10.0.0.1:80")).in(2 * time.Second)
			for i := range 6 {
				s.put(service("a", bad, "10.0.0.1:80", fmt.Sprintf("10.9.1.%d:80", i))).in(4 * time.Second)
			}
			p.accept()
			s.in(10*time.Second).stores("a 10.0.0.1:80", "a "+bad, "a 10.9.1.5:80").reason("a", bridge.ReasonSynced, "")
		},
		"no key is named": func(s *story) {
			p := s.picks("10.0.0.5")
			p.unnamed = true
			s.has(service("a", "10.0.0.4:80", "10.0.0.5:80")).in(time.Minute).stores().reason("a", bridge.ReasonRefused, "something of it")
			s.between("writes", s.writes(), 1, 3).put(service("a", "10.0.0.4:80", "10.0.0.5:80", "10.0.0.6:80"))
			s.in(time.Second).stores("a 10.0.0.6:80").put(service("a", "10.0.0.4:80", "10.0.0.6:80")) // what changes later is written
			s.in(30*time.Second).stores("a 10.0.0.4:80", "a 10.0.0.6:80").reason("a", bridge.ReasonSynced, "")
		},
		"no key is named, and one was withdrawn": func(s *story) {
			p := s.picks("10.0.0.5")
			p.unnamed = true
			s.has(service("a", "10.0.0.3:80", "10.0.0.4:80")).in(time.Second).put(service("a", "10.0.0.4:80", "10.0.0.5:80"))
			s.in(time.Second).stores("a 10.0.0.4:80").reason("a", bridge.ReasonRefused, "something of it")
			s.put(service("a", "10.0.0.4:80")).in(time.Second).stores("a 10.0.0.4:80").reason("a", bridge.ReasonSynced, "")
		},
		"a refused update keeps its old parts": func(s *story) {
			p := s.picks("none")
			s.has(with(service("a", "10.0.0.1:80"), "part", "r1")).in(time.Second)
			p.refuse(func(key string) bool { return key == "10.0.0.1:80" })
			s.put(with(service("a", "10.0.0.1:80*5"), "part", "r2")).in(time.Hour).stores("a #r1", "a #r2", "a 10.0.0.1:80")
			p.accept()
			s.in(2*time.Minute).stores("a #r2", "a 10.0.0.1:80")
		},
		"a refused deletion delays no other": func(s *story) {
			p := s.picks("none")
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")).in(2 * time.Second)
			p.refuse(func(key string) bool { return key == "10.0.0.1:80" })
			s.put(service("a", "10.0.0.3:80", "10.0.0.4:80")).in(time.Second)
			s.stores("a 10.0.0.1:80", "a 10.0.0.3:80", "a 10.0.0.4:80").reason("a", bridge.ReasonRefused, "10.0.0.1:80")
			p.accept()
			s.in(30*time.Second).stores("a 10.0.0.3:80", "a 10.0.0.4:80").reason("a", bridge.ReasonSynced, "")
		},
		"a refused update is not a loss": func(s *story) {
			s.bridges[0].Guard = bridge.DefaultGuard()
			p := s.picks("none")
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.1:80")).in(10 * time.Minute)
			p.refuse(func(string) bool { return true })
			s.has(service("a", "10.0.0.1:80*5", "10.0.0.2:80*5"), service("b", "10.0.0.1:80*5")).in(5 * time.Second)
			s.reason("a", bridge.ReasonRefused, "10.0.0.1:80")
			s.put(service("a", "10.0.0.1:80*6")).in(5 * time.Minute).noHold()
			p.accept()
			s.put(service("b", "10.0.0.1:80*8")).in(time.Second).reason("b", bridge.ReasonSynced, "") // another value is tried at once
		},
		"a group that cannot be read": func(s *story) {
			s.bridges[0].Guard = timed()
			s.storing(mine("old", "10.0.0.1:80"), mine("secret", "10.0.0.2:80"))
			s.fail(failing(memory.OpRead, fmt.Errorf("%w: no permission", registry.ErrRefused), "secret"))
			s.has(service("secret", "10.0.0.3:80")).in(2 * time.Minute).stores("secret 10.0.0.2:80")
			s.reason("secret", bridge.ReasonRefused, "no permission")
		},
	})
}

// TestRefusal_Joined: another owner registers under one of our keys, as a parent znode can
// have two nodes of one address.
func TestRefusal_Joined(t *testing.T) {
	joined := func(policy bridge.Policy, left ...string) func(*story) {
		return func(s *story) {
			s.bridges[0].Policy = policy
			f := s.storing(mine("a", "10.0.0.1:80")).target
			f.read = func(ctx context.Context, g registry.Group) ([]registry.Stored, error) {
				list, err := f.Target.Read(ctx, g)
				return append(list, registry.Stored{Entry: registry.Entry{Group: g, Key: "10.0.0.1:80", Value: "x"}}), err
			}
			s.has(service("a", "10.0.0.1:80")).in(time.Minute).stores(left...).reason("a", bridge.ReasonConflict, "an entry without owner")
		}
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"ours goes":                   joined(bridge.PolicySync),
		"ours stays if a policy says": joined(bridge.PolicyUpsertOnly, "a 10.0.0.1:80"),
	})
}

func TestLoop_ReadBack(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"an entry that is shown otherwise than written": func(s *story) { // as after a change in the console of Nacos
			var edits atomic.Bool
			s.target = newFake(memory.Options{Watch: func(e memory.Event) {
				if edits.Load() && e.New != nil && !strings.HasSuffix(e.New.Value, "edited") {
					edited := *e.New
					edited.Value += "edited"
					s.target.Set(edited)
				}
			}})
			s.forgetful(0).has(service("a", "10.0.0.1:80")).in(time.Minute).reason("a", bridge.ReasonSynced, "")
			edits.Store(true)
			s.storing(mine("a", "10.0.0.1:80"))
			s.in(time.Hour).reason("a", bridge.ReasonRefused, "other values than were written")
			list := s.emitted()
			s.between("events", len(list), 2, 4).says("last event", list[len(list)-1].Why, "console")
			before := s.writes()
			s.in(time.Hour).between("writes in an hour", s.writes()-before, 1, 14)
			edits.Store(false)
			s.in(s.opts.Refresh*2).reason("a", bridge.ReasonSynced, "")
		},
		"an entry that only another connection can delete": func(s *story) { // in Nacos several of our connections may publish
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")).in(time.Hour).fail(failing(memory.OpWrite, registry.ErrConflict))
			s.put(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(10*time.Minute).reason("a", bridge.ReasonRefused, "another process of this owner")
			list := s.emitted(bridge.EventDrift)
			s.is("events", len(list), 1).says("why", list[0].Why, "another process of this owner").says("subject", list[0].Subject, "a")
			before := s.writes()
			s.in(time.Hour).between("writes in an hour", s.writes()-before, 1, 130).fail(nil).in(s.opts.Refresh)
			s.stores("a 10.0.0.1:80", "a 10.0.0.2:80").reason("a", bridge.ReasonSynced, "")
		},
		"a confirmed write that is not there": func(s *story) {
			s.forgetful(1).has(service("a", "10.0.0.1:80")).in(900 * ms).stores().in(200 * ms).stores("a 10.0.0.1:80")
			s.in(time.Minute).is("reads", s.when(memory.OpRead, "a"), seconds(1, 3)) // after each write, and no more
		},
		"one that never keeps anything": func(s *story) {
			s.forgetful(1000).has(service("a", "10.0.0.1:80")).in(time.Hour).between("reads", len(s.when(memory.OpRead, "a")), 15, 30)
		},
		"changes put it off, never each other": func(s *story) {
			s.forgetful(0)
			for i := range 20 {
				s.has(service("a", []string{"10.0.0.1:80", "10.0.0.1:80*7"}[i%2])).in(500 * ms)
			}
			s.is("reads and writes", []int{len(s.when(memory.OpRead, "a")), s.writes()}, []int{0, 20})
			s.in(time.Second).is("reads", len(s.when(memory.OpRead, "a")), 1)
		},
		"a lost session is written once more": func(s *story) {
			s.target.delay, s.opts.Workers = 100*ms, 8
			s.forgetful(0).has(fleet(8, 2)...).in(time.Minute)
			was := s.target.Counts()
			calls := func(writes, reads int) {
				s.Helper()
				c := s.target.Counts()
				s.is("writes and reads", []int{c.Writes - was.Writes, c.Reads - was.Reads}, []int{writes, reads})
			}
			s.target.Expire()
			s.in(150 * ms).storesN(16)
			calls(8, 0)
			all := s.emitted(bridge.EventApplied)
			last := all[len(all)-1]
			s.says("what", last.What, "2 created, 0 updated").says("cause", last.Changes[0].Cause, "its session was lost")
			s.in(2 * time.Second)
			calls(8, 8)
		},
	})
}
