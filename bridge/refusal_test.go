package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// picky is a target that refuses some entries: it writes the rest, as ZooKeeper
// and Nacos do, or nothing at all.
type picky struct {
	session
	whole  bool
	writes atomic.Int64
	rule   atomic.Pointer[func(key string) bool]
}

// picks returns the target of a story that refuses keys by a rule.
func picks(s *story, rule func(key string) bool) *picky {
	p := &picky{session: session{s.target}}
	p.refuse(rule)
	return p
}

// refuse replaces the rule of what is refused.
func (p *picky) refuse(rule func(key string) bool) { p.rule.Store(&rule) }

func (p *picky) refuses(key string) bool { return (*p.rule.Load())(key) }

func (p *picky) Write(ctx context.Context, c registry.Change) error {
	p.writes.Add(1)
	var bad []string
	for _, w := range c.Put {
		if p.refuses(w.New.Key) {
			bad = append(bad, w.New.Key)
		}
	}
	for _, e := range c.Want { // what is told of the whole has to be what will be there
		if p.refuses(e.Key) && !slices.Contains(bad, e.Key) {
			return fmt.Errorf("%s is wanted and not written", e.Key)
		}
	}
	refused := error(nil)
	if len(bad) > 0 {
		refused = fmt.Errorf("%w: %s", registry.ErrRefused, strings.Join(bad, ", "))
		c.Put = slices.DeleteFunc(slices.Clone(c.Put), func(w registry.Write) bool { return p.whole || slices.Contains(bad, w.New.Key) })
		c.Want = slices.DeleteFunc(slices.Clone(c.Want), func(e registry.Entry) bool { return slices.Contains(bad, e.Key) })
		if p.whole {
			return refused
		}
	}
	return errors.Join(p.session.Write(ctx, c), refused)
}

// refusing starts a story with a target that refuses the addresses of 10.9.
func refusing(t *testing.T, services ...*registry.Service) (*story, *picky) {
	t.Helper()
	s := newStory(t).bridge("b", speed)
	s.make()
	p := picks(s, func(key string) bool { return strings.HasPrefix(key, "10.9") })
	s.starts(p).has(services...).in(2 * time.Second)
	return s, p
}

func TestRefusals(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"V60 a refused entry delays no other change of its group": func(t *testing.T) {
			s, _ := refusing(t, service("a", "10.0.0.1:80", "10.0.0.2:80", "10.9.0.1:80"))
			s.holds("a 10.0.0.1:80", "a 10.0.0.2:80").reason("a", bridge.ReasonRefused, "10.9.0.1:80")
			s.table().Put(service("a", "10.0.0.2:80", "10.0.0.3:80", "10.9.0.1:80"))
			s.in(time.Second).holds("a 10.0.0.2:80", "a 10.0.0.3:80")
			s.table().Put(service("a", "10.0.0.3:80*5", "10.9.0.1:80"))
			s.in(time.Second).holds("a 10.0.0.3:80").reason("a", bridge.ReasonRefused, "10.9.0.1:80")
			s.table().Put(service("a", "10.0.0.3:80*5"))
			s.in(time.Second).holds("a 10.0.0.3:80").reason("a", bridge.ReasonSynced, "")
		},
		"V61 what is counted as ours is what the target holds after a refusal, and it is not in sync": func(t *testing.T) {
			s, _ := refusing(t, service("a", "10.0.0.1:80", "10.0.0.2:80", "10.9.0.1:80"), service("b", "10.0.0.1:80"))
			st := s.status()
			if st.Owned != 3 || st.InSync() || st.Queue != 0 {
				t.Errorf("owns %d, in sync %v, %d due", st.Owned, st.InSync(), st.Queue)
			}
			s.reason("b", bridge.ReasonSynced, "")
			if _, _, err := s.settles(time.Minute); err != nil {
				t.Error(err)
			}
		},
		"what is refused is tried again at the slowest rate, a little at a time, and all of it once some is taken": func(t *testing.T) {
			s, p := refusing(t, service("a", "10.9.0.1:80", "10.9.0.2:80", "10.9.0.3:80", "10.0.0.1:80"))
			before := p.writes.Load()
			s.in(5 * time.Minute)
			if n := p.writes.Load() - before; n < 9 || n > 11 { // Retry.Max is 30 s
				t.Errorf("tried %d times in 5 minutes", n)
			}
			p.refuse(func(string) bool { return false })
			s.in(31*time.Second).holds("a 10.0.0.1:80", "a 10.9.0.1:80", "a 10.9.0.2:80", "a 10.9.0.3:80").reason("a", bridge.ReasonSynced, "")
		},
		"where one entry lets the whole be refused, the others are found and written": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.make()
			p := picks(s, func(key string) bool { return key == "10.0.0.5:80" })
			p.whole = true
			s.starts(p).has(fleet(1, 20)...).in(3*time.Minute).holdsN(19).reason("s0", bridge.ReasonRefused, "10.0.0.5:80")
			if s.writes() > 40 {
				t.Errorf("%d writes", s.writes())
			}
			s.table().Put(service("s0", "10.0.0.1:80"))
			s.in(time.Second).holds("s0 10.0.0.1:80")
		},
		"an update that is refused keeps what is there, and a value that may be written is": func(t *testing.T) {
			s, p := refusing(t, service("a", "10.0.0.1:80", "10.0.0.2:80"))
			p.refuse(func(key string) bool { return key == "10.0.0.1:80" })
			p.session = session{s.target}
			s.table().Put(service("a", "10.0.0.1:80*7", "10.0.0.2:80*7"))
			s.in(time.Second).reason("a", bridge.ReasonRefused, "10.0.0.1:80")
			p.refuse(func(string) bool { return false })
			s.table().Put(service("a", "10.0.0.1:80*8", "10.0.0.2:80*7"))
			s.in(time.Second).reason("a", bridge.ReasonSynced, "")
		},
		"each refusal is told of once": func(t *testing.T) {
			told := 0
			s := newStory(t).bridge("b", speed)
			s.opts.Tell = func(e bridge.Event) {
				if e.Kind == bridge.EventRefused {
					told++
				}
			}
			s.make()
			s.starts(picks(s, func(key string) bool { return key == "10.0.0.1:80" }))
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Hour)
			if told != 1 {
				t.Errorf("told %d times", told)
			}
		},
	})
}
