package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestLoop(t *testing.T) {
	stories(t, speed, map[string]func(*story){
		"writes, changes and deletes": func(s *story) {
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.3:80"))
			s.stores("a 10.0.0.1:80", "a 10.0.0.2:80", "b 10.0.0.3:80")
			s.in(time.Second).put(service("a", "10.0.0.2:80*5")).in(0).stores("a 10.0.0.2:80", "b 10.0.0.3:80").weighs(5, 0)
			s.delete("b").in(0).stores("a 10.0.0.2:80").reason("a", bridge.ReasonSynced, "")
			s.is("b", s.of("b").Service, registry.Name(""))
		},
		"entries of others are not touched": func(s *story) {
			s.storing(theirs("a", "10.0.0.8:80"), theirs("a", "10.0.0.9:80"))
			s.has(service("a", "10.0.0.9:80", "10.0.0.1:80")).stores("a 10.0.0.1:80", "a 10.0.0.8:80", "a 10.0.0.9:80")
			s.reason("a", bridge.ReasonConflict, "10.0.0.9:80 belongs to owner mark:other")
			s.put(service("a", "10.0.0.8:80", "10.0.0.9:80")).in(time.Second).stores("a 10.0.0.8:80", "a 10.0.0.9:80")
			s.reason("a", bridge.ReasonConflict, "2 entries belong to owner mark:other")
			s.delete("a").in(time.Second).stores("a 10.0.0.8:80", "a 10.0.0.9:80").wrote(1, 1)
		},
		"another owner is named where its name is known": func(s *story) {
			s.opts.OwnerName = func(mark string) string { return map[string]string{"other": "shop-migration"}[mark] }
			s.storing(theirs("a", "10.0.0.9:80")).has(service("a", "10.0.0.9:80")).in(time.Minute)
			s.reason("a", bridge.ReasonConflict, "10.0.0.9:80 belongs to owner shop-migration")
		},
		"a conflict is reported once until it ends": func(s *story) {
			s.storing(theirs("a", "10.0.0.9:80")).has(service("a", "10.0.0.9:80")).in(time.Hour)
			s.logged("claim refused", 1).is("observed", s.count(bridge.ObservedConflict, ""), 1)
			if e := s.emitted(); len(e) != 1 || e[0].Kind != bridge.EventConflict || !strings.Contains(e[0].Why, "belongs to") {
				s.Errorf("events = %+v, want one conflict", e)
			}
			want := bridge.Conflict{Group: group("a"), Key: "10.0.0.9:80", Bridge: "b", Service: "a", Winner: "owner mark:other"}
			s.is("Conflicts", s.status().Conflicts, []bridge.Conflict{want})
			s.target.Drop(group("a"), "10.0.0.9:80")
			s.in(10*time.Minute).stores("a 10.0.0.9:80").reason("a", bridge.ReasonSynced, "")
		},
		"an unwritable service has no entries, logged once": func(s *story) {
			s.has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")).in(time.Second)
			for i := range 5 {
				s.put(with(service("a", fmt.Sprintf("10.0.0.%d:80", i+3)), "bad", "no such interface")).in(time.Second)
			}
			s.stores("b 10.0.0.2:80").reason("a", bridge.ReasonUnwritable, "no such interface").reason("b", bridge.ReasonSynced, "")
			s.logged("service cannot be written", 1).is("observed", s.count(bridge.ObservedUnwritable, ""), 1)
			s.put(service("a", "10.0.0.4:80")).in(time.Second).stores("a 10.0.0.4:80", "b 10.0.0.2:80").reason("a", bridge.ReasonSynced, "")
		},
		"an unwritten service says why": func(s *story) {
			ill := service("ill", "10.0.0.1:80")
			ill.Endpoints[0].Health = registry.Draining
			s.has(service("gone", "10.0.0.2:80")).in(time.Second).stores("gone 10.0.0.2:80")
			s.has(
				ill, service("none"), with(service("gone", "127.0.0.1:80"), "unreachable", "loopback address"),
				with(service("key", "10.0.0.3:80"), "keyless", "yes"), with(service("left", "10.0.0.4:80"), "skipped", "by its name"),
				with(service("part", "10.0.0.5:80"), "partly", "too long: zz"),
			).in(time.Second).stores("part 10.0.0.5:80").reason("part", bridge.ReasonSynced, "too long: zz")
			s.reason("ill", bridge.ReasonEmpty, "no offered endpoint").reason("none", bridge.ReasonEmpty, "no offered endpoint")
			s.reason("key", bridge.ReasonEmpty, "no service key").reason("left", bridge.ReasonSkipped, "by its name")
			s.reason("gone", bridge.ReasonUnwritable, "loopback address").inSync(false).is("observed", s.count(bridge.ObservedUnwritable, ""), 1)
		},
		"the first of two bridges has a key": func(s *story) {
			s.bridge("c", speed).starts().also("c", service("a", "10.0.0.1:80*2"), service("z", "10.0.0.2:80"))
			s.has(service("a", "10.0.0.1:80*1")).in(time.Second).weighs(1, 0)
			if got := s.status().Conflicts; len(got) != 1 || got[0].Bridge != "c" || got[0].Winner != "bridge b, service a" {
				s.Errorf("Conflicts = %+v, want one of c, won by b", got)
			}
			s.delete("a").in(time.Second).stores("a 10.0.0.1:80", "z 10.0.0.2:80").weighs(2, 0).wrote(3, 0)
		},
		"a bridge that may not begin yet": func(s *story) {
			s.bridge("c", speed).storing(mine("old", "10.0.0.9:80"))
			known := make(chan struct{})
			s.bridges[0].Begin = func(ctx context.Context) error {
				select {
				case <-known:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			s.reports(service("x", "10.0.0.1:80")).also("c", service("y", "10.0.0.2:80")).starts()
			s.in(time.Hour).stores("old 10.0.0.9:80", "y 10.0.0.2:80").inSync(false).is("synced", s.status().Bridges[0].Synced, false)
			close(known)
			s.in(time.Minute).stores("x 10.0.0.1:80", "y 10.0.0.2:80").inSync(true).is("synced", s.status().Bridges[0].Synced, true)
		},
	})
}

func TestLoop_DefaultGuard(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a steady state logs one line": func(s *story) {
			s.has(fleet(5, 2)...).in(3*time.Hour).logged("\n", 1).logged(`msg="in sync" target=memory entries=10`, 1)
			st := s.inSync(true).status()
			s.is("owned, groups, entries", []int{st.Owned, st.Groups, st.Bridges[0].Entries}, []int{10, 5, 10})
		},
		"in sync is logged once writes are admitted": func(s *story) {
			s.target.admission = errDown
			s.has(fleet(5, 2)...).in(time.Minute).inSync(true).is("log", s.log.String(), "")
			s.target.admission = nil
			s.inSync(true).logged("in sync", 1)
		},
		"a refresh finds drift": func(s *story) {
			s.has(service("a", "10.0.0.1:80")).in(time.Second).target.Drop(group("a"), "10.0.0.1:80")
			s.in(time.Minute).stores().in(5*time.Minute).stores("a 10.0.0.1:80").is("drift", s.count(bridge.ObservedDrift, ""), 1)
			s.is("event", s.emitted()[0].Kind, bridge.EventDrift).says("subject", s.emitted()[0].Subject, "a")
			s.target.Drop(group("a"), "10.0.0.1:80")
			s.resync().in(0).stores("a 10.0.0.1:80") // at once
		},
		"a resync reaches groups with a call in flight": func(s *story) {
			s.target.delay = time.Second
			s.has(service("a", "10.0.0.1:80")).in(1500 * ms).resync().in(10 * time.Second)
			s.is("reads", len(s.when(memory.OpRead, "a")), 1).is("lists", s.target.Counts().Groups, 2)
		},
		"sessions that ended for good": func(s *story) {
			s.starts(expired{s.target}).has(service("a", "10.0.0.1:80")).in(time.Hour).stores("a 10.0.0.1:80")
		},
	})
}

