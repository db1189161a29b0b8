package bridge_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// serving is a target that answers readers of its own.
type serving struct {
	session
	settled atomic.Int32
	held    []registry.Entry // when it was settled first
}

func (s *serving) SourcesComplete() {
	if s.settled.Add(1) == 1 {
		s.held = s.Entries()
	}
}

// slowlyListed is one that takes a second to list what it serves.
type slowlyListed struct{ serving }

func (s *slowlyListed) Groups(ctx context.Context) ([]registry.Group, error) {
	time.Sleep(time.Second)
	return s.serving.Groups(ctx)
}

// headed writes a group's own entry before those of its endpoints.
func headed(s *registry.Service) ([]registry.Entry, error) {
	if s == nil {
		return nil, nil
	}
	entries, err := perService(s)
	head := registry.Entry{Group: group(string(s.Name)), Key: registry.HeadKey, Value: "head"}
	return append([]registry.Entry{head}, entries...), err
}

func TestServingTargets(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"it is settled when every bridge reported everything and all of it was written": func(t *testing.T) {
			s := newStory(t).bridge("a", speed).bridge("b", speed)
			s.make()
			target := &serving{session: session{s.target}}
			s.hooks.Delay = time.Second
			s.starts(target)
			s.tables["a"].Replace(slices.Values(fleet(3, 2)))
			s.in(time.Hour)
			if n := target.settled.Load(); n != 0 {
				t.Fatalf("settled %d times while one source has reported nothing", n)
			}
			s.tables["b"].Replace(slices.Values([]*registry.Service{service("z", "10.9.9.9:80")}))
			s.in(time.Hour)
			if n := target.settled.Load(); n != 1 || len(target.held) != 7 {
				t.Errorf("settled %d times, with %d of 7 entries", n, len(target.held))
			}
		},
		"what was served before waits for the guard, and nobody waits for that": func(t *testing.T) {
			s := newStory(t).bridge("a", bridge.DefaultGuard()).holding(mine("s0", "10.9.9.9:80"))
			s.make()
			target := &serving{session: session{s.target}}
			s.starts(target).has(fleet(3, 2)...).in(time.Second)
			if n := target.settled.Load(); n != 1 || len(target.held) != 7 {
				t.Errorf("settled %d times within a second, with %d of 7 entries", n, len(target.held))
			}
		},
		"more than the guard lets go stays, and is held": func(t *testing.T) {
			s := newStory(t).bridge("a", bridge.DefaultGuard())
			for _, x := range fleet(100, 2) {
				for _, e := range x.Endpoints {
					s.holding(mine(string(x.Name), e.Address()))
				}
			}
			s.make()
			target := &serving{session: session{s.target}}
			s.starts(target).has(fleet(100, 2)[:10]...).in(5 * time.Minute)
			if n := target.settled.Load(); n != 1 || len(target.held) != 200 || len(s.status().Holds) != 1 {
				t.Errorf("settled %d times, with %d of 200 entries; holds: %+v", n, len(target.held), s.status().Holds)
			}
			s.holdsN(200)
		},
		"what becomes of a service is asked once it is known what was served": func(t *testing.T) {
			s := newStory(t).bridge("a", speed)
			s.make()
			began := time.Now()
			project := s.bridges[0].Project
			s.bridges[0].Project = func(x *registry.Service) ([]registry.Entry, error) {
				if time.Since(began) < time.Second {
					t.Errorf("%v was asked for before the target was listed", x)
				}
				return project(x)
			}
			s.tables["a"].Replace(slices.Values(fleet(3, 2)))
			s.starts(&slowlyListed{serving{session: session{s.target}}}).in(time.Minute)
			s.holdsN(6)
		},
		"a source that becomes stale with the last write settles nothing until it is fresh": func(t *testing.T) {
			s := newStory(t).bridge("a", speed)
			s.make()
			target := &serving{session: session{s.target}}
			s.fail(func(op memory.Op, _ registry.Group) error {
				if op == memory.OpWrite {
					s.tables["a"].Stale(errDown)
				}
				return nil
			})
			s.starts(target).has(fleet(1, 1)...).in(time.Hour)
			if n, held := target.settled.Load(), s.target.Entries(); n != 0 || len(held) != 1 {
				t.Fatalf("settled %d times, with %d of 1 entries written", n, len(held))
			}
			s.tables["a"].Stale(nil)
			s.in(time.Hour)
			if n := target.settled.Load(); n != 1 {
				t.Errorf("settled %d times after the source was fresh again", n)
			}
		},
	})
}

