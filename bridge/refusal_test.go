package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// picky is a target that refuses some keys and does the rest, or, if it does
// not say which, nothing at all.
type picky struct {
	session
	mute   bool
	torn   bool // as mute, and yet it does the rest
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
	refused := make(registry.Refused)
	for _, w := range c.Put {
		if p.refuses(w.New.Key) {
			refused[w.New.Key] = errors.New("it may not be written")
		}
	}
	for _, h := range c.Delete {
		if p.refuses(h.Key) {
			refused[h.Key] = errors.New("it may not be deleted")
		}
	}
	for _, e := range c.Want { // what is reported of the whole has to be what will be there
		if p.refuses(e.Key) && !refused.Has(e.Key) {
			return fmt.Errorf("%s is wanted and not written", e.Key)
		}
	}
	if p.mute && len(refused) > 0 {
		return fmt.Errorf("%w: something of it", registry.ErrRefused)
	}
	if err := p.session.Write(ctx, c.Except(refused)); err != nil {
		return err
	}
	if p.torn && len(refused) > 0 {
		return fmt.Errorf("%w: something of it", registry.ErrRefused)
	}
	return refused.Err()
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
		"a refused entry delays no other change of its group": func(t *testing.T) {
			s, _ := refusing(t, service("a", "10.0.0.1:80", "10.0.0.2:80", "10.9.0.1:80"))
			s.holds("a 10.0.0.1:80", "a 10.0.0.2:80").reason("a", bridge.ReasonRefused, "10.9.0.1:80")
			s.table().Put(service("a", "10.0.0.2:80", "10.0.0.3:80", "10.9.0.1:80"))
			s.in(time.Second).holds("a 10.0.0.2:80", "a 10.0.0.3:80")
			s.table().Put(service("a", "10.0.0.3:80*5", "10.9.0.1:80"))
			s.in(time.Second).holds("a 10.0.0.3:80").reason("a", bridge.ReasonRefused, "10.9.0.1:80")
			s.table().Put(service("a", "10.0.0.3:80*5"))
			s.in(time.Second).holds("a 10.0.0.3:80").reason("a", bridge.ReasonSynced, "")
		},
		"a refused replacement leaves what it was to replace to the guard": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.make()
			p := picks(s, func(key string) bool { return strings.HasPrefix(key, "10.9") })
			s.starts(p).has(service("a", "10.0.0.1:80"), service("b", "10.0.0.1:80")).in(10 * time.Minute)
			s.table().Put(service("a", "10.9.0.1:80"))
			s.in(5*time.Second).holds("a 10.0.0.1:80", "b 10.0.0.1:80").reason("a", bridge.ReasonRefused, "10.9.0.1:80")
			p.refuse(func(string) bool { return false })
			s.in(31*time.Second).holds("a 10.9.0.1:80", "b 10.0.0.1:80")
		},
		"what is counted as ours is what the target holds after a refusal, and it is not in sync": func(t *testing.T) {
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
		"what is refused is tried again at the slowest rate, all of it together": func(t *testing.T) {
			s, p := refusing(t, service("a", "10.9.0.1:80", "10.9.0.2:80", "10.9.0.3:80", "10.0.0.1:80"))
			before := p.writes.Load()
			s.in(5 * time.Minute)
			if n := p.writes.Load() - before; n < 9 || n > 11 { // Retry.Max is 30 s
				t.Errorf("tried %d times in 5 minutes", n)
			}
			p.refuse(func(string) bool { return false })
			s.in(31*time.Second).holds("a 10.0.0.1:80", "a 10.9.0.1:80", "a 10.9.0.2:80", "a 10.9.0.3:80").reason("a", bridge.ReasonSynced, "")
		},
		"what is refused anew all the time does not delay what was refused before": func(t *testing.T) {
			s, p := refusing(t, service("a", "10.9.0.1:80", "10.0.0.1:80"))
			for i := range 6 {
				s.table().Put(service("a", "10.9.0.1:80", "10.0.0.1:80", fmt.Sprintf("10.9.1.%d:80", i)))
				s.in(4 * time.Second)
			}
			p.refuse(func(string) bool { return false })
			s.in(10*time.Second).holds("a 10.0.0.1:80", "a 10.9.0.1:80", "a 10.9.1.5:80").reason("a", bridge.ReasonSynced, "")
		},
		"where no key is named all that was tried is refused, and what changes later is written": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.make()
			p := picks(s, func(key string) bool { return key == "10.0.0.5:80" })
			p.mute = true
			s.starts(p).has(service("a", "10.0.0.4:80", "10.0.0.5:80")).in(time.Minute).holds().reason("a", bridge.ReasonRefused, "something of it")
			if n := p.writes.Load(); n > 3 { // Retry.Max is 30 s
				t.Errorf("tried %d times in a minute", n)
			}
			s.table().Put(service("a", "10.0.0.4:80", "10.0.0.5:80", "10.0.0.6:80"))
			s.in(time.Second).holds("a 10.0.0.6:80")
			s.table().Put(service("a", "10.0.0.4:80", "10.0.0.6:80"))
			s.in(30*time.Second).holds("a 10.0.0.4:80", "a 10.0.0.6:80").reason("a", bridge.ReasonSynced, "")
		},
		"where no key is named, what was written all the same is found": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.make()
			p := picks(s, func(key string) bool { return key == "10.0.0.5:80" })
			p.torn = true
			s.starts(p).has(service("a", "10.0.0.4:80", "10.0.0.5:80")).in(time.Second).holds("a 10.0.0.4:80")
			if st := s.status(); st.Owned != 1 {
				t.Errorf("owns %d", st.Owned)
			}
		},
		"a standby tries nothing again, until it leads": func(t *testing.T) {
			s, e := elected(t, leader(1), speed)
			s.make()
			p := picks(s, func(key string) bool { return key == "10.0.0.5:80" })
			s.starts(p).has(service("a", "10.0.0.4:80", "10.0.0.5:80")).in(time.Second).reason("a", bridge.ReasonRefused, "10.0.0.5:80")
			before := p.writes.Load()
			e.set(standby(2))
			s.in(5*time.Minute).reason("a", bridge.ReasonStandby, "")
			if n := p.writes.Load() - before; n > 0 {
				t.Errorf("tried %d times", n)
			}
			e.set(leader(3))
			s.in(time.Second).reason("a", bridge.ReasonRefused, "10.0.0.5:80")
		},
		"a deletion that is refused stays and is shown, delays no other, and is done once it is accepted": func(t *testing.T) {
			s, p := refusing(t, service("a", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))
			p.refuse(func(key string) bool { return key == "10.0.0.1:80" })
			s.table().Put(service("a", "10.0.0.3:80", "10.0.0.4:80"))
			s.in(time.Second).holds("a 10.0.0.1:80", "a 10.0.0.3:80", "a 10.0.0.4:80").reason("a", bridge.ReasonRefused, "10.0.0.1:80")
			p.refuse(func(string) bool { return false })
			s.in(30*time.Second).holds("a 10.0.0.3:80", "a 10.0.0.4:80").reason("a", bridge.ReasonSynced, "")
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
		"each refusal is reported once": func(t *testing.T) {
			told := 0
			s := newStory(t).bridge("b", speed)
			s.opts.OnEvent = func(e bridge.Event) {
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
		"an update that is refused is no loss": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.make()
			p := picks(s, func(key string) bool { return strings.HasPrefix(key, "10.9") })
			p.refuse(func(string) bool { return false })
			s.starts(p).has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.1:80")).in(10 * time.Minute)
			p.refuse(func(string) bool { return true })
			s.has(service("a", "10.0.0.1:80*5", "10.0.0.2:80*5"), service("b", "10.0.0.1:80*5")).in(5 * time.Second)
			s.table().Put(service("a", "10.0.0.1:80*6"))
			s.in(5 * time.Minute).noHold()
		},
	})
}
