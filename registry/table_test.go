package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

func service(name string, hosts ...string) *registry.Service {
	s := &registry.Service{Name: registry.Name(name)}
	for _, h := range hosts {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: h, Port: 80})
	}
	return s
}

func all(s ...*registry.Service) func(func(*registry.Service) bool) { return slices.Values(s) }

// changed returns the rows of a drain, each name with + (present) or - (removed), and
// with ? if the change was found and not reported.
func changed(d registry.Delta) []string {
	var out []string
	for name, row := range d.Rows {
		sign := "+"
		if row.Service == nil {
			sign = "-"
		}
		if row.Found {
			sign += "?"
		}
		out = append(out, sign+string(name))
	}
	slices.Sort(out)
	return out
}

func TestTable(t *testing.T) {
	lost := errors.New("connection lost")
	tests := map[string]struct {
		act  func(*registry.Table)
		want []string
	}{
		"a service that is put is drained": {
			act:  func(t *registry.Table) { t.Put(service("a", "10.0.0.1")) },
			want: []string{"+a"},
		},
		"several changes of one service are drained as one": {
			act: func(t *registry.Table) {
				for i := range 100 {
					t.Put(service("a", fmt.Sprintf("10.0.0.%d", i)))
				}
			},
			want: []string{"+a"},
		},
		"a full read finds changes, and events report them": {
			act: func(t *registry.Table) {
				t.Replace(all(service("a"), service("b")))
				t.Put(service("c"))
				t.Delete("c")
			},
			want: []string{"+?a", "+?b", "-c"},
		},
		"a removal while the source is stale is found, not reported": {
			act: func(t *registry.Table) {
				t.Put(service("a"))
				t.Stale(lost)
				t.Delete("a")
				t.Stale(nil)
			},
			want: []string{"-?a"},
		},
		"the removal of an unknown service is not drained": {
			act: func(t *registry.Table) { t.Delete("a") },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			table := registry.NewTable()
			reader := table.Reader()
			tt.act(table)
			if got := changed(reader.Drain()); !slices.Equal(got, tt.want) {
				t.Errorf("drained %v, want %v", got, tt.want)
			}
			if again := reader.Drain(); len(again.Rows) > 0 {
				t.Errorf("drained again: %v", changed(again))
			}
		})
	}
}

func TestTable_EqualServices(t *testing.T) {
	table := registry.NewTable()
	table.Replace(all(service("a", "10.0.0.1"), service("b", "10.0.0.2")))
	reader := table.Reader()
	reader.Drain()
	table.Replace(all(service("a", "10.0.0.1"), service("b", "10.0.0.2")))
	table.Put(service("a", "10.0.0.1"))
	if d := reader.Drain(); len(d.Rows) != 0 {
		t.Errorf("a push without a change drained %v", changed(d))
	}
}

func TestTable_LateReader(t *testing.T) {
	table := registry.NewTable()
	table.Replace(all(service("a"), service("b")))
	early := table.Reader()
	early.Drain()
	late := table.Reader()
	select {
	case <-late.Wake():
	default:
		t.Error("a new reader must be awake")
	}
	if got, want := changed(late.Drain()), []string{"+a", "+b"}; !slices.Equal(got, want) {
		t.Errorf("drained %v, want %v", got, want)
	}
	late.Close()
	table.Put(service("c"))
	if d := late.Drain(); len(d.Rows) != 0 {
		t.Errorf("a closed reader drained %v", changed(d))
	}
	if got := changed(early.Drain()); !slices.Equal(got, []string{"+c"}) {
		t.Errorf("the other reader drained %v", got)
	}
}

func TestCertainty(t *testing.T) {
	denied, lost := errors.New("access denied"), errors.New("connection lost")
	table := registry.NewTable()
	reader := table.Reader()
	if reader.Drain().Synced {
		t.Error("an empty table is synced")
	}
	table.Replace(all(service("shop/a"), service("bank/b")))
	table.Unknown("shop/*", denied)
	k := reader.Drain().Certainty
	if !k.Synced || k.Epoch != 1 {
		t.Errorf("after a full reading: %+v", k)
	}
	if err := k.Of("shop/a"); !errors.Is(err, denied) {
		t.Errorf("within the unknown scope: %v", err)
	}
	if err := k.Of("bank/b"); err != nil {
		t.Errorf("outside the unknown scope: %v", err)
	}
	table.Stale(lost)
	if err := reader.Drain().Of("bank/b"); !errors.Is(err, lost) {
		t.Errorf("while stale: %v", err)
	}
	table.Stale(errors.New("still lost")) // the same outage
	table.Replace(all())
	table.Stale(nil)
	table.Unknown("shop/*", nil)
	if k := reader.Drain().Certainty; k.Of("shop/a") != nil || k.Epoch != 2 || k.Outages != 1 {
		t.Errorf("after a second full reading: %+v", k)
	}
}

