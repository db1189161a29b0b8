package bridge_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// forgetful is a target that confirms the first writes and keeps nothing of
// them, as a Nacos does that is starting.
type forgetful struct {
	session
	forgets int
}

func (*forgetful) VerifyAfter() time.Duration { return time.Second }

func (f *forgetful) Write(ctx context.Context, c registry.Change) error {
	if f.forgets > 0 {
		f.forgets--
		return nil
	}
	return f.session.Write(ctx, c)
}

// edited is a target that shows everything otherwise than it was written, as a
// Nacos does in whose console somebody set something.
type edited struct {
	forgetful
	by atomic.Bool
}

func (e *edited) Read(ctx context.Context, g registry.Group) ([]registry.Held, error) {
	held, err := e.session.Read(ctx, g)
	for i := range held {
		if e.by.Load() {
			held[i].Value += "edited"
		}
	}
	return held, err
}

func (e *edited) Write(ctx context.Context, c registry.Change) error {
	c.Put = slices.Clone(c.Put)
	for i, w := range c.Put {
		if w.Old != nil {
			old := *w.Old
			old.Value = strings.TrimSuffix(old.Value, "edited")
			c.Put[i].Old = &old
		}
	}
	return e.forgetful.Write(ctx, c)
}

// published is a target in which another connection of ours publishes too, as
// several may in Nacos: what it has goes with it.
type published struct {
	session
	elsewhere atomic.Bool
	asked     atomic.Int64
}

func (p *published) Write(ctx context.Context, c registry.Change) error {
	if p.asked.Add(1); len(c.Delete) > 0 && p.elsewhere.Load() {
		return registry.ErrConflict
	}
	return p.session.Write(ctx, c)
}

func TestReadBack(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"what is shown otherwise whatever is written is reported, shown, and written once a refresh": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			events := listens(s)
			s.make()
			target := &edited{forgetful: forgetful{session{s.target}, 0}}
			s.starts(target).has(service("a", "10.0.0.1:80")).in(time.Minute).reason("a", bridge.ReasonSynced, "")
			target.by.Store(true)
			s.in(time.Hour).reason("a", bridge.ReasonRefused, "otherwise than it was written")
			if n := len(*events); n < 2 || n > 4 || !strings.Contains((*events)[n-1].Why, "console") {
				t.Errorf("%d events: %+v", n, *events)
			}
			before := s.writes()
			if s.in(time.Hour); s.writes()-before > 14 {
				t.Errorf("%d writes in an hour", s.writes()-before)
			}
			target.by.Store(false)
			s.in(s.opts.Refresh*2).reason("a", bridge.ReasonSynced, "")
		},
		"what only another connection of ours can delete is reported once, shown, and asked ever less often": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			events := listens(s)
			s.make()
			target := &published{session: session{s.target}}
			s.starts(target).has(service("a", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")).in(time.Hour)
			target.elsewhere.Store(true)
			s.table().Put(service("a", "10.0.0.1:80", "10.0.0.2:80"))
			s.in(10*time.Minute).reason("a", bridge.ReasonRefused, "another process of this owner")
			told := slices.DeleteFunc(slices.Clone(*events), func(e bridge.Event) bool { return e.Kind != bridge.EventDrift })
			if len(told) != 1 || !strings.Contains(told[0].Why, "another process of this owner") || told[0].Subject == "" {
				t.Errorf("events: %+v", told)
			}
			before := target.asked.Load()
			if s.in(time.Hour); target.asked.Load()-before > 130 {
				t.Errorf("asked %d times in an hour", target.asked.Load()-before)
			}
			target.elsewhere.Store(false)
			s.in(s.opts.Refresh).holds("a 10.0.0.1:80", "a 10.0.0.2:80").reason("a", bridge.ReasonSynced, "")
		},
		"what was confirmed and is not there is written again a second later": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.make()
			s.starts(&forgetful{session{s.target}, 1}).has(service("a", "10.0.0.1:80"))
			s.in(900 * ms).holds()
			s.in(200 * ms).holds("a 10.0.0.1:80")
			s.in(time.Minute)
			if at := s.when(memory.OpRead, "a"); !slices.Equal(at, []time.Duration{time.Second, 3 * time.Second}) {
				t.Errorf("read at %v, want after the first write and after the second, and then no more", at)
			}
		},
		"one that never keeps anything is asked ever less often": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.make()
			s.starts(&forgetful{session{s.target}, 1000}).has(service("a", "10.0.0.1:80")).in(time.Hour)
			if n := len(s.when(memory.OpRead, "a")); n < 15 || n > 30 {
				t.Errorf("read %d times in an hour", n)
			}
		},
		"changes that continue put the reading back off, and never each other": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.make()
			s.starts(&forgetful{session{s.target}, 0})
			for i := range 20 {
				s.has(service("a", []string{"10.0.0.1:80", "10.0.0.1:80*7"}[i%2])).in(500 * ms)
			}
			if n := len(s.when(memory.OpRead, "a")); n != 0 || s.writes() != 20 {
				t.Errorf("%d reads and %d writes, want none and 20", n, s.writes())
			}
			s.in(time.Second)
			if n := len(s.when(memory.OpRead, "a")); n != 1 {
				t.Errorf("%d reads after the last write, want 1", n)
			}
		},
		"what was lost is written once more without a reading, all at once, and read back": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.hooks.Delay = 100 * ms
			s.opts.Workers = 8
			s.make()
			s.starts(&forgetful{session{s.target}, 0}).has(fleet(8, 2)...).in(time.Minute)
			writes, reads := s.writes(), s.target.Counts().Reads
			s.target.Expire()
			s.in(150 * ms).holdsN(16)
			if n := s.writes() - writes; n != 8 {
				t.Errorf("%d writes, want each of 8 groups once", n)
			}
			if n := s.target.Counts().Reads - reads; n != 0 {
				t.Errorf("%d readings before the writes", n)
			}
			s.in(2 * time.Second)
			if n := s.target.Counts().Reads - reads; n != 8 || s.writes()-writes != 8 {
				t.Errorf("%d readings back and %d writes, want 8 and 8", n, s.writes()-writes)
			}
		},
		"a group that was emptied is forgotten once that was seen": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.make()
			s.starts(&forgetful{session{s.target}, 0}).has(service("a", "10.0.0.1:80")).in(time.Minute)
			s.table().Apply(nil, []registry.Name{"a"})
			s.in(time.Minute).holds()
			if n := len(s.when(memory.OpRead, "a")); n != 2 {
				t.Errorf("%d reads, want one after each write", n)
			}
		},
	})
}