func TestNew(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*bridge.Bridge)
		want   string
	}{
		"a bridge without a name":  {func(b *bridge.Bridge) { b.Name = "" }, "name is missing: set Name"},
		"a bridge without a table": {func(b *bridge.Bridge) { b.Table = nil }, "is missing: set Table"},
		"an unknown policy":        {func(b *bridge.Bridge) { b.Policy = "rsync" }, `unknown policy "rsync"`},
		"an unknown mode":          {func(b *bridge.Bridge) { b.Guard.Mode = "on" }, `unknown guard mode "on"`},
		"a share above one":        {func(b *bridge.Bridge) { b.Guard.Share = 30 }, "must be between 0 and 1"},
		"twice the same name":      {func(b *bridge.Bridge) { b.Name = "first" }, "duplicate name"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t).bridge("first", speed).bridge("b", speed).storing()
			tt.change(&s.bridges[1])
			if _, err := bridge.New(s.target, s.bridges, s.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New() = %v, want …%s…", err, tt.want)
			}
		})
	}
	if _, err := bridge.New(nil, nil, bridge.Options{}); err == nil {
		t.Error("New(nil) = nil, want an error")
	}
}

func TestLoop_Tune(t *testing.T) {
	off := func(mode bridge.Mode) func(*story) {
		return func(s *story) {
			s.bridges[0].Guard = bridge.Guard{Share: 0.3, AtLeast: 1, Window: time.Minute}
			s.has(fleet(10, 1)...).in(time.Minute).loses(0, 9).in(time.Minute).storesN(10).hold()
			if err := s.loop.Tune(s.Context(), map[string]bridge.Guard{"b": {Mode: mode}}, s.opts); err != nil {
				s.Fatal(err)
			}
			s.in(time.Second).storesN(1).noHold().says("log", s.log.String(), "guard.mode is "+string(mode))
		}
	}
	stories(t, speed, map[string]func(*story){
		"off ends a hold":  off(bridge.GuardOff),
		"warn ends a hold": off(bridge.GuardWarn),
		"timing counts from then on": func(s *story) {
			s.has(service("a", "10.0.0.1:80")).in(time.Minute)
			o := s.opts
			o.Debounce, o.MaxDebounce = 10*time.Second, 20*time.Second
			if err := s.loop.Tune(s.Context(), nil, o); err != nil {
				s.Fatal(err)
			}
			s.has(service("a", "10.0.0.2:80")).in(time.Second).has(service("a", "10.0.0.3:80"))
			s.in(5 * time.Second).stores("a 10.0.0.2:80").in(10 * time.Second).stores("a 10.0.0.3:80")
		},
		"a guard that cannot be is refused": func(s *story) {
			if err := s.starts().loop.Tune(s.Context(), map[string]bridge.Guard{"b": {Share: 2}}, s.opts); err == nil {
				s.Error("Tune() = nil, want an error")
			}
		},
	})
}

