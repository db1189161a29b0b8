package admin_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// inSync returns the status of a loop that is in sync.
func inSync() bridge.Status {
	return bridge.Status{Listed: true, Bridges: []bridge.BridgeStatus{{
		Name: "b", Synced: true, Entries: 1, Services: 1, Reasons: map[bridge.Reason]int{bridge.ReasonSynced: 1},
	}}}
}

// TestConditions shows that each problem is a condition, and that a bridge without
// conditions is in sync.
func TestConditions(t *testing.T) {
	reason := func(r bridge.Reason) func(*bridge.Status) {
		return func(st *bridge.Status) { st.Bridges[0].Reasons = map[bridge.Reason]int{r: 1} }
	}
	skipped := func(st *bridge.Status) {
		st.Bridges[0].Entries = 0
		reason(bridge.ReasonSkipped)(st)
	}
	for want, tt := range map[string]struct {
		table  func(*registry.Table)
		source func(*admin.Input)
		target func(*admin.Target)
		loop   func(*bridge.Status)
		rest   func(*admin.Options)
	}{
		"": {},
		"target zk owner-conflict": {target: func(x *admin.Target) {
			x.State = func() admin.TargetState {
				return admin.TargetState{Connected: true, Refused: "another bridge of owner shop runs"}
			}
		}},
		"target zk unreachable": {target: func(x *admin.Target) { x.State = func() admin.TargetState { return admin.TargetState{} } }},
		"target zk no-reader": {target: func(x *admin.Target) {
			x.Kind, x.State = "mesh", func() admin.TargetState { return admin.TargetState{} }
		}},
		"target zk pending": {loop: func(st *bridge.Status) { st.Listed = false }},
		"target zk failing": {loop: func(st *bridge.Status) { st.LastError = "down" }},
		"target zk failing ": {target: func(x *admin.Target) {
			x.State = func() admin.TargetState {
				return admin.TargetState{Connected: true, LastError: "the namespace does not exist"}
			}
		}},
		"target zk unwatched": {target: func(x *admin.Target) {
			x.State = func() admin.TargetState { return admin.TargetState{Connected: true, Unwatched: "reset by peer"} }
		}},
		"target zk unreachable ": {target: func(x *admin.Target) {
			x.State = func() admin.TargetState { return admin.TargetState{Unwatched: "reset by peer"} }
		}},
		"target zk unrecorded": {loop: func(st *bridge.Status) { st.Unrecorded = "disk full" }},
		"target zk failing  ": {target: func(x *admin.Target) {
			x.Kind, x.State = "mesh", func() admin.TargetState {
				return admin.TargetState{Connected: true, RefusedRules: []string{"rules.yaml:1:1: it is not followed"}}
			}
		}},
		"target zk refused":    {loop: reason(bridge.ReasonRefused)},
		"target zk unwritable": {loop: reason(bridge.ReasonUnwritable)},
		"target zk syncing":    {loop: reason(bridge.ReasonPending)},
		"target zk syncing ":   {loop: func(st *bridge.Status) { st.Bridges[0].Synced = false }},
		"target zk held":       {loop: func(st *bridge.Status) { st.Holds = []bridge.Hold{{ID: "1"}} }},
		"target zk denied": {loop: func(st *bridge.Status) {
			st.Holds = []bridge.Hold{{ID: "1", Denied: true, Count: 2, Since: time.Now()}}
		}},
		"target zk conflict":  {loop: func(st *bridge.Status) { st.Conflicts = []bridge.Conflict{{Key: "k"}} }},
		"target zk idle":      {loop: skipped},
		"target zk idle ":     {loop: func(st *bridge.Status) { *st = inSync(); st.Bridges[0].Entries, st.Bridges[0].Services = 0, 0 }},
		"source mesh stale":   {table: func(x *registry.Table) { x.Stale(errors.New("away")) }},
		"source mesh partial": {table: func(x *registry.Table) { x.Unknown("a", errors.New("403")) }},
		"source mesh partial ": {source: func(x *admin.Input) {
			x.State = func() admin.SourceState { return admin.SourceState{Mapping: &admin.Mapping{LastError: "403"}} }
		}},
		"process  reload-refused": {rest: func(o *admin.Options) { o.Reloaded = func() *admin.Reload { return &admin.Reload{} } }},
		"process  replica-missing": {rest: func(o *admin.Options) {
			o.Replicas = func() *admin.Replicas { return &admin.Replicas{Members: []string{"a"}, Expected: 2} }
		}},
		"process  lease-unreachable": {rest: func(o *admin.Options) {
			o.Replicas = func() *admin.Replicas { return &admin.Replicas{LastError: "down", Members: []string{"a"}, Expected: 2} }
		}},
	} {
		t.Run("in the state "+want, func(t *testing.T) {
			table, l := registry.NewTable(), &loop{st: inSync()}
			table.Replace(slices.Values([]*registry.Service{service()}))
			o := admin.Options{
				Inputs:  []admin.Input{{Name: "mesh", Kind: "mesh", Table: table, State: sourceState}},
				Targets: []admin.Target{{Name: "zk", Kind: "zookeeper", Loop: l, State: targetState}},
			}
			if tt.table != nil {
				tt.table(table)
			}
			if tt.source != nil {
				tt.source(&o.Inputs[0])
			}
			if tt.target != nil {
				tt.target(&o.Targets[0])
			}
			if tt.loop != nil {
				tt.loop(&l.st)
			}
			if tt.rest != nil {
				tt.rest(&o)
			}
			s, err := admin.New(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, all := range [][]admin.Condition{s.Conditions(), s.Document(t.Context()).Conditions} {
				var got []string
				for _, c := range all {
					got = append(got, string(c.Direction)+" "+c.Registry+" "+string(c.Name))
					if c.Since.IsZero() || c.Detail == "" || !slices.Contains(admin.ConditionsOf(c.Direction), c.Name) {
						t.Errorf("condition = %+v, want since, detail, and a name of its direction", c)
					}
				}
				if strings.Join(got, ", ") != strings.TrimRight(want, " ") {
					t.Errorf("there is %q", got)
				}
			}
			if d := s.Document(t.Context()); d.InSync != (want == "") {
				t.Errorf("in sync: %t", d.InSync)
			}
		})
	}
}

// TestConditions_Syncing shows that the detail counts due groups or, without any, services.
func TestConditions_Syncing(t *testing.T) {
	for want, tt := range map[string]func(*bridge.Status){
		"3 groups are due":           func(st *bridge.Status) { st.Queue = 3 },
		"1 service is being written": func(st *bridge.Status) { st.Bridges[0].Reasons = map[bridge.Reason]int{bridge.ReasonPending: 1} },
	} {
		st := inSync()
		tt(&st)
		s, err := admin.New(t.Context(), admin.Options{Targets: []admin.Target{{Name: "zk", Kind: "zookeeper", Loop: &loop{st: st}, State: targetState}}})
		if err != nil {
			t.Fatal(err)
		}
		if all := s.Conditions(); len(all) != 1 || all[0].Name != admin.Syncing || all[0].Detail != want {
			t.Errorf("%+v, want %s", all, want)
		}
	}
}

// TestConditions_Idle shows that the detail repeats why a service has no entries.
func TestConditions_Idle(t *testing.T) {
	t.Parallel()
	st := inSync()
	st.Bridges[0].Entries, st.Bridges[0].Reasons = 0, map[bridge.Reason]int{bridge.ReasonEmpty: 1}
	st.Bridges[0].Nothing = "orders:8080: spring-cloud: has no application and no rule names it"
	s, err := admin.New(t.Context(), admin.Options{Targets: []admin.Target{{Name: "nacos", Kind: "nacos", Loop: &loop{st: st}, State: targetState}}})
	if err != nil {
		t.Fatal(err)
	}
	all := s.Conditions()
	if want := "none of 1 service has anything to write, such as " + st.Bridges[0].Nothing + ";"; len(all) != 1 || !strings.HasPrefix(all[0].Detail, want) {
		t.Errorf("%+v, want %s", all, want)
	}
}

// TestConditions_Reported shows that the begin and the end of a condition are an event and a
// log line, unless the condition ends before the second check.
func TestConditions_Reported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, events := registry.NewTable(), &admin.Events{}
		table.Replace(slices.Values([]*registry.Service{service()}))
		var log strings.Builder
		s, err := admin.New(t.Context(), admin.Options{
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Inputs:  []admin.Input{{Name: "mesh", Kind: "mesh", Table: table, State: sourceState}},
			Targets: []admin.Target{{Name: "zk", Loop: &loop{st: inSync()}, State: targetState}}, Events: events,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		in := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		in(100 * time.Millisecond)
		table.Stale(errors.New("a moment"))
		in(time.Second)
		table.Stale(nil)
		in(5 * time.Second)
		if list := events.List(0); len(list) != 0 {
			t.Fatalf("events = %+v, want none yet, then one that the source is stale", list)
		}
		table.Stale(errors.New("istiod is away"))
		in(30 * time.Second)
		list := events.List(0)
		if len(list) != 1 || list[0].Kind != bridge.EventCondition || list[0].Subject != "source mesh" || list[0].What != "stale" || list[0].Why != "istiod is away" {
			t.Fatalf("events = %+v, want none yet, then one that the source is stale", list)
		}
		if c := s.Document(t.Context()).Conditions; len(c) != 1 || time.Since(c[0].Since) < 29*time.Second {
			t.Errorf("conditions = %+v, want one that began 29 s ago", c)
		}
		table.Stale(nil)
		in(2 * time.Second)
		if list = events.List(0); len(list) != 2 || list[1].What != "no longer stale" || time.Since(list[1].Since) < 30*time.Second {
			t.Errorf("events = %+v, want a second: no longer stale", list)
		}
		if _, lines, _ := strings.Cut(log.String(), " "); strings.Count(log.String(), "\n") != 2 ||
			!strings.HasPrefix(lines, `level=WARN msg="condition began" condition=stale subject="source mesh" reason="istiod is away"`) ||
			!strings.HasSuffix(lines, `level=WARN msg="condition ended" condition=stale subject="source mesh" lasted=30s`+"\n") {
			t.Errorf("the log has:\n%swant that the condition began and ended", log.String())
		}
	})
}

