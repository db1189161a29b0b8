package bridge_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// waiting is a target that is not sure yet whether another writes there.
type waiting struct {
	session
	admitted atomic.Bool
}

func (w *waiting) Admission() error {
	if w.admitted.Load() {
		return nil
	}
	return errDown
}

func TestLoop(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"writes, changes and deletes": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.3:80"))
			s.holds("a 10.0.0.1:80", "a 10.0.0.2:80", "b 10.0.0.3:80")
			s.in(time.Second).table().Put(service("a", "10.0.0.2:80*5"))
			s.in(0).holds("a 10.0.0.2:80", "b 10.0.0.3:80")
			if v := s.target.Entries()[0].Value; v != `{"weight":5}` {
				t.Errorf("value %s", v)
			}
			s.table().Delete("b")
			s.in(0).holds("a 10.0.0.2:80").reason("a", bridge.ReasonSynced, "")
			if s.of("b").Service != "" {
				t.Error("a service that is gone is still shown")
			}
		},
		"leaves the entries of others alone": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding(theirs("a", "10.0.0.9:80")).starts()
			s.has(service("a", "10.0.0.9:80", "10.0.0.1:80")).holds("a 10.0.0.1:80", "a 10.0.0.9:80")
			s.reason("a", bridge.ReasonConflict, "10.0.0.9:80 belongs to owner mark:other")
			s.in(time.Second).table().Delete("a")
			s.in(0).holds("a 10.0.0.9:80")
			if c := s.target.Counts(); c.Put != 1 || c.Deleted != 1 {
				t.Errorf("%+v", c)
			}
		},
		"several entries of another are one reason": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding(theirs("a", "10.0.0.8:80"), theirs("a", "10.0.0.9:80")).starts()
			s.has(service("a", "10.0.0.8:80", "10.0.0.9:80", "10.0.0.1:80")).reason("a", bridge.ReasonConflict, "2 entries belong to owner mark:other")
			if n := len(s.status().Conflicts); n != 2 {
				t.Errorf("%d conflicts are listed", n)
			}
		},
		"a conflict is logged and counted once, and shown until it ends": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding(theirs("a", "10.0.0.9:80")).starts()
			s.has(service("a", "10.0.0.9:80")).in(time.Hour)
			if n := strings.Count(s.log.String(), "claim refused"); n != 1 || s.count(bridge.ObservedConflict, "") != 1 {
				t.Errorf("logged %d times, counted %d", n, s.count(bridge.ObservedConflict, ""))
			}
			want := bridge.Conflict{Group: group("a"), Key: "10.0.0.9:80", Bridge: "b", Service: "a", Winner: "owner mark:other"}
			if got := s.status().Conflicts; len(got) != 1 || got[0] != want {
				t.Errorf("%+v", got)
			}
			s.target.Drop(group("a"), "10.0.0.9:80")
			s.in(10*time.Minute).holds("a 10.0.0.9:80").reason("a", bridge.ReasonSynced, "")
		},
		"pushes of what is known write nothing": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(fleet(20, 3)...).in(time.Second)
			before := s.target.Counts()
			for range 10 {
				s.has(fleet(20, 3)...).in(time.Second)
			}
			if got := s.target.Counts(); got != before {
				t.Errorf("calls %+v, before %+v", got, before)
			}
		},
		"a restart writes the difference, and nothing where there is none": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).holding(mine("a", "10.0.0.1:80"), mine("b", "10.0.0.2:80")).starts()
			s.has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")).in(time.Hour)
			if n := s.writes(); n != 0 {
				t.Errorf("%d writes", n)
			}
			s.stop()
			next := newStory(t).bridge("b", bridge.DefaultGuard())
			next.target = s.target
			next.starts().has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80", "10.0.0.3:80"))
			next.in(time.Hour).holds("a 10.0.0.1:80", "b 10.0.0.2:80", "b 10.0.0.3:80")
			if c := s.target.Counts(); c.Put != 1 || c.Deleted != 0 {
				t.Errorf("%+v", c)
			}
		},
		"A steady state logs nothing": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(fleet(5, 2)...).in(3 * time.Hour)
			if log := s.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, `msg="in sync" target=memory entries=10`) {
				t.Error(log)
			}
			if st := s.status(); !st.InSync() || st.Owned != 10 || st.Groups != 5 || st.Bridges[0].Entries != 10 {
				t.Errorf("%+v", st)
			}
		},
		"It is logged that all is in sync once the target may be written to": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding()
			target := &waiting{session: session{s.target}}
			s.starts(target).has(fleet(5, 2)...).in(time.Minute)
			if log := s.log.String(); !s.status().InSync() || log != "" {
				t.Errorf("before: %s", log)
			}
			target.admitted.Store(true)
			s.status()
			if log := s.log.String(); !strings.Contains(log, "in sync") {
				t.Errorf("after: %s", log)
			}
		},
		"drift is found by a refresh and repaired": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Second)
			s.target.Drop(group("a"), "10.0.0.1:80")
			s.in(time.Minute).holds().in(5 * time.Minute).holds("a 10.0.0.1:80")
			if n := s.count(bridge.ObservedDrift, ""); n != 1 {
				t.Errorf("drift counted %d times", n)
			}
		},
		"a resync finds it at once": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Second)
			s.target.Drop(group("a"), "10.0.0.1:80")
			if err := s.loop.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.in(0).holds("a 10.0.0.1:80")
		},
		"reads what is not its own only once": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding(theirs("a", "10.0.0.9:80")).starts()
			s.has().in(time.Hour)
			if n := s.target.Counts().Reads; n != 1 {
				t.Errorf("%d reads", n)
			}
		},
		"a service that cannot be projected is left as it was, logged once": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).starts()
			s.has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")).in(time.Second)
			for i := range 5 {
				bad := service("a", "10.0.0."+string(rune('3'+i))+":80")
				bad.Attributes = registry.Attributes{"bad": "no such interface"}
				s.table().Put(bad)
				s.in(time.Second)
			}
			s.holds("a 10.0.0.1:80", "b 10.0.0.2:80").reason("a", bridge.ReasonInvalid, "no such interface").reason("b", bridge.ReasonSynced, "")
			if n := strings.Count(s.log.String(), "service cannot be written"); n != 1 || s.count(bridge.ObservedInvalid, "") != 1 {
				t.Errorf("logged %d times, counted %d", n, s.count(bridge.ObservedInvalid, ""))
			}
			s.table().Put(service("a", "10.0.0.4:80"))
			s.in(time.Second).holds("a 10.0.0.4:80", "b 10.0.0.2:80").reason("a", bridge.ReasonSynced, "")
		},
		"what is not offered, and what is not selected, claims nothing and says so": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.bridges[0].Project = selected(func(s *registry.Service) error {
				if s.Name == "x" {
					return errDown
				}
				return nil
			})
			ill := service("ill", "10.0.0.1:80")
			ill.Endpoints[0].Health = registry.Draining
			s.starts().has(ill, service("x", "10.0.0.2:80")).holds()
			s.reason("ill", bridge.ReasonEmpty, "no offered endpoint").reason("x", bridge.ReasonExcluded, "down")
			s.has(ill, service("x", "10.0.0.2:80"), service("keyless")).reason("keyless", bridge.ReasonEmpty, "")
		},
		"nothing is synced before every source delivered": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).bridge("c", speed).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Minute)
			if st := s.status(); st.InSync() || !st.Bridges[0].Synced || st.Bridges[1].Synced {
				t.Errorf("in sync before the second source delivered: %+v", st.Bridges)
			}
			s.tables["c"].Replace(func(func(*registry.Service) bool) {})
			s.in(0)
			if st := s.status(); !st.InSync() {
				t.Errorf("%+v", st)
			}
		},
		"a loop that starts late gets a replay of what the source reported before": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			s.table().Put(service("a", "10.0.0.1:80"))
			s.table().Put(service("a", "10.0.0.2:80"))
			s.starts().holds("a 10.0.0.2:80")
		},
		"two bridges into one target do not delete each other's entries": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).bridge("c", bridge.DefaultGuard()).starts()
			s.tables["c"].Replace(func(yield func(*registry.Service) bool) { yield(service("z", "10.0.0.2:80")) })
			s.has(service("a", "10.0.0.1:80")).in(time.Hour).holds("a 10.0.0.1:80", "z 10.0.0.2:80")
			if c := s.target.Counts(); c.Deleted != 0 || c.Put != 2 {
				t.Errorf("%+v", c)
			}
		},
		"of two bridges that claim one key the first configured has it": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).bridge("c", speed).starts()
			s.tables["c"].Replace(func(yield func(*registry.Service) bool) { yield(service("a", "10.0.0.1:80*2")) })
			s.has(service("a", "10.0.0.1:80*1")).in(time.Second)
			if v := s.target.Entries()[0].Value; v != `{"weight":1}` {
				t.Errorf("value %s", v)
			}
			if got := s.status().Conflicts; len(got) != 1 || got[0].Bridge != "c" || got[0].Winner != "bridge b, service a" {
				t.Errorf("%+v", got)
			}
			s.table().Delete("a")
			s.in(time.Second).holds("a 10.0.0.1:80")
			if v := s.target.Entries()[0].Value; v != `{"weight":2}` || s.target.Counts().Deleted != 0 {
				t.Errorf("value %s, %+v", v, s.target.Counts())
			}
		},
		"two tables read by one loop, one table read by two bridges": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).bridge("c", speed)
			s.bridges[1].Table = s.table()
			s.bridges[1].Project = func(sv *registry.Service) ([]registry.Entry, error) {
				return []registry.Entry{{Group: group("other-" + string(sv.Name)), Key: "k", Value: "v"}}, nil
			}
			s.starts().has(service("a", "10.0.0.1:80")).holds("a 10.0.0.1:80", "other-a k")
			s.table().Delete("a")
			s.in(time.Second).holds()
		},
	})
}