func TestLoop_AwaitIdle(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"as soon as everything is written": func(s *story) {
			s.target.delay = 100 * ms
			s.starts()
			time.AfterFunc(time.Second, func() { s.has(fleet(8, 2)...) })
			st, took, err := s.awaitsIdle(time.Hour)
			s.is("AwaitIdle()", err, nil).is("took", took, 1200*ms).is("in sync", st.InSync(), true).storesN(16)
			_, took, err = s.awaitsIdle(time.Hour)
			s.is("AwaitIdle()", err, nil).is("took", took, time.Duration(0))
		},
		"while a write is read back": func(s *story) {
			s.target.delay = 10 * time.Second
			s.forgetful(0).has(fleet(3, 2)...).in(22 * time.Second)
			_, took, err := s.awaitsIdle(time.Hour)
			s.is("AwaitIdle()", err, nil).is("took", took, time.Duration(0)).is("reads", s.count(bridge.ObservedCall, "read"), 0)
			s.in(10*time.Second).is("reads", s.count(bridge.ObservedCall, "read"), 3)
		},
		"not before orphans have gone": func(s *story) {
			s.bridges[0].Guard = timed()
			s.storing(mine("old", "10.0.0.1:80")).has()
			_, took, err := s.awaitsIdle(time.Hour)
			s.is("AwaitIdle()", err, nil).is("took", took, time.Minute).inSync(true).stores()
		},
		"not before records let orphans go": func(s *story) {
			s.bridges[0].Guard = bridge.Guard{Window: time.Hour}
			s.storing(mine("old", "10.0.0.1:80")).recorded().records.late.Store(int64(100 * ms))
			s.starts()
			time.AfterFunc(time.Second, func() { s.has() })
			_, took, err := s.awaitsIdle(time.Hour)
			s.is("AwaitIdle()", err, nil).is("took", took, 1100*ms).stores()
		},
		"next to holds, refusals and conflicts": func(s *story) {
			s.storing(theirs("c", "10.0.0.1:80"))
			for i := range 20 {
				s.storing(mine(fmt.Sprint("old", i), "10.0.0.1:80"))
			}
			s.fail(failing(memory.OpWrite, registry.ErrRefused, "r")).has(service("c", "10.0.0.1:80"), service("r", "10.0.0.1:80"))
			st, _, err := s.awaitsIdle(2 * time.Minute)
			s.is("AwaitIdle()", err, nil).reason("r", bridge.ReasonRefused, "")
			s.is("holds and conflicts", []int{len(st.Holds), len(st.Conflicts)}, []int{1, 1})
		},
		"not while something is not known": func(s *story) {
			waits := func(what string, want error) {
				s.Helper()
				if st, _, err := s.awaitsIdle(time.Minute); !errors.Is(err, want) || (st.Owner == "me") != errors.Is(want, context.DeadlineExceeded) {
					s.Errorf("%s: AwaitIdle() = %v, %+v, want %v", what, err, st, want)
				}
			}
			s.starts()
			waits("unsynced", context.DeadlineExceeded)
			s.has().stale(errLost)
			waits("stale", context.DeadlineExceeded)
			s.fail(down).has(service("a", "10.0.0.1:80"))
			waits("failing", context.DeadlineExceeded)
			s.stop()
			waits("stopped", bridge.ErrStopped)
			s.is("Alive() and Run() failed", s.loop.Alive(s.Context()) != nil && s.loop.Run(s.Context()) != nil, true)
		},
	})
}

