package bridge_test

import (
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

const ms = time.Millisecond

func TestAgenda(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"the first change of an idle group is written at once, those that follow are gathered": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Second)
			for i := range 4 {
				s.table().Put(service("a", fmt.Sprintf("10.0.0.%d:80", i+2)))
				s.in(30 * ms)
			}
			s.in(time.Second).holds("a 10.0.0.5:80")
			if got, want := s.when(memory.OpWrite, "a"), []time.Duration{0, 1000 * ms, 1190 * ms}; !slices.Equal(got, want) {
				t.Errorf("writes at %v, want %v", got, want)
			}
			if n := s.count(bridge.ObservedCoalesce, ""); n != 2 {
				t.Errorf("%d changes joined another, want 2", n)
			}
		},
		"a thousand changes in a second are few writes, and the last one counts": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("a", "10.0.0.1:80*1")).in(time.Second)
			before := s.writes()
			for i := range 1000 {
				s.table().Put(service("a", fmt.Sprintf("10.0.0.1:80*%d", i+2)))
				s.in(ms)
			}
			s.in(2 * time.Second)
			if n := s.writes() - before; n > 3 {
				t.Errorf("%d writes", n)
			}
			if v := s.target.Entries()[0].Value; v != `{"weight":1001}` {
				t.Errorf("value %s", v)
			}
		},
		"a group that never stops changing is written after MaxQuiet": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("a", "10.0.0.1:80*1")).in(time.Second)
			for i := range 200 {
				s.table().Put(service("a", fmt.Sprintf("10.0.0.1:80*%d", i+2)))
				s.in(50 * ms)
			}
			at := s.when(memory.OpWrite, "a")
			for i := range at[1:] {
				if d := at[i+1] - at[i]; d > 1100*ms {
					t.Errorf("no write for %v", d)
				}
			}
			if len(at) < 10 || len(at) > 14 {
				t.Errorf("%d writes in 11 s", len(at))
			}
		},
		"one failing group retries with growing waits and blocks no other": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding()
			s.fail(func(op memory.Op, g registry.Group) error {
				if op == memory.OpWrite && g.Name == "a" {
					return errDown
				}
				return nil
			})
			s.starts().has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80"))
			s.in(10*time.Second).holds("b 10.0.0.2:80").reason("a", bridge.ReasonRetrying, "down").reason("b", bridge.ReasonSynced, "")
			s.in(time.Minute)
			want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second, 61 * time.Second}
			if got := s.when(memory.OpWrite, "a"); !slices.Equal(got, want) {
				t.Errorf("attempts at %v, want %v", got, want)
			}
			if st := s.status(); st.LastError != "down" || st.InSync() || s.of("a").LastError != "down" {
				t.Errorf("%+v", st)
			}
			s.fail(nil)
			s.in(31*time.Second).holds("a 10.0.0.1:80", "b 10.0.0.2:80").reason("a", bridge.ReasonSynced, "")
			if n := strings.Count(s.log.String(), "target call failed"); n > 4 {
				t.Errorf("logged %d times:\n%s", n, s.log.String())
			}
			if !strings.Contains(s.log.String(), "target calls succeed again") {
				t.Error("the end of the outage is not logged")
			}
		},
		"changes do not bypass the wait after a failure": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding()
			s.fail(failing(memory.OpWrite, errDown))
			s.starts()
			for i := range 100 {
				s.has(service("a", fmt.Sprintf("10.0.0.%d:80", i+1))).in(100 * ms)
			}
			if got, want := s.when(memory.OpWrite, "a"), []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second}; !slices.Equal(got, want) {
				t.Errorf("attempts at %v, want %v", got, want)
			}
		},
		"a conflict with another writer is read and written at once, then with waits": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding()
			n := 0
			s.fail(func(op memory.Op, _ registry.Group) error {
				if n++; op == memory.OpWrite && n < 9 {
					return registry.ErrConflict
				}
				return nil
			})
			s.starts().has(service("a", "10.0.0.1:80")).in(time.Minute).holds("a 10.0.0.1:80")
			if got, want := s.when(memory.OpWrite, "a"), []time.Duration{0, 0, 1 * time.Second, 3 * time.Second, 7 * time.Second}; !slices.Equal(got, want) {
				t.Errorf("attempts at %v, want %v", got, want)
			}
			if strings.Contains(s.log.String(), "WARN") {
				t.Error(s.log.String())
			}
		},
		"writes queue while the target has no quorum, and go out once when it has": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(fleet(50, 2)...).in(time.Second).holdsN(100)
			s.fail(func(memory.Op, registry.Group) error { return errDown })
			for i := range 300 {
				s.table().Put(service(fmt.Sprintf("s%d", i%50), fmt.Sprintf("10.9.9.%d:80", i%200), "10.0.0.1:80"))
				s.in(time.Second)
			}
			if st := s.status(); st.Queue > 51 || len(st.Services) != 50 {
				t.Errorf("the queue holds %d groups", st.Queue)
			}
			if n := strings.Count(s.log.String(), "\n"); n > 20 {
				t.Errorf("%d lines logged in five minutes of outage:\n%s", n, s.log.String())
			}
			before := s.target.Counts()
			s.fail(nil)
			s.in(2 * time.Minute)
			if st := s.status(); !st.InSync() || st.LastError != "" {
				t.Errorf("not healed: %+v", st)
			}
			if n := s.target.Counts().Writes - before.Writes; n != 50 {
				t.Errorf("%d writes for 50 groups", n)
			}
		},
		"nothing is written before the target was listed": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding(mine("a", "10.0.0.1:80"))
			s.fail(failing(memory.OpGroups, errDown))
			s.starts().has(service("a", "10.0.0.2:80"), service("b", "10.0.0.3:80")).in(time.Minute)
			s.holds("a 10.0.0.1:80").reason("a", bridge.ReasonPending, "not listed")
			if st := s.status(); st.Listed || st.InSync() || st.LastError != "down" {
				t.Errorf("%+v", st)
			}
			s.fail(nil)
			s.in(31*time.Second).holds("a 10.0.0.2:80", "b 10.0.0.3:80")
		},
		"a group that is listed is read before the first write, one that is not is empty": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding(mine("a", "10.0.0.1:80")).starts()
			s.has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")).in(time.Second)
			if a, b := s.when(memory.OpRead, "a"), s.when(memory.OpRead, "b"); len(a) != 1 || len(b) != 0 {
				t.Errorf("a was read %v, b %v", a, b)
			}
		},
		"a group that is listed later is found": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has().in(time.Minute)
			s.target.Set(mine("late", "10.0.0.1:80"))
			s.in(5 * time.Minute).holds()
		},
		"changes go before refreshes, and refreshes are spread": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Workers = 1
			s.hooks.Delay = 10 * ms
			s.starts().has(fleet(1000, 1)...).in(30 * time.Second)
			s.in(4 * time.Minute) // refreshes are under way
			at := time.Since(s.begin)
			s.table().Put(service("s7", "10.0.0.9:80"))
			s.in(time.Second)
			w := s.when(memory.OpWrite, "s7")
			if d := w[len(w)-1] - at; d > 20*ms {
				t.Errorf("a change waited %v for refreshes", d)
			}
			reads := map[time.Duration]int{}
			for _, c := range s.calls {
				if c.op == memory.OpRead {
					reads[c.at/time.Second]++
				}
			}
			if len(reads) < 30 {
				t.Errorf("refreshes in %d seconds only", len(reads))
			}
		},
		"calls that are under way end before Run returns": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.hooks.Delay = time.Second
			s.starts().has(fleet(3, 1)...).in(1500 * ms)
			s.stop() // goleak and the bubble see what is left
			if err := s.loop.Alive(t.Context()); err == nil {
				t.Error("a loop that stopped is alive")
			}
			if err := s.loop.Run(t.Context()); err == nil {
				t.Error("a loop runs twice")
			}
		},
	})
}

