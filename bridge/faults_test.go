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

// crowded is a target in which another owner registered under a key of ours,
// as a folder of ZooKeeper can hold two nodes of one address.
type crowded struct {
	session
	more registry.Held
}

func (c crowded) Read(ctx context.Context, g registry.Group) ([]registry.Held, error) {
	held, err := c.session.Read(ctx, g)
	if g == c.more.Group {
		held = append(held, c.more)
	}
	return held, err
}

// stuck is a target that never answers a write of one group.
type stuck struct {
	session
	group registry.Group
}

func (s stuck) Write(ctx context.Context, c registry.Change) error {
	if c.Group == s.group {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.session.Write(ctx, c)
}

// silent is a target whose sessions ended for good.
type silent struct{ session }

func (silent) Lost() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestFaults(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a group that cannot be read keeps no leftover of another group": func(t *testing.T) {
			s := newStory(t).bridge("b", timed()).holding(mine("old", "10.0.0.1:80"), mine("secret", "10.0.0.2:80"))
			s.fail(func(op memory.Op, g registry.Group) error {
				if op == memory.OpRead && g.Name == "secret" {
					return fmt.Errorf("%w: no permission", registry.ErrRefused)
				}
				return nil
			})
			s.starts().has(service("secret", "10.0.0.3:80")).in(2 * time.Minute)
			s.holds("secret 10.0.0.2:80").reason("secret", bridge.ReasonRefused, "no permission")
		},
		"another owner joins a key of ours: ours goes, and is told": func(t *testing.T) {
			for _, policy := range []bridge.Policy{bridge.PolicySync, bridge.PolicyUpsertOnly} {
				s := newStory(t).bridge("b", bridge.DefaultGuard()).holding(mine("a", "10.0.0.1:80"))
				s.bridges[0].Policy = policy
				s.starts(crowded{session{s.target}, registry.Held{Entry: registry.Entry{Group: group("a"), Key: "10.0.0.1:80", Value: "x"}}})
				s.has(service("a", "10.0.0.1:80")).in(time.Minute).reason("a", bridge.ReasonConflict, "an entry without owner")
				if policy == bridge.PolicySync {
					s.holds()
				} else {
					s.holds("a 10.0.0.1:80")
				}
				s.stop()
			}
		},
		"a call without an answer is given up, says so, and keeps no worker": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Workers = 1
			s.make()
			s.starts(stuck{session{s.target}, group("a")}).has(service("a", "10.0.0.1:80")).has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80"))
			s.in(29 * time.Second).holds()
			s.in(2*time.Second).holds("b 10.0.0.2:80").reason("b", bridge.ReasonSynced, "")
			if err := s.status().LastError; !strings.Contains(err, "not done within 30s") {
				t.Errorf("last error %q", err)
			}
		},
		"a target whose sessions ended for good does not keep the loop busy": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).holding()
			s.starts(silent{session{s.target}}).has(service("a", "10.0.0.1:80")).in(time.Hour).holds("a 10.0.0.1:80")
		},
		"a resync reaches what is being worked on": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.hooks.Delay = time.Second
			s.starts().has(service("a", "10.0.0.1:80")).in(1500 * ms) // the write is under way
			if err := s.loop.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.in(10 * time.Second)
			if n := len(s.when(memory.OpRead, "a")); n != 1 {
				t.Errorf("read %d times", n)
			}
			if n := s.target.Counts().Groups; n != 2 {
				t.Errorf("listed %d times", n)
			}
		},
		"the queue shows what is due and for how long": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.opts.Workers = 1
			s.hooks.Delay = time.Second
			s.starts().has(fleet(10, 1)...).in(3500 * ms)
			if st := s.status(); st.Queue != 7 || st.OldestDue < 2*time.Second || st.InSync() {
				t.Errorf("queue %d, oldest %v", st.Queue, st.OldestDue)
			}
			if got := s.of("s9"); got.Reason != bridge.ReasonPending && got.Reason != bridge.ReasonSynced {
				t.Errorf("%+v", got)
			}
		},
		"a service without a service key says so": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.bridges[0].Project = func(*registry.Service) ([]registry.Entry, error) { return nil, nil }
			s.starts().has(service("a", "10.0.0.1:80")).reason("a", bridge.ReasonEmpty, "no service key")
		},
	})
}
