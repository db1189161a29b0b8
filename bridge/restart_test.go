package bridge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// What an endpoint that went while the bridge was away is measured by does not
// depend on whether the source or the target reports first, nor on how much of
// what is there came since.
func TestOrphansOfARestart(t *testing.T) {
	kept := []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"}
	held := func(addresses ...string) (all []registry.Held) {
		for _, a := range addresses {
			all = append(all, mine("a", a))
		}
		return all
	}
	stories(t, map[string]func(*testing.T){
		"the source reports first": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).holding(held(append(kept, "10.0.0.9:80")...)...)
			s.has(service("a", kept...)).starts()
			s.in(2 * time.Minute).noHold().holdsN(4)
		},
		"the target reports first": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).holding(held(append(kept, "10.0.0.9:80")...)...).starts()
			s.in(time.Minute).has(service("a", kept...))
			s.in(2 * time.Minute).noHold().holdsN(4)
		},
		"all is replaced, and what was recorded is read after the first writes": func(t *testing.T) {
			r, _ := recorded(t)
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.target = r.Target
			for n := range 20 {
				s.holding(mine(fmt.Sprint("s", n), "10.9.0.1:80"), mine(fmt.Sprint("s", n), "10.9.0.2:80"))
			}
			s.has(fleet(20, 2)...).starts(tardy{r})
			s.in(2 * time.Minute).noHold().holdsN(40)
		},
		"what went before the restart counts, and nothing goes while that cannot be read": func(t *testing.T) {
			r, start := recorded(t)
			s := start().has(fleet(10, 1)...).in(10 * time.Minute)
			s.loses(0, 3).in(time.Minute).holdsN(7).stop()
			s = newStory(t).bridge("b", bridge.DefaultGuard())
			s.target = r.Target
			s.starts(mute{r}).has(fleet(10, 1)[3:]...).in(time.Minute)
			s.loses(3, 2).in(10 * time.Minute).holdsN(7)
		},
		"a first reading fails": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			var held []registry.Held
			for _, sv := range fleet(10, 5) {
				for _, e := range sv.Endpoints {
					held = append(held, mine(string(sv.Name), e.Address()))
				}
			}
			s.holding(held...)
			s.fail(func(op memory.Op, _ registry.Group) error {
				if op == memory.OpRead && time.Since(s.begin) < 30*time.Second {
					return errDown
				}
				return nil
			})
			s.starts().has(fleet(10, 1)...).in(20 * time.Second)
			s.table().Put(fleet(11, 1)[10])
			s.in(20 * time.Minute).hold()
			if n := len(s.target.Entries()); n < 50 {
				t.Errorf("%d left", n)
			}
		},
	})
}

// What is held or denied is listed after a restart as before it, though the source
// cannot report all yet.
func TestHoldsOfARestart(t *testing.T) {
	restarted := func(t *testing.T, deny bool) (before, after bridge.Hold) {
		t.Helper()
		r, _ := recorded(t)
		s := newStory(t).bridge("b", bridge.DefaultGuard())
		s.target = r.Target
		s.starts(r).has(fleet(20, 2)...).in(10 * time.Minute)
		before = s.loses(0, 14).in(2 * time.Minute).hold()
		if deny {
			s.denies(before.ID)
			before = s.in(time.Second).hold()
		}
		s.stop()
		next := newStory(t).bridge("b", bridge.DefaultGuard())
		next.target = s.target
		next.table().Unknown("*", errLost)
		return before, next.starts(r).has(fleet(20, 2)[14:]...).in(20 * time.Second).hold()
	}
	stories(t, map[string]func(*testing.T){
		"held": func(t *testing.T) {
			before, after := restarted(t, false)
			if after.ID != before.ID || after.Reason != before.Reason || after.Release != before.Release {
				t.Errorf("%+v\nbefore: %+v", after, before)
			}
		},
		"denied": func(t *testing.T) {
			if before, after := restarted(t, true); after.ID != before.ID || !after.Denied {
				t.Errorf("%+v\nbefore: %+v", after, before)
			}
		},
	})
}

// tardy is a target that takes ten seconds to report its records.
type tardy struct{ *recording }

func (r tardy) Records(ctx context.Context, kind string) (map[string]string, error) {
	time.Sleep(10 * time.Second)
	return r.recording.Records(ctx, kind)
}
