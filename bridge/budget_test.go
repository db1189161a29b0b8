package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestDamping(t *testing.T) {
	// flap makes an endpoint come and go ten times a second.
	flap := func(s *story, d time.Duration) {
		for i := range int(d / (100 * ms)) {
			if i%2 == 0 {
				s.table().Put(service("a", "10.0.0.1:80"))
			} else {
				s.table().Put(service("a", "10.0.0.1:80", "10.0.0.2:80"))
			}
			s.in(100 * ms)
		}
	}
	stories(t, map[string]func(*testing.T){
		"an endpoint that flaps at 10 Hz is one write a second after the first ten": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Quiet = 50 * ms
			s.starts().has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Minute)
			before := s.writes()
			flap(s, time.Minute)
			if n := s.writes() - before; n > 60+11 {
				t.Errorf("%d writes in a minute", n)
			}
			at := s.when(memory.OpWrite, "a")
			before = s.writes()
			flap(s, time.Minute)
			if n := s.writes() - before; n > 60 {
				t.Errorf("%d writes in the second minute", n)
			}
			s.in(2*time.Second).holds("a 10.0.0.1:80", "a 10.0.0.2:80")
			if at[len(at)-1] == 0 {
				t.Error("nothing was written")
			}
		},
		"a removal in the midst of it waits no longer than MaxQuiet": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")).in(time.Minute)
			flap(s, 30*time.Second)
			s.table().Put(service("a", "10.0.0.1:80"))
			s.in(s.opts.MaxQuiet).holds("a 10.0.0.1:80")
		},
		"an idle group is written at once, also after it flapped": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Minute)
			flap(s, 30*time.Second)
			s.in(12 * time.Second)
			began := time.Since(s.begin)
			s.has(service("a", "10.0.0.1:80", "10.0.0.9:80"))
			at := s.when(memory.OpWrite, "a")
			if at[len(at)-1] != began {
				t.Errorf("written %v later", at[len(at)-1]-began)
			}
		},
	})
}

func TestFairness(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a service that changes all the time does not starve others": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Workers, s.hooks.Delay = 1, 10*ms
			s.starts().has(fleet(20, 1)...).in(time.Minute)
			for i := range 200 {
				s.table().Put(service("s0", fmt.Sprintf("10.0.0.1:80*%d", i+1)))
				if i == 100 {
					s.table().Put(service("s7", "10.9.9.9:80"))
				}
				s.in(10 * ms)
			}
			at := s.when(memory.OpWrite, "s7")
			if took := at[len(at)-1] - time.Minute - time.Second; took > 100*ms {
				t.Errorf("s7 was written %v after it changed", took)
			}
		},
		"a change of what is there goes before thousands of services that are new, and progress shows": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Workers, s.hooks.Delay = 4, 10*ms
			s.starts().has(service("old", "10.0.0.1:80")).in(time.Minute)
			s.table().Apply(fleet(4000, 1), nil)
			s.in(time.Second)
			left := s.status().Arriving
			began := time.Since(s.begin)
			s.table().Put(service("old", "10.0.0.2:80"))
			s.in(200 * ms)
			at := s.when(memory.OpWrite, "old")
			if took := at[len(at)-1] - began; took < 0 || took > 100*ms {
				t.Errorf("written %v after the change", took)
			}
			s.in(time.Second)
			if now := s.status().Arriving; left == 0 || now >= left {
				t.Errorf("%d arrivals wait, %d before", now, left)
			}
			s.in(time.Minute).holdsN(4001)
		},
		"arrivals continue while changes never end": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Workers, s.hooks.Delay, s.opts.MaxQuiet, s.opts.Quiet = 1, 10*ms, ms, ms
			s.starts().has(fleet(50, 1)...).in(time.Minute)
			s.table().Put(service("new", "10.0.0.1:80"))
			for i := range 2000 {
				s.table().Put(service(fmt.Sprint("s", i%50), fmt.Sprintf("10.0.0.1:80*%d", i+1)))
				s.in(ms)
			}
			if len(s.when(memory.OpWrite, "new")) != 1 {
				t.Error("the new service was not written")
			}
		},
	})
}

// A meter is a target that knows how many calls it was given at a time.
type meter struct {
	*memory.Target
	mu        sync.Mutex
	now, most int
	begun     []time.Time
}

func (m *meter) Write(ctx context.Context, c registry.Change) error {
	m.mu.Lock()
	m.now++
	m.most = max(m.most, m.now)
	m.begun = append(m.begun, time.Now())
	m.mu.Unlock()
	err := m.Target.Write(ctx, c)
	m.mu.Lock()
	m.now--
	m.mu.Unlock()
	return err
}

// peak returns how many calls there were at a time since it was asked last.
func (m *meter) peak() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := m.most
	m.most = 0
	return most
}

