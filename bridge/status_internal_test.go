package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

var errBad = errors.New("bad")

// elects notifies nobody: the test says who leads.
type elects struct{}

func (elects) Leadership() Leadership   { return Leadership{} }
func (elects) Changed() <-chan struct{} { return nil }
func (elects) Ready(Leadership)         {}

// A course is two bridges into one target, and what happens to them by one seed.
// Services claim in some of a few groups, so that their claims meet.
type course struct {
	process

	tables  []*registry.Table
	readers []*registry.Reader
	seen    map[Reason]bool
	last    string // what happened last
}

func newCourse(t *testing.T, seed uint64) *course {
	t.Helper()
	c := &course{process: newProcess(t, seed, 11), seen: make(map[Reason]bool)}
	c.lead = Leadership{Role: RoleLeader, Term: 1, Leader: "one"}
	project := func(s *registry.Service) (all []registry.Entry, _ error) {
		if s.Application == "bad" {
			return nil, errBad
		}
		for _, i := range s.Interfaces {
			for _, e := range s.Endpoints {
				g := registry.Group{Kind: "test", Name: i.Name, Exclusive: i.Name == "g0"}
				all = append(all, registry.Entry{Group: g, Key: e.Address(), Value: "v"})
			}
		}
		return all, nil
	}
	var bridges []Bridge
	for _, n := range []string{"b", "a"} {
		table := registry.NewTable()
		c.tables, c.readers = append(c.tables, table), append(c.readers, table.Reader())
		bridges = append(bridges, Bridge{Name: n, Table: table, Project: project, Guard: DefaultGuard()})
	}
	l, err := New(c.target, bridges, Options{
		Owner: "me", Workers: 3, Debounce: 100 * time.Millisecond, Refresh: 5 * time.Minute, Election: elects{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.driver = l.driver
	c.turn(func() {})
	return c
}

func (c *course) turn(happens func()) {
	c.calls = append(c.calls, c.process.turn(happens).calls...)
}

func (c *course) group() registry.Group {
	n := fmt.Sprint("g", c.r.IntN(5))
	return registry.Group{Kind: "test", Name: n, Exclusive: n == "g0"}
}

func (c *course) service() *registry.Service {
	s := &registry.Service{Name: registry.Name(fmt.Sprint("s", c.r.IntN(12)))}
	if c.r.IntN(12) == 0 {
		s.Application = "bad"
	}
	for range c.r.IntN(4) {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: fmt.Sprint("10.0.0.", c.r.IntN(20)), Port: 80})
	}
	for range c.r.IntN(3) {
		if i := (registry.Interface{Name: c.group().Name}); !slices.Contains(s.Interfaces, i) {
			s.Interfaces = append(s.Interfaces, i)
		}
	}
	return s
}

// entry is what another process stored.
func (c *course) entry(owner string) {
	e := registry.Entry{Group: c.group(), Key: fmt.Sprintf("10.0.0.%d:80", c.r.IntN(20)), Value: "x"}
	c.target.Set(registry.Held{Entry: e, Owner: owner, Live: true})
}

// ends ends one of the calls under way.
func (c *course) ends() {
	if len(c.calls) == 0 {
		return
	}
	o := c.driver.do(c.t.Context(), c.pick())
	if kind := c.r.IntN(12); kind < 3 && o.op != opRecords {
		o.err = []error{errAway, registry.ErrRefused, registry.ErrConflict}[kind]
	}
	c.turn(func() { c.driver.engine.CallDone(o, c.now) })
}

func (c *course) step() {
	e, table := c.driver.engine, c.tables[c.r.IntN(len(c.tables))]
	all := map[string]func(){
		"put":      func() { table.Put(c.service()) },
		"delete":   func() { table.Delete(c.service().Name) },
		"stale":    func() { table.Stale(errAway) },
		"unknown":  func() { table.Unknown(string(c.service().Name), []error{nil, errAway, errBad}[c.r.IntN(3)]) },
		"unknowns": func() { table.Unknown("s1*", []error{nil, errAway, errBad}[c.r.IntN(3)]) },
		"foreign":  func() { c.entry("other") },
		"orphan":   func() { c.entry("me") },
		"drop":     func() { c.target.Drop(c.group(), fmt.Sprintf("10.0.0.%d:80", c.r.IntN(20))) },
		"resync":   func() { c.turn(func() { e.resync(c.now) }) },
		"lost":     func() { c.turn(func() { e.LoseSession(c.now) }) },
		"replace": func() {
			rows, _ := table.Snapshot()
			table.Replace(func(yield func(*registry.Service) bool) {
				for _, n := range slices.Sorted(maps.Keys(rows)) {
					if c.r.IntN(8) > 0 && !yield(rows[n]) {
						return
					}
				}
			})
		},
		"lead": func() {
			if c.lead = (Leadership{Role: RoleStandby, Term: c.lead.Term, Leader: []string{"", "two", "three"}[c.r.IntN(3)]}); c.r.IntN(2) == 0 {
				c.lead = Leadership{Role: RoleLeader, Term: c.lead.Term + 1, Leader: "one"}
			}
			c.turn(func() {})
		},
		"decide": func() {
			c.turn(func() {
				for _, h := range e.guards.holdList() {
					_, _ = e.guards.decide(h.ID, decision{Approved: c.r.IntN(2) == 0, Who: "ann"}, c.now) // it may be decided
				}
			})
		},
		"pass": func() {
			c.now = c.now.Add([]time.Duration{50 * time.Millisecond, time.Second, time.Minute, time.Hour}[c.r.IntN(4)])
			c.turn(func() {})
		},
	}
	names := slices.Sorted(maps.Keys(all))
	c.last = names[c.r.IntN(len(names))]
	all[c.last]()
	for range c.r.IntN(6) {
		c.ends()
	}
	if i := c.r.IntN(len(c.tables)); c.r.IntN(2) == 0 && !e.waitsForList() {
		c.turn(func() { e.ApplyDelta(i, c.readers[i].Drain(), c.now) })
	}
}

// agrees compares status, as it was brought up to date by what changed, with one
// that looks at everything.
func (c *course) agrees() {
	e := c.driver.engine
	e.view.update(c.now)
	got := e.view.status()
	anew := newView(e)
	anew.lastRead, anew.lastWrite, anew.lastError = e.view.lastRead, e.view.lastWrite, e.view.lastError
	for _, it := range e.agenda.items {
		it.markDirty()
	}
	for _, w := range e.pipelines {
		w.reasons, w.unknowns = make(map[Reason]int), make(map[string]string)
		for n := range w.services {
			w.markDirty(n)
		}
		for scope := range w.known.Unknown {
			w.markDirty(registry.Name(scope))
		}
	}
	anew.update(c.now)
	want := anew.status()
	if got.OldestDue, want.OldestDue = 0, 0; !reflect.DeepEqual(got, want) {
		c.t.Fatalf("after %s:\ngot  %+v\nwant %+v", c.last, got, want)
	}
	reasons := make(map[string]map[Reason]int)
	for _, b := range got.Bridges {
		reasons[b.Name] = maps.Clone(b.Reasons)
	}
	for _, sv := range got.Services {
		c.seen[sv.Reason] = true
		reasons[sv.Bridge][sv.Reason]--
	}
	for _, of := range reasons {
		maps.DeleteFunc(of, func(_ Reason, n int) bool { return n == 0 })
	}
	if n := len(reasons["a"]) + len(reasons["b"]); n > 0 || got.Counts.Conflicts != len(got.Conflicts) {
		c.t.Fatalf("after %s: counts %+v, and reasons are off by %v\n%+v", c.last, got.Counts, reasons, got)
	}
}

// TestStatus_IsWhatAnEngineKnows has a random course of events.
func TestStatus_IsWhatAnEngineKnows(t *testing.T) {
	t.Parallel()
	courses := 2000
	if testing.Short() {
		courses = 60
	}
	seen := make(map[Reason]bool)
	for seed := range uint64(courses) { //nolint:gosec // it is small
		c := newCourse(t, seed)
		for range 60 {
			if c.step(); c.r.IntN(3) > 0 {
				c.agrees()
			}
		}
		maps.Copy(seen, c.seen)
	}
	if len(seen) < 10 {
		t.Errorf("the courses lead to %v alone", slices.Sorted(maps.Keys(seen)))
	}
}

func TestDriver_AliveWithoutATurn(t *testing.T) {
	t.Parallel()
	const answered, turn = "answered", "a turn"
	for name, tt := range map[string]struct {
		happens func(c *course, wake chan<- struct{})
		want    string
	}{
		"nothing happened":              {func(*course, chan<- struct{}) {}, answered},
		"a table changed":               {func(_ *course, wake chan<- struct{}) { wake <- struct{}{} }, turn},
		"status does not show all":      {func(c *course, _ chan<- struct{}) { c.driver.engine.view.publish(c.now) }, turn},
		"it was not in sync yet":        {func(c *course, _ chan<- struct{}) { c.driver.engine.view.inSync = false }, turn},
		"the leadership ended by clock": {func(c *course, _ chan<- struct{}) { c.driver.engine.lead.Role = RoleLeader }, turn},
		"a lease was renewed":           {func(c *course, _ chan<- struct{}) { c.driver.engine.lead.Until = c.now }, answered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, wake := newCourse(t, 1), make(chan struct{}, 1)
			c.driver.engine.lead = Leadership{} // that elects reports
			c.driver.engine.view.inSync = true
			c.driver.engine.view.update(c.now)
			tt.happens(c, wake)
			got := turn
			if c.driver.handle(question{answered: make(chan struct{})}, wake) == nil {
				got = answered
			}
			if got != tt.want {
				t.Errorf("Alive() = %s, want %s", got, tt.want)
			}
		})
	}
}