// TestConditions_Partial shows that a condition with a known end does not count against
// being in sync.
func TestConditions_Partial(t *testing.T) {
	until := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for want, tt := range map[string]struct {
		unknown map[string]string
		until   time.Time
		failed  string // of the last reading
	}{
		"the entries of a remain: 403": {unknown: map[string]string{"a": "403"}},
		"the entries of a and of 2 more parts (see status -o json) remain: 403": {
			unknown: map[string]string{"a": "403", "b": "404", "c": "404"}, until: until,
		},
		"service keys: an istiod came up lately": {unknown: map[string]string{"service keys": "an istiod came up lately"}, until: until},
		"service keys: an istiod came up lately ": {
			unknown: map[string]string{"service keys": "an istiod came up lately"}, until: until, failed: "403",
		},
	} {
		table := registry.NewTable()
		table.Replace(slices.Values([]*registry.Service{service()}))
		for scope, why := range tt.unknown {
			table.Unknown(scope, errors.New(why))
		}
		s := server(t, table, &loop{st: inSync()})
		s.Show("shop", []admin.Input{{Name: "mesh", Table: table, State: func() admin.SourceState {
			return admin.SourceState{Mapping: &admin.Mapping{Until: tt.until, LastError: tt.failed}}
		}}}, nil)
		d := s.Document(t.Context())
		lasts := len(tt.unknown) > 1 || tt.until.IsZero() || tt.failed != ""
		if c := d.Conditions; len(c) != 1 || c[0].Name != admin.Partial || c[0].Detail != strings.TrimSpace(want) || c[0].Lasts() != lasts || d.InSync == lasts {
			t.Errorf("in sync: %t, conditions %+v, want %q", d.InSync, c, want)
		}
	}
}

