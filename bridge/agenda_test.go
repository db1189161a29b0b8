package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// changes changes the weight of a service n times, with a pause before each.
func (s *story) changes(name string, n int, pause time.Duration) *story {
	for i := range n {
		s.put(service(name, fmt.Sprintf("10.0.0.1:80*%d", i+2))).in(pause)
	}
	return s
}

// flaps makes an endpoint come and go ten times a second.
func (s *story) flaps(d time.Duration) *story {
	for i := range int(d / (100 * ms)) {
		s.put(service("a", []string{"10.0.0.1:80", "10.0.0.2:80"}[:1+i%2]...)).in(100 * ms)
	}
	return s
}

// wroteWithin fails the test unless the last write of a group was at most so long
// after a moment.
func (s *story) wroteWithin(most time.Duration, group string, after time.Duration) {
	s.Helper()
	at := s.when(memory.OpWrite, group)
	s.between("write of "+group+" after ms", int((at[len(at)-1]-after)/ms), 0, int(most/ms))
}

func TestAgenda(t *testing.T) {
	stories(t, speed, map[string]func(*story){
		"a first change goes, others are gathered": func(s *story) {
			s.has(service("a", "10.0.0.1:80")).in(time.Second).changes("a", 4, 30*ms).in(time.Second).weighs(5)
			s.is("writes", s.when(memory.OpWrite, "a"), seconds(0, 1, 1.19)).is("coalesced", s.count(bridge.ObservedCoalesce, ""), 2)
		},
		"endless changes are written after MaxDebounce": func(s *story) {
			s.has(service("a", "10.0.0.1:80*1")).in(time.Second).changes("a", 200, 50*ms)
			at := s.when(memory.OpWrite, "a")
			for i := range at[1:] {
				s.between("ms between writes", int((at[i+1]-at[i])/ms), 0, 1100)
			}
			s.between("writes in 11 s", len(at), 10, 14)
		},
		"a failing group waits ever longer": func(s *story) {
			s.fail(failing(memory.OpWrite, errDown, "a")).has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80"))
			s.in(time.Second).changes("a", 45, 200*ms) // which do not bypass the wait
			s.stores("b 10.0.0.2:80").reason("a", bridge.ReasonRetrying, "down").reason("b", bridge.ReasonSynced, "").in(time.Minute)
			s.is("attempts", s.when(memory.OpWrite, "a"), seconds(0, 1, 3, 7, 15, 31, 61))
			s.inSync(false).is("last errors", []string{s.status().LastError, s.of("a").LastError}, []string{"down", "down"})
			s.fail(nil).in(31*time.Second).stores("a 10.0.0.1:80", "b 10.0.0.2:80").reason("a", bridge.ReasonSynced, "")
			s.between("failures logged", strings.Count(s.log.String(), "target call failed"), 1, 4).logged("target calls succeed again", 1)
		},
		"a conflict of writers is tried at once": func(s *story) {
			n := 0
			s.fail(func(op memory.Op, _ registry.Group) error {
				if n++; op == memory.OpWrite && n < 9 {
					return registry.ErrConflict
				}
				return nil
			})
			s.has(service("a", "10.0.0.1:80")).in(time.Minute).stores("a 10.0.0.1:80").logged("WARN", 0)
			s.is("attempts", s.when(memory.OpWrite, "a"), seconds(0, 0, 1, 3, 7))
		},
		"an outage queues each group once": func(s *story) {
			s.has(fleet(50, 2)...).in(time.Second).storesN(100).fail(down)
			for i := range 300 {
				s.put(service(fmt.Sprintf("s%d", i%50), fmt.Sprintf("10.9.9.%d:80", i%200), "10.0.0.1:80")).in(time.Second)
			}
			s.between("queue", s.status().Queue, 0, 51).between("lines logged", strings.Count(s.log.String(), "\n"), 1, 20)
			before := s.writes()
			s.fail(nil).in(2*time.Minute).inSync(true).is("last error", s.status().LastError, "").is("writes", s.writes()-before, 50)
		},
		"nothing is written before a list": func(s *story) {
			s.storing(mine("a", "10.0.0.1:80")).fail(failing(memory.OpGroups, errDown))
			s.has(service("a", "10.0.0.2:80"), service("b", "10.0.0.3:80")).in(time.Minute)
			s.stores("a 10.0.0.1:80").reason("a", bridge.ReasonPending, "not listed").inSync(false)
			s.is("listed", s.status().Listed, false).is("last error", s.status().LastError, "down")
			s.fail(nil).in(31*time.Second).stores("a 10.0.0.2:80", "b 10.0.0.3:80")
		},
		"a listed group is read before a write": func(s *story) {
			s.storing(mine("a", "10.0.0.1:80")).has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")).in(time.Second)
			s.is("reads", []int{len(s.when(memory.OpRead, "a")), len(s.when(memory.OpRead, "b"))}, []int{1, 0})
		},
		"a group that is listed later": func(s *story) {
			s.has().in(time.Minute).storing(mine("late", "10.0.0.1:80")).in(5 * time.Minute).stores()
		},
		"changes go before refreshes, which are spread": func(s *story) {
			s.opts.Workers, s.target.delay = 1, 10*ms
			s.has(fleet(1000, 1)...).in(30 * time.Second).in(4 * time.Minute) // refreshes are under way
			at := time.Since(s.begin)
			s.put(service("s7", "10.0.0.9:80")).in(time.Second).wroteWithin(20*ms, "s7", at)
			reads := map[time.Duration]bool{}
			for _, c := range s.made(memory.OpRead) {
				reads[c.at.Sub(s.begin)/time.Second] = true
			}
			s.between("seconds with refreshes", len(reads), 30, 300)
		},
		"observations of calls and entries": func(s *story) {
			s.target.delay = 40 * ms
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Second).put(service("a", "10.0.0.1:80*3")).in(time.Second)
			var got []string
			for _, o := range s.seen.get() {
				if o.Kind == bridge.ObservedApplied {
					got = append(got, fmt.Sprint(o.Bridge, " ", o.Op, " ", o.Count, " ", o.Took, " ", o.Latency))
				}
			}
			s.is("applied", got, []string{"b create 2 40ms 40ms", "b delete 1 40ms 40ms", "b update 1 40ms 40ms"})
			s.is("lists and writes", []int{s.count(bridge.ObservedCall, "list"), s.count(bridge.ObservedCall, "write")}, []int{1, 2})
		},
		"the queue, and for how long": func(s *story) {
			s.opts.Workers, s.target.delay = 1, time.Second
			st := s.has(fleet(10, 1)...).in(3500 * ms).inSync(false).status()
			s.is("queue", st.Queue, 7).between("seconds due", int(st.OldestDue.Seconds()), 2, 4)
		},
		"a call without an answer is given up": func(s *story) {
			s.opts.Workers = 1
			f := s.target
			f.write = func(ctx context.Context, c registry.Change) error {
				if c.Group == group("a") {
					<-ctx.Done()
					return ctx.Err()
				}
				return f.Target.Write(ctx, c)
			}
			s.has(service("a", "10.0.0.1:80")).has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80"))
			s.in(29*time.Second).stores().in(2*time.Second).stores("b 10.0.0.2:80").reason("b", bridge.ReasonSynced, "")
			s.says("last error", s.status().LastError, "timed out after 30s")
		},
	})
}

