package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// settles waits for the loop to settle, for at most d.
func (s *story) settles(d time.Duration) (bridge.Status, time.Duration, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	start := time.Now()
	status, err := s.loop.AwaitQuiet(ctx)
	return status, time.Since(start), err
}

// slow is a target that takes a second to keep a record.
type slow struct{ *recording }

func (t slow) Record(ctx context.Context, kind, name, text string) error {
	time.Sleep(time.Second) // virtual
	return t.recording.Record(ctx, kind, name, text)
}

func TestSettled(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"as soon as everything is written": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.hooks.Delay = 100 * ms
			s.starts()
			time.AfterFunc(time.Second, func() { s.has(fleet(8, 2)...) })
			st, took, err := s.settles(time.Hour)
			if err != nil || took != 1200*ms || !st.InSync() || len(st.Services) != 8 {
				t.Errorf("after %v: %v %+v", took, err, st)
			}
			s.holdsN(16)
		},
		"at once where nothing is to do": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(fleet(8, 2)...).in(time.Minute)
			if _, took, err := s.settles(time.Hour); err != nil || took != 0 {
				t.Errorf("after %v: %v", took, err)
			}
		},
		"while what was written is read back": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.hooks.Delay = 10 * time.Second
			s.make()
			s.starts(&forgetful{session: session{s.target}}).has(fleet(3, 2)...).in(22 * time.Second)
			if _, took, err := s.settles(time.Hour); err != nil || took != 0 {
				t.Errorf("after %v: %v", took, err)
			}
			if n := s.count(bridge.ObservedCall, "read"); n != 0 {
				t.Errorf("%d of the groups were read back by then", n)
			}
			s.in(10 * time.Second)
			if n := s.count(bridge.ObservedCall, "read"); n != 3 {
				t.Errorf("%d of the groups were read back", n)
			}
		},
		"not before leftovers have gone": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).holding(mine("old", "10.0.0.1:80")).starts()
			s.has()
			if st, took, err := s.settles(time.Hour); err != nil || took != time.Minute || !st.InSync() {
				t.Errorf("after %v: %v %+v", took, err, st)
			}
			s.holds()
		},
		"not before what is recorded first lets leftovers go": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.Guard{Window: time.Hour}).holding(mine("old", "10.0.0.1:80"))
			s.starts(slow{&recording{Target: s.target, texts: make(map[string]map[string]string)}})
			time.AfterFunc(time.Second, func() { s.has() })
			if _, took, err := s.settles(time.Hour); err != nil || took != 2*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
			s.holds()
		},
		"with holds, refusals and conflicts, which only an event can move": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).holding(theirs("c", "10.0.0.1:80"))
			for i := range 20 {
				s.holding(mine(fmt.Sprint("old", i), "10.0.0.1:80"))
			}
			s.fail(func(op memory.Op, g registry.Group) error {
				if op == memory.OpWrite && g.Name == "r" {
					return registry.ErrRefused
				}
				return nil
			})
			s.starts().has(service("c", "10.0.0.1:80"), service("r", "10.0.0.1:80"))
			st, _, err := s.settles(2 * time.Minute)
			if err != nil || len(st.Holds) != 1 || len(st.Conflicts) != 1 || s.of("r").Reason != bridge.ReasonRefused {
				t.Errorf("%v %+v", err, st)
			}
		},
		"not while a bridge is not synced, or stale, or a call fails": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			if st, _, err := s.settles(time.Minute); !errors.Is(err, context.DeadlineExceeded) || st.Owner != "me" {
				t.Errorf("unsynced: %v %+v", err, st)
			}
			s.has().table().Stale(errLost)
			if _, _, err := s.settles(time.Minute); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("stale: %v", err)
			}
			s.fail(func(memory.Op, registry.Group) error { return errDown })
			s.has(service("a", "10.0.0.1:80"))
			if st, _, err := s.settles(time.Minute); !errors.Is(err, context.DeadlineExceeded) || st.InSync() {
				t.Errorf("failing: %v", err)
			}
			s.stop()
			if _, _, err := s.settles(time.Minute); !errors.Is(err, bridge.ErrStopped) {
				t.Errorf("stopped: %v", err)
			}
		},
	})
}