func TestLoop_Plan(t *testing.T) {
	plans := func(s *story) ([]bridge.Planned, bridge.Status) {
		s.Helper()
		plan, status, err := s.new(s.target).Plan(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		return plan, status
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"what differs, and nothing is written": func(s *story) {
			s.storing(mine("a", "10.0.0.1:80"), mine("old", "10.0.0.2:80"), theirs("n", "10.0.0.3:80"), mine("same", "10.0.0.4:80"))
			s.reports(service("a", "10.0.0.1:80*7"), service("n", "10.0.0.3:80", "10.0.0.5:80"), service("same", "10.0.0.4:80"))
			s.bridges[0].Guard = timed()
			plan, st := plans(s)
			got := []string{}
			for _, p := range plan {
				got = append(got, fmt.Sprintf("%s +%d -%d", p.Change.Group.Name, len(p.Change.Put), len(p.Change.Delete)+len(p.HeldBack)))
			}
			s.is("Plan()", got, []string{"a +1 -0", "n +1 -0", "old +0 -1"}).is("Conflicts", len(st.Conflicts), 1).is("writes", s.writes(), 0)
			if a, n := plan[0].Change.Put[0], plan[1].Change.Put[0]; a.Old == nil || n.Old != nil || len(plan[2].HeldBack) != 0 {
				s.Errorf("Plan() = %+v, want one replaced, one created, one deleted", plan)
			}
		},
		"what would be held back, and why": func(s *story) {
			for i := range 20 {
				s.storing(mine(fmt.Sprint("old", i), "10.0.0.1:80"))
			}
			plan, st := plans(s.reports())
			s.is("planned and holds", []int{len(plan), len(st.Holds)}, []int{20, 1})
			for _, p := range plan {
				if !p.Change.Empty() || len(p.HeldBack) != 1 || p.HeldBack[0].Reason != bridge.ReasonHeld {
					s.Errorf("Plan() = %+v, want one entry held back", p)
				}
			}
		},
		"waits for a bridge to begin": func(s *story) {
			s.bridges[0].Begin = func(context.Context) error { time.Sleep(time.Minute); return nil }
			plan, _ := plans(s.reports(service("x", "10.0.0.1:80")))
			s.is("Plan()", len(plan), 1).is("took", time.Since(s.begin), time.Minute)
		},
		"follows drained places that an earlier process recorded": func(s *story) {
			const one, two = "10.0.0.1:80", "10.0.0.2:80"
			both := service("a", one, two)
			s.recorded().storing(selfRegistered("a", one)).has(both).in(time.Minute).target.Drop(group("a"), one)
			s = s.resync().in(time.Minute).is("records", s.records.drained(), 1).again().reports(both)
			plan, st, err := s.new(s.records).Plan(s.Context())
			s.is("Plan()", []any{len(plan), err}, []any{0, nil}).is("records", s.records.drained(), 1)
			s.says("conflict", fmt.Sprint(st.Conflicts), "deregistered")
			unrecorded, _ := plans(s) // of a target that keeps no records
			s.is("puts without the record", len(unrecorded) == 1 && unrecorded[0].Change.Put[0].New.Key == one, true)
		},
		"not of a source that is not synced": func(s *story) {
			loop := s.storing(mine("a", "10.0.0.1:80")).new(s.target)
			ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
			defer cancel()
			plan, st, err := loop.Plan(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || st.InSync() {
				s.Errorf("Plan() = %v, %+v, want it to give up", err, st)
			}
			if len(plan) != 1 || len(plan[0].HeldBack) != 1 || plan[0].HeldBack[0].Reason != bridge.ReasonUnknown {
				s.Errorf("Plan() = %+v, want one entry held back as unknown", plan)
			}
		},
	})
}