// TestConditions_Continue shows that a condition that lasts is reported again each day.
func TestConditions_Continue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, events := inSync(), &admin.Events{}
		since := time.Now().Add(-time.Hour)
		st.Holds = []bridge.Hold{{ID: "1", Denied: true, Count: 2, Since: since}}
		var log strings.Builder
		s, err := admin.New(t.Context(), admin.Options{
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Targets: []admin.Target{{Name: "zk", Loop: &loop{st: st}, State: targetState}}, Events: events,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = s.Run(ctx) }()
		time.Sleep(49 * time.Hour)
		stop()
		synctest.Wait()
		var still []string
		for _, e := range events.List(0) {
			if e.What == "still denied" && e.Since.Equal(since) {
				still = append(still, e.What)
			}
		}
		if len(still) != 2 || strings.Count(log.String(), `msg="condition continues" condition=denied subject="target zk"`) != 2 {
			t.Errorf("reported again %d times, want 2; the log has:\n%s", len(still), log.String())
		}
	})
}

// TestConditions_Counted shows that a noun agrees with its number.
func TestConditions_Counted(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		2: "the entries of a and of 1 more part (see status -o json) remain: 403",
		3: "the entries of a and of 2 more parts (see status -o json) remain: 403",
	} {
		table := registry.NewTable()
		for _, scope := range []string{"a", "b", "c"}[:n] {
			table.Unknown(scope, errors.New("403"))
		}
		table.Replace(slices.Values([]*registry.Service{service()}))
		s, err := admin.New(t.Context(), admin.Options{Inputs: []admin.Input{{Name: "mesh", Kind: "mesh", Table: table, State: sourceState}}})
		if err != nil {
			t.Fatal(err)
		}
		if all := s.Conditions(); len(all) != 1 || all[0].Detail != want {
			t.Errorf("%+v, want %s", all, want)
		}
	}
}