func TestPlan(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"everything that differs, in order, and nothing is written": func(t *testing.T) {
			s := newStory(t).bridge("b", timed())
			s.holding(mine("a", "10.0.0.1:80"), mine("old", "10.0.0.2:80"), theirs("n", "10.0.0.3:80"), mine("same", "10.0.0.4:80"))
			s.has(service("a", "10.0.0.1:80*7"), service("n", "10.0.0.3:80", "10.0.0.5:80"), service("same", "10.0.0.4:80"))
			plan, st := s.plans()
			if len(plan) != 3 || s.writes() != 0 {
				t.Fatalf("%d writes, plan %+v", s.writes(), plan)
			}
			a, n, old := plan[0].Change, plan[1].Change, plan[2].Change
			if a.Group != group("a") || len(a.Put) != 1 || a.Put[0].Old == nil || len(a.Delete) != 0 {
				t.Errorf("%+v", a)
			}
			if n.Group != group("n") || len(n.Put) != 1 || n.Put[0].Old != nil || len(st.Conflicts) != 1 {
				t.Errorf("%+v", n)
			}
			if old.Group != group("old") || len(old.Delete) != 1 || len(plan[2].HeldBack) != 0 {
				t.Errorf("%+v", old)
			}
		},
		"what would be held back, and why": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			for i := range 20 {
				s.holding(mine(fmt.Sprint("old", i), "10.0.0.1:80"))
			}
			s.has()
			plan, st := s.plans()
			if len(plan) != 20 || len(st.Holds) != 1 {
				t.Fatalf("%+v", plan)
			}
			for _, p := range plan {
				if !p.Change.Empty() || len(p.HeldBack) != 1 || p.HeldBack[0].Reason != bridge.ReasonHeld {
					t.Errorf("%+v", p)
				}
			}
		},
		"nothing where nothing differs": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).holding(mine("a", "10.0.0.1:80"))
			s.has(service("a", "10.0.0.1:80"))
			if plan, st := s.plans(); len(plan) != 0 || !st.InSync() {
				t.Errorf("%+v %+v", plan, st)
			}
		},
		"no plan of a source that does not report everything": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).holding(mine("a", "10.0.0.1:80"))
			loop, err := bridge.New(s.target, s.bridges, s.opts)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			plan, st, err := loop.Plan(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || st.InSync() {
				t.Errorf("%v %+v", err, st)
			}
			if len(plan) != 1 || len(plan[0].HeldBack) != 1 || plan[0].HeldBack[0].Reason != bridge.ReasonUnknown {
				t.Errorf("%+v", plan)
			}
		},
	})
}

func (s *story) plans() ([]bridge.Planned, bridge.Status) {
	s.t.Helper()
	s.make()
	loop, err := bridge.New(s.target, s.bridges, s.opts)
	if err != nil {
		s.t.Fatal(err)
	}
	plan, status, err := loop.Plan(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return plan, status
}

func TestWhatIsLeftOutIsShownBesideWhatIsWritten(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a service that is written in part is in sync, with the reason": func(t *testing.T) {
			s := newStory(t).bridge("a", speed)
			s.bridges[0].Project = func(sv *registry.Service) ([]registry.Entry, error) {
				entries, err := perService(sv)
				return entries, errors.Join(err, &registry.LeftOut{Reason: errors.New("too long: zz")})
			}
			s.starts().has(service("x", "10.0.0.1:80")).in(time.Second)
			s.holds("x 10.0.0.1:80").reason("x", bridge.ReasonSynced, "too long: zz")
		},
		"a service of which no endpoint may be written is not in sync, and what it had goes": func(t *testing.T) {
			s := newStory(t).bridge("a", speed)
			s.bridges[0].Project = func(sv *registry.Service) ([]registry.Entry, error) {
				entries, err := perService(sv)
				if sv.Endpoints[0].Host != "127.0.0.1" {
					return entries, err
				}
				return nil, &registry.LeftOut{Reason: errors.New("loopback address"), All: registry.Unreachable}
			}
			s.starts().has(service("x", "10.0.0.1:80"), service("y", "10.0.0.2:80")).in(time.Second)
			s.holds("x 10.0.0.1:80", "y 10.0.0.2:80")
			s.has(service("x", "127.0.0.1:80"), service("y", "10.0.0.2:80")).in(time.Second)
			s.holds("y 10.0.0.2:80").reason("x", bridge.ReasonInvalid, "loopback address")
			if st := s.status(); st.InSync() || s.count(bridge.ObservedInvalid, "") != 1 {
				t.Errorf("in sync: %t; %d were reported", st.InSync(), s.count(bridge.ObservedInvalid, ""))
			}
		},
	})
}