func TestNew(t *testing.T) {
	good := func() bridge.Bridge {
		return bridge.Bridge{Name: "b", Table: registry.NewTable(), Project: perService}
	}
	tests := map[string]struct {
		change func(*bridge.Bridge)
		want   string
	}{
		"a bridge without a name":  {func(b *bridge.Bridge) { b.Name = "" }, "needs a name"},
		"a bridge without a table": {func(b *bridge.Bridge) { b.Table = nil }, "needs a table"},
		"a policy nobody knows":    {func(b *bridge.Bridge) { b.Policy = "rsync" }, `unknown policy "rsync"`},
		"a mode nobody knows":      {func(b *bridge.Bridge) { b.Guard.Mode = "on" }, `unknown mode "on"`},
		"a share that is no share": {func(b *bridge.Bridge) { b.Guard.Share = 30 }, "not between 0 and 1"},
		"twice the same name":      {func(b *bridge.Bridge) { b.Name = "twin" }, "two of that name"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := good()
			tt.change(&b)
			twin := good()
			twin.Name = "twin"
			target := newStory(t).holding().target
			_, err := bridge.New(target, []bridge.Bridge{twin, b}, bridge.Options{Owner: "me"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	if _, err := bridge.New(nil, nil, bridge.Options{}); err == nil {
		t.Error("a loop out of nothing")
	}
}