func TestAgenda_Damping(t *testing.T) {
	stories(t, speed, map[string]func(*story){
		"one write a second after the first ten": func(s *story) {
			s.opts.Debounce = 50 * ms
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Minute)
			for _, most := range []int{60 + 11, 60} {
				before := s.writes()
				s.flaps(time.Minute).between("writes in a minute", s.writes()-before, 1, most)
			}
			s.in(2*time.Second).stores("a 10.0.0.1:80", "a 10.0.0.2:80")
		},
		"a removal waits no longer than MaxDebounce": func(s *story) {
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")).in(time.Minute).flaps(30 * time.Second)
			s.put(service("a", "10.0.0.1:80")).in(s.opts.MaxDebounce).stores("a 10.0.0.1:80")
		},
		"an idle group that flapped before": func(s *story) {
			s.has(service("a", "10.0.0.1:80")).in(time.Minute).flaps(30 * time.Second).in(12 * time.Second)
			at := time.Since(s.begin)
			s.has(service("a", "10.0.0.1:80", "10.0.0.9:80")).wroteWithin(0, "a", at)
		},
		"a change goes before thousands of arrivals": func(s *story) {
			s.opts.Workers, s.target.delay = 4, 10*ms
			s.has(service("old", "10.0.0.1:80")).in(time.Minute).table().Apply(fleet(4000, 1), nil)
			left, at := s.in(time.Second).status().Arriving, time.Since(s.begin)
			s.put(service("old", "10.0.0.2:80")).in(200*ms).wroteWithin(100*ms, "old", at)
			s.in(time.Second).between("arriving", s.status().Arriving, 1, left-1).in(time.Minute).storesN(4001)
		},
		"arrivals continue while changes never end": func(s *story) {
			s.opts.Workers, s.target.delay, s.opts.MaxDebounce, s.opts.Debounce = 1, 10*ms, ms, ms
			s.has(fleet(50, 1)...).in(time.Minute).put(service("new", "10.0.0.1:80"))
			for i := range 2000 {
				s.put(service(fmt.Sprint("s", i%50), fmt.Sprintf("10.0.0.1:80*%d", i+1))).in(ms)
			}
			s.is("writes of the new one", len(s.when(memory.OpWrite, "new")), 1)
		},
	})
}