func TestTable_SkippedInputs(t *testing.T) {
	table := registry.NewTable()
	table.Skip("outbound|80||x", "headless")
	table.Skip("outbound|81||x", "unix socket")
	table.Skip("outbound|81||x", "")
	if got := table.Skipped(); !maps.Equal(got, map[string]string{"outbound|80||x": "headless"}) {
		t.Errorf("skipped %v", got)
	}
}

// TestTable_OmittedInputs shows that inputs that the configuration leaves out are
// neither defects nor listed, and that inputs without a request are listed.
func TestTable_OmittedInputs(t *testing.T) {
	table := registry.NewTable()
	table.Omit("a:80", registry.Omission{Reason: "no service key", Cause: registry.Unasked})
	table.Omit("b:80", registry.Omission{Reason: "by select", Cause: registry.Chosen})
	expect := func(defects int, listed ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(table.Skipped())); !slices.Equal(got, listed) || table.Summary().Defects != defects || len(table.Omitted()) != 2 {
			t.Errorf("%v are listed and %d are defects, want %v and %d", got, table.Summary().Defects, listed, defects)
		}
	}
	expect(0, "a:80")
	table.Skip("b:80", "headless")
	expect(1, "a:80", "b:80")
	table.Skip("b:80", "unix socket")
	expect(1, "a:80", "b:80")
	table.Omit("b:80", registry.Omission{Reason: "by select", Cause: registry.Chosen})
	expect(0, "a:80")
}

func TestTable_Readers(t *testing.T) {
	table := registry.NewTable()
	var wg sync.WaitGroup
	readers := make([]*registry.Reader, 4)
	seen := make([]map[registry.Name]*registry.Service, len(readers))
	for i := range readers {
		readers[i], seen[i] = table.Reader(), make(map[registry.Name]*registry.Service)
	}
	done := make(chan struct{})
	for i, r := range readers {
		wg.Go(func() {
			for {
				stop := false
				select {
				case <-r.Wake():
				case <-done:
					stop = true
				}
				for name, row := range r.Drain().Rows {
					if row.Service == nil {
						delete(seen[i], name)
					} else {
						seen[i][name] = row.Service
					}
				}
				if stop {
					return
				}
			}
		})
	}
	for i := range 1000 {
		name := fmt.Sprintf("s%d", i%10)
		if i%7 == 0 {
			table.Delete(registry.Name(name))
		} else {
			table.Put(service(name, fmt.Sprintf("10.0.%d.%d", i/250, i%250)))
		}
	}
	close(done)
	wg.Wait()
	want, _ := table.Snapshot()
	for i := range seen {
		if !maps.Equal(seen[i], want) {
			t.Errorf("reader %d ended with %d services, the table holds %d", i, len(seen[i]), len(want))
		}
	}
}

func TestTable_Connections(t *testing.T) {
	table := registry.NewTable()
	dials := func() int { _, k := table.Snapshot(); return k.Dials }
	table.Dialed()
	if dials() != 0 {
		t.Error("a connection counts before everything was read over it")
	}
	table.Replace(slices.Values([]*registry.Service{{Name: "a"}}))
	table.Replace(slices.Values([]*registry.Service{{Name: "a"}}))
	if dials() != 1 {
		t.Errorf("dials = %d after two readings of one connection, want 1", dials())
	}
}

// TestTable_ChangedScopes shows that the cost of draining one service does not grow with
// the number of unknown services.
func TestTable_ChangedScopes(t *testing.T) {
	denied := errors.New("access denied")
	table := registry.NewTable()
	table.Unknown("old", denied)
	reader := table.Reader()
	drained := func(want ...string) registry.Delta {
		t.Helper()
		d := reader.Drain()
		if got := slices.Sorted(maps.Keys(d.Scopes)); !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
		return d
	}
	if d := drained("old"); d.Unknown["old"] == nil {
		t.Error("an earlier unknown scope is not reported")
	}
	table.Unknown("shop/*", denied)
	table.Unknown("a", denied)
	if d := drained("a", "shop/*"); len(d.Unknown) != 3 {
		t.Errorf("unknown %v", d.Unknown)
	}
	drained()
	table.Unknown("a", nil)
	table.Unknown("a", nil)
	if d := drained("a"); len(d.Unknown) != 2 {
		t.Errorf("unknown %v", d.Unknown)
	}
	table.Renew(denied)
	if d := drained("old", "shop/*"); len(d.Unknown) != 0 {
		t.Errorf("unknown %v", d.Unknown)
	}
}