func TestBudget(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a target that fails is given fewer calls at a time, and as many as before once it succeeds": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Workers, s.hooks.Delay = 16, 100*ms
			s.make()
			m := &meter{Target: s.target}
			s.starts(m).has(fleet(500, 1)...).in(time.Second)
			if n := m.peak(); n != 16 {
				t.Errorf("%d calls at a time, want 16", n)
			}
			s.fail(func(memory.Op, registry.Group) error { return errDown })
			s.in(time.Second)
			m.peak()
			s.in(30 * time.Second)
			if n := m.peak(); n != 1 || s.status().Budget != 1 {
				t.Errorf("%d calls at a time, want 1", n)
			}
			s.fail(nil)
			s.in(5 * time.Minute).holdsN(500)
			if n := m.peak(); n != 16 {
				t.Errorf("%d calls at a time, want 16 again", n)
			}
		},
		"a refusal is no reason to ask for less": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.make()
			s.fail(func(memory.Op, registry.Group) error { return registry.ErrRefused })
			s.starts().has(fleet(50, 1)...).in(time.Minute)
			if n := s.status().Budget; n != 4 {
				t.Errorf("%d calls at a time, want 4", n)
			}
		},
		"writes are no more in a second than the rate permits": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Rate = 100
			s.make()
			m := &meter{Target: s.target}
			s.starts(m).has(fleet(1000, 1)...).in(20 * time.Second).holdsN(1000)
			for i := range m.begun {
				if i >= 150 && m.begun[i].Sub(m.begun[i-150]) < time.Second {
					t.Fatalf("150 writes within %v", m.begun[i].Sub(m.begun[i-150]))
				}
			}
			if took := m.begun[999].Sub(m.begun[0]); took > 11*time.Second {
				t.Errorf("took %v", took)
			}
		},
		"leftovers go though a reading of all of them takes seconds": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.opts.Rate = 10
			const services = 40
			all := fleet(services, 1)
			for _, sv := range all {
				s.holding(mine(string(sv.Name), sv.Endpoints[0].Address()), mine(string(sv.Name), registry.PartPrefix+"old"))
			}
			s.starts().has(all...).in(5 * time.Minute).holdsN(services)
		},
		"so do those that a person let go at once": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.opts.Rate = 6
			s.opts.Author = func(e registry.Entry) string {
				if e.Key == "10.9.9.9:80" {
					return "gone"
				}
				return "b"
			}
			const services, left = 258, 118
			all := fleet(services, 1)
			for i, sv := range all {
				if s.holding(mine(string(sv.Name), sv.Endpoints[0].Address())); i < left {
					s.holding(mine(string(sv.Name), "10.9.9.9:80"))
				}
			}
			s.starts().has(all...).in(5 * time.Minute)
			s.approves(s.hold().ID, "ann")
			s.in(ms)
			for _, sv := range all[left:] {
				s.table().Put(service(string(sv.Name), sv.Endpoints[0].Address()+"*7"))
			}
			s.in(time.Minute).holdsN(services)
		},
	})
}

func TestTune(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a guard that is off or warns lets go what it held, and says why": func(t *testing.T) {
			for _, mode := range []bridge.Mode{bridge.GuardOff, bridge.GuardWarn} {
				s := newStory(t).bridge("b", bridge.Guard{Share: 0.3, AtLeast: 1, Window: time.Minute}).starts()
				s.has(fleet(10, 1)...).in(time.Minute)
				s.loses(0, 9).in(time.Minute).holdsN(10)
				s.hold()
				if err := s.loop.Tune(t.Context(), map[string]bridge.Guard{"b": {Mode: mode}}, s.opts); err != nil {
					t.Fatal(err)
				}
				s.in(time.Second).holdsN(1).noHold()
				if why := "guard.mode is " + string(mode); !strings.Contains(s.log.String(), why) {
					t.Errorf("the log does not say %q:\n%s", why, s.log.String())
				}
				s.stop()
			}
		},
		"timing counts from then on": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Minute)
			o := s.opts
			o.Quiet, o.MaxQuiet = 10*time.Second, 20*time.Second
			if err := s.loop.Tune(t.Context(), nil, o); err != nil {
				t.Fatal(err)
			}
			s.has(service("a", "10.0.0.2:80")).in(time.Second)
			s.has(service("a", "10.0.0.3:80")).in(5 * time.Second).holds("a 10.0.0.2:80")
			s.in(10 * time.Second).holds("a 10.0.0.3:80")
		},
		"a guard that cannot be is refused": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			if err := s.loop.Tune(t.Context(), map[string]bridge.Guard{"b": {Share: 2}}, s.opts); err == nil {
				t.Error("it was taken")
			}
		},
	})
}