func TestBudget(t *testing.T) {
	stories(t, speed, map[string]func(*story){
		"a failing target gets fewer calls": func(s *story) {
			s.opts.Workers, s.target.delay = 16, 100*ms
			peak := func(since time.Duration) (most int) { // of the calls that ended at a time
				ended := make(map[time.Time]int)
				for _, c := range s.made(memory.OpWrite) {
					if ended[c.at]++; c.at.Sub(s.begin) > since {
						most = max(most, ended[c.at])
					}
				}
				return most
			}
			s.has(fleet(500, 1)...).in(time.Second).is("calls at a time", peak(0), 16)
			s.fail(down).in(time.Second)
			since := time.Since(s.begin)
			s.in(30*time.Second).is("calls at a time", []int{peak(since), s.status().Budget}, []int{1, 1})
			since = time.Since(s.begin)
			s.fail(nil).in(5*time.Minute).storesN(500).is("calls at a time", peak(since), 16)
		},
		"a refusal lowers no budget": func(s *story) {
			s.fail(func(memory.Op, registry.Group) error { return registry.ErrRefused })
			s.has(fleet(50, 1)...).in(time.Minute).is("budget", s.status().Budget, 4)
		},
		"writes keep to the rate": func(s *story) {
			s.opts.Rate = 100
			s.has(fleet(1000, 1)...).in(20 * time.Second).storesN(1000)
			all := s.made(memory.OpWrite)
			for i := range all[150:] {
				if d := all[i+150].at.Sub(all[i].at); d < time.Second {
					s.Fatalf("150 writes within %v, want a second", d)
				}
			}
			s.between("seconds", int(all[999].at.Sub(s.begin).Seconds()), 9, 10)
		},
		"orphans go at a low rate": func(s *story) {
			s.bridges[0].Guard, s.opts.Rate = bridge.DefaultGuard(), 10
			all := fleet(40, 1)
			for _, sv := range all {
				s.storing(mine(string(sv.Name), registry.PartPrefix+"old"))
			}
			s.storing(stored(all...)...).has(all...).in(5 * time.Minute).storesN(40)
		},
	})
}

// TestLoop_Pause suspends the process while a target or source is unreachable for a second.
func TestLoop_Pause(t *testing.T) {
	begin := func(s *story) *story { return s.has(fleet(20, 1)...).in(10 * time.Minute) }
	halt := func(s *story, d time.Duration) *story { // nothing is read or written meanwhile
		return s.put(with(service("slow"), "pause", d.String())).in(d)
	}
	lastEndpoint := func(d time.Duration) func(*story) { // of a wait of which 20 s are left
		return func(s *story) {
			halt(begin(s).delete("s0").in(10*time.Second), d).in(29 * time.Second).storesN(20).in(2 * time.Second).storesN(19)
		}
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a last endpoint waits again, 19 s": lastEndpoint(19 * time.Second),
		"an orphan settles again": func(s *story) {
			halt(begin(s).has(fleet(19, 1)...).in(50*time.Second), time.Minute).in(58 * time.Second).storesN(20).in(4 * time.Second).storesN(19)
		},
	})
}