// TestCurrent shows how long a table has the rows of an earlier source.
func TestCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := registry.NewTable()
		if err := table.Current(t.Context()); err != nil {
			t.Fatal(err)
		}
		table.Renew(errors.New("another source"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		table.Put(service("a"))
		table.Stale(nil)
		if err := table.Current(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before the source has reported everything: %v", err)
		}
		current := make(chan error)
		go func() { current <- table.Current(t.Context()) }()
		synctest.Wait()
		table.Replace(all(service("a")))
		if err := <-current; err != nil {
			t.Errorf("Current = %v, want nil", err)
		}
	})
}

func TestCovering(t *testing.T) {
	for many := range 2 {
		scopes := map[string]int{"a": 1, "shop/*": 2, "team-x/": 3}
		for i := range 200 * many {
			scopes[fmt.Sprint("other", i)] = 4
		}
		for name, want := range map[registry.Name]int{"a": 1, "ab": 0, "shop/": 2, "shop/x": 2, "shop": 0, "team-x/y": 0, "": 0} {
			if got, ok := registry.Covering(scopes, name); got != want || ok != (want > 0) {
				t.Errorf("%q with %d scopes: %d, want %d", name, len(scopes), got, want)
			}
		}
		scopes["*"] = 5
		if got, _ := registry.Covering(scopes, "b"); got != 5 {
			t.Errorf("the scope of everything: %d", got)
		}
	}
}

func TestTable_Summary(t *testing.T) {
	table := registry.NewTable()
	sick := service("b", "10.0.0.2", "10.0.0.3")
	sick.Endpoints[1].Health = registry.Draining
	table.Replace(all(service("a", "10.0.0.1"), sick))
	table.Skip("x", "headless")
	denied := errors.New("denied")
	table.Unknown("b", denied)
	var health registry.Endpoints
	health[registry.HealthUnknown], health[registry.Draining] = 2, 1
	want := registry.Summary{Synced: true, Services: 2, Endpoints: health, Unknown: 1, Scope: "b", Why: denied, Defects: 1}
	if got := table.Summary(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	table.Delete("b")
	health[registry.HealthUnknown], health[registry.Draining] = 1, 0
	if got := table.Summary(); got.Services != 1 || got.Endpoints != health {
		t.Errorf("%+v", got)
	}
	for _, change := range []struct {
		scope string
		err   error
		want  string
	}{{"c", denied, "b"}, {"a", denied, "a"}, {"a", nil, "b"}, {"b", nil, "c"}, {"c", nil, ""}, {"b", denied, "b"}} {
		table.Unknown(change.scope, change.err)
		if got := table.Summary(); got.Scope != change.want || (got.Why == nil) != (change.want == "") {
			t.Errorf("after %s: %q because of %v, want %q", change.scope, got.Scope, got.Why, change.want)
		}
	}
}

// TestTable_Drain shows that a removal that was found stays found if it is also
// reported before the drain.
func TestTable_Drain(t *testing.T) {
	table := registry.NewTable()
	reader := table.Reader()
	table.Replace(all(service("a"), service("b")))
	reader.Drain()
	table.Replace(all(service("b"))) // finds a gone
	table.Put(service("a", "10.0.0.1"))
	table.Delete("a")
	if row := reader.Drain().Rows["a"]; row.Service != nil || !row.Found {
		t.Errorf("reported as an event: %+v", row)
	}
}

func TestTableApply(t *testing.T) {
	table := registry.NewTable()
	reader := table.Reader()
	<-reader.Wake()
	table.Put(&registry.Service{Name: "old"})
	reader.Drain()
	<-reader.Wake()
	table.Apply([]*registry.Service{{Name: "new"}}, []registry.Name{"old", "never heard of"})
	<-reader.Wake()
	rows := reader.Drain().Rows
	if len(rows) != 2 || rows["new"].Service == nil || rows["old"].Service != nil || rows["old"].Found {
		t.Errorf("rows %+v", rows)
	}
	table.Apply([]*registry.Service{{Name: "new"}}, []registry.Name{"old"})
	select {
	case <-reader.Wake():
		t.Error("a message that changes nothing wakes readers")
	default:
	}
	table.Stale(errors.New("away"))
	table.Apply(nil, []registry.Name{"new"})
	if row, ok := reader.Drain().Rows["new"]; !ok || !row.Found {
		t.Errorf("a change that is reported while stale must count as found: %+v", row)
	}
}