// TestSettledWhileDeletionsWait has some service or other restart its only
// instance all the time, as in any large registry: an istiod that starts must
// not wait for a moment in which none does.
func TestSettledWhileDeletionsWait(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a target that serves is reported once everything is written": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.make()
			target := &serving{session: session{s.target}}
			all := fleet(50, 1)
			for _, sv := range all {
				s.table().Put(sv)
			}
			s.starts(target)
			for i := range 10 {
				s.table().Put(service(fmt.Sprint("s", i))) // its last endpoint is away
				s.in(10 * time.Second)
			}
			rows, _ := s.table().Snapshot()
			s.table().Replace(maps.Values(rows))
			if s.in(time.Second); target.settled.Load() != 1 {
				t.Errorf("settled %d times", target.settled.Load())
			}
			if _, took, err := s.settles(time.Hour); err != nil || took < 20*time.Second {
				t.Errorf("who waits for deletions too was answered after %v: %v", took, err)
			}
		},
	})
}

// TestAnExclusiveHostWaitsForItsLastEndpoint has two services that mean
// different things claim one host in the mesh; the first has it.
func TestAnExclusiveHostWaitsForItsLastEndpoint(t *testing.T) {
	start := func(t *testing.T) *story {
		t.Helper()
		s := newStory(t).bridge("b", bridge.DefaultGuard())
		s.bridges[0].Project = func(sv *registry.Service) ([]registry.Entry, error) {
			entries, err := headed(sv)
			for i := range entries {
				if sv.Name == "other" {
					continue
				}
				entries[i].Group = registry.Group{Kind: "test", Name: "host", Exclusive: true}
			}
			return entries, err
		}
		s.starts().has(service("a", "10.0.0.1:80"), service("z", "10.9.9.9:80"), service("other", "10.8.8.8:80")).in(time.Minute)
		return s.holds("host ", "host 10.0.0.1:80", "other ", "other 10.8.8.8:80")
	}
	stories(t, map[string]func(*testing.T){
		"a restart of its only instance sends nobody to the other": func(t *testing.T) {
			s := start(t)
			s.table().Put(service("a"))
			s.in(29*time.Second).holds("host ", "host 10.0.0.1:80", "other ", "other 10.8.8.8:80").reason("z", bridge.ReasonWaiting, "another service has the host")
			s.table().Put(service("a", "10.0.0.1:80"))
			s.in(time.Hour).holds("host ", "host 10.0.0.1:80", "other ", "other 10.8.8.8:80")
		},
		"a replaced instance neither": func(t *testing.T) {
			s := start(t)
			s.table().Put(service("a"))
			s.in(20 * time.Second).table().Put(service("a", "10.0.0.2:80"))
			s.in(time.Second).holds("host ", "host 10.0.0.2:80", "other ", "other 10.8.8.8:80")
		},
		"once its wait is over the other has the host, in one write": func(t *testing.T) {
			s := start(t)
			before := s.writes()
			s.table().Delete("a")
			s.in(29*time.Second).holds("host ", "host 10.0.0.1:80", "other ", "other 10.8.8.8:80")
			s.in(2*time.Second).holds("host ", "host 10.9.9.9:80", "other ", "other 10.8.8.8:80").noHold()
			if n := s.writes() - before; n != 1 {
				t.Errorf("%d writes", n)
			}
		},
		"not while the source cannot report it": func(t *testing.T) {
			s := start(t)
			s.table().Delete("a")
			s.table().Unknown("a", errDown)
			s.in(time.Hour).holds("host ", "host 10.0.0.1:80", "other ", "other 10.8.8.8:80")
		},
	})
}

func TestTheHeadOfAGroupGoesLast(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"it is no endpoint: the last endpoint beside it waits all the same": func(t *testing.T) {
			s := newStory(t).bridge("b", timed())
			s.bridges[0].Project = headed
			s.starts().has(service("a", "10.0.0.1:80"))
			s.in(time.Second).holds("a ", "a 10.0.0.1:80")
			s.tables["b"].Put(service("a"))
			s.in(20*time.Second).holds("a ", "a 10.0.0.1:80")
			s.in(20 * time.Second).holds("a ")
		},
		"a restart that finds its service without endpoints leaves it for as long as a loss counts": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).holding(mine("a", registry.HeadKey), mine("a", "10.0.0.1:80"))
			s.bridges[0].Project = headed
			s.has().starts()
			s.in(5 * time.Minute).holds("a ")
			s.in(50 * time.Minute).holds("a ")
			s.in(10 * time.Minute).holds()
		},
		"and what comes back within that time is where it was": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).holding(mine("a", registry.HeadKey))
			s.bridges[0].Project = headed
			s.has().starts()
			s.in(50 * time.Minute).holds("a ").has(service("a", "10.0.0.1:80"))
			s.in(time.Hour).holds("a ", "a 10.0.0.1:80")
		},
		"it stays as long as an endpoint does": func(t *testing.T) {
			s := newStory(t).bridge("b", timed())
			s.bridges[0].Project = headed
			s.starts().has(service("a", "10.0.0.1:80"))
			s.in(time.Second)
			s.tables["b"].Delete("a")
			s.in(20*time.Second).holds("a ", "a 10.0.0.1:80")
			s.in(20 * time.Second).holds()
		},
	})
}

var _ registry.Serving = (*serving)(nil)