func TestObservations(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"calls, entries and how long they took since the change was seen": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.hooks.Delay = 40 * ms
			s.starts().has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Second)
			s.table().Put(service("a", "10.0.0.1:80*3"))
			s.in(time.Second)
			var got []string
			for _, o := range s.seen {
				if o.Kind == bridge.ObservedApplied {
					got = append(got, fmt.Sprint(o.Bridge, " ", o.Op, " ", o.Count, " ", o.Took, " ", o.Latency))
				}
			}
			want := []string{"b create 2 40ms 40ms", "b delete 1 40ms 40ms", "b update 1 40ms 40ms"}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if s.count(bridge.ObservedCall, "list") != 1 || s.count(bridge.ObservedCall, "write") != 2 {
				t.Errorf("calls %+v", s.seen)
			}
		},
	})
}

// pausing starts a bridge of 20 services with one endpoint each, and returns
// what stops its loop for as long as the process would be: nothing is read and
// nothing is written meanwhile, and waits continue.
func pausing(t *testing.T) (*story, func(time.Duration)) {
	t.Helper()
	var pause atomic.Int64
	s := newStory(t).bridge("b", bridge.DefaultGuard())
	s.opts.OnEvent = func(e bridge.Event) {
		if e.Kind == bridge.EventInvalid {
			time.Sleep(time.Duration(pause.Load()))
		}
	}
	s.starts().has(fleet(20, 1)...).in(10 * time.Minute)
	n := 0
	return s, func(d time.Duration) {
		pause.Store(int64(d))
		n++
		bad := service("bad")
		bad.Attributes = map[string]string{"bad": time.Duration(n).String()}
		s.table().Put(bad)
		s.in(d)
	}
}

// TestPause has a process stand still while something is away for a second.
func TestPause(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"the last endpoint waits anew": func(t *testing.T) {
			for _, d := range []time.Duration{19 * time.Second, 40 * time.Second} { // of a wait of which 20 s are left
				s, pause := pausing(t)
				s.table().Delete("s0")
				s.in(10 * time.Second)
				pause(d)
				s.in(29 * time.Second).holdsN(20)
				s.in(2 * time.Second).holdsN(19).stop()
			}
		},
		"an orphan settles anew": func(t *testing.T) {
			s, pause := pausing(t)
			s.has(fleet(19, 1)...).in(50 * time.Second)
			pause(time.Minute)
			s.in(58 * time.Second).holdsN(20)
			s.in(4 * time.Second).holdsN(19)
		},
		"a hold is confirmed by what was read long enough after it": func(t *testing.T) {
			s, pause := pausing(t)
			s.loses(0, 10).in(9 * time.Minute)
			s.dials(fleet(20, 1)[10:]...).in(10 * time.Second)
			pause(5 * time.Minute)
			s.in(58 * time.Second).holdsN(20).hold()
			s.in(33 * time.Second).holdsN(10).noHold()
		},
		"a loop that is only busy for a moment waits no longer": func(t *testing.T) {
			s, pause := pausing(t)
			s.table().Delete("s0")
			s.in(10 * time.Second)
			pause(500 * time.Millisecond)
			s.in(20 * time.Second).holdsN(19)
		},
	})
}
