package registry_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// fleet returns n services of one endpoint each.
func fleet(n int) []*registry.Service {
	all := make([]*registry.Service, n)
	for i := range all {
		all[i] = service(fmt.Sprintf("s%d", i), fmt.Sprintf("10.0.0.%d", i))
	}
	return all
}

// TestLimits shows that a table at its limit keeps its rows, is stale, and recovers.
func TestLimits(t *testing.T) {
	big := service("big", "10.1.0.1")
	big.Attributes = registry.Attributes{"k": strings.Repeat("x", 4096)}
	for name, tc := range map[string]struct {
		limits   registry.Limits
		reported []*registry.Service
		rows     int
	}{
		"services":  {registry.Limits{Services: 5}, fleet(8), 5},
		"endpoints": {registry.Limits{Endpoints: 5}, fleet(8), 5},
		"bytes, of one service that is too large": {registry.Limits{Bytes: 2048}, append(fleet(3), big), 3},
	} {
		t.Run(name, func(t *testing.T) {
			table := registry.NewTable()
			asked := 0
			table.Limit(tc.limits, func() { asked++ })
			table.Replace(slices.Values(tc.reported))
			rows, known := table.Snapshot()
			if len(rows) != tc.rows || !errors.Is(known.Stale, registry.ErrLimit) || !known.Synced {
				t.Fatalf("%d rows, %v", len(rows), known.Stale)
			}
			if u := table.Usage(); u.Services != tc.rows || u.Endpoints != tc.rows || u.Over != len(tc.reported)-tc.rows {
				t.Errorf("usage %+v", u)
			}
			table.Put(service("s1", "10.9.9.9")) // rows that are kept are still updated
			if got := table.Get("s1").Endpoints[0].Host; got != "10.9.9.9" {
				t.Errorf("s1 is at %s", got)
			}
			table.Replace(slices.Values(tc.reported[:2]))
			if rows, known = table.Snapshot(); len(rows) != 2 || known.Stale != nil {
				t.Errorf("%d rows, %v", len(rows), known.Stale)
			}
		})
	}
}

// TestUsage shows that all fields of a service are counted, and removed services are
// not.
func TestUsage(t *testing.T) {
	const endpoint = 160 // the struct without its texts
	table := registry.NewTable()
	table.Put(&registry.Service{
		Name: "12345", Namespace: "123", Application: "1234", Protocol: "12", Path: "1234",
		Attributes: registry.Attributes{"12": "123"},
		Interfaces: []registry.Interface{{Name: "1234567", Version: "12345", Group: "123"}},
		Endpoints: []registry.Endpoint{
			{Host: "10.0.0.1", PortName: "123", Protocol: "12", Zone: "1", Instance: "12345", Path: "1234", Attributes: registry.Attributes{"1": "1"}},
			{Host: "10.0.0.2", Health: registry.Disabled + 1},
		},
	})
	want := registry.Usage{Services: 1, Endpoints: 2, Bytes: 5 + 3 + 4 + 2 + 4 + 5 + 7 + 5 + 3 + endpoint + 8 + 3 + 2 + 1 + 5 + 4 + 2 + endpoint + 8}
	if got := table.Usage(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	table.Delete("12345")
	if got := table.Usage(); got != (registry.Usage{}) {
		t.Errorf("of nothing %+v", got)
	}
}

// TestLimits_Exact shows that a table can be filled up to its limits.
func TestLimits_Exact(t *testing.T) {
	free := registry.NewTable()
	free.Replace(slices.Values(fleet(5)))
	u := free.Usage()
	table := registry.NewTable()
	table.Limit(registry.Limits{Services: u.Services, Endpoints: u.Endpoints, Bytes: u.Bytes}, nil)
	table.Replace(slices.Values(fleet(5)))
	if got := table.Usage(); got != u {
		t.Errorf("%+v, want %+v", got, u)
	}
	table.Limit(registry.Limits{Bytes: u.Bytes - 1}, nil)
	table.Replace(slices.Values(fleet(0)))
	table.Replace(slices.Values(fleet(5)))
	if got := table.Usage(); got.Over != 1 {
		t.Errorf("a byte above the limit: %+v", got)
	}
}

// TestLimits_Excess shows that a service that does not fit makes the table stale,
// although no row changed.
func TestLimits_Excess(t *testing.T) {
	table := registry.NewTable()
	table.Limit(registry.Limits{Services: 1}, nil)
	r := table.Reader()
	defer r.Close()
	woken := func() bool {
		select {
		case <-r.Wake():
			r.Drain()
			return true
		default:
			return false
		}
	}
	table.Replace(slices.Values(fleet(1)))
	woken()
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"one more is put", func() { table.Put(service("more", "10.0.0.9")) }, true},
		{"it is put again", func() { table.Put(service("more", "10.0.0.9")) }, false},
		{"an unknown service is deleted", func() { table.Delete("unknown") }, false},
		{"it goes", func() { table.Delete("more") }, true},
	} {
		if step.do(); woken() != step.want {
			t.Errorf("%s: woken %v, want %v", step.what, !step.want, step.want)
		}
	}
}

func TestLimits_Room(t *testing.T) {
	one := registry.NewTable()
	one.Put(service("s0", "10.0.0.0"))
	for name, limits := range map[string]registry.Limits{
		"services": {Services: 10}, "endpoints": {Endpoints: 10}, "bytes": {Bytes: 10 * one.Usage().Bytes},
	} {
		t.Run(name, func(t *testing.T) { asksAgain(t, limits) })
	}
}

// asksAgain reports twelve services to a table with limits for ten.
func asksAgain(t *testing.T, limits registry.Limits) {
	t.Helper()
	table, asked := registry.NewTable(), 0
	table.Limit(limits, func() { asked++ })
	r := table.Reader()
	defer r.Close()
	table.Replace(slices.Values(fleet(12)))
	r.Drain()
	table.Delete("s0")
	if asked != 0 {
		t.Fatal("asked while nine of ten are in use")
	}
	d := r.Drain()
	if row := d.Rows["s0"]; !row.Found || d.Stale == nil {
		t.Errorf("a removal at the bound may be believed: %+v, %v", row, d.Stale)
	}
	table.Apply(nil, []registry.Name{"s1", "s2"})
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	table.Replace(slices.Values(fleet(12)[3:]))
	if _, known := table.Snapshot(); known.Stale != nil {
		t.Errorf("all fits, and it is stale: %v", known.Stale)
	}
	table.Limit(registry.Limits{Services: 3}, nil) // a limit below the current rows removes nothing
	table.Put(service("new", "10.0.0.1"))
	if rows, known := table.Snapshot(); len(rows) != 9 || known.Stale == nil {
		t.Errorf("%d rows, %v", len(rows), known.Stale)
	}
}

// TestLimits_AfterRemovals shows that another full read is requested when a tenth of
// the services, endpoints or bytes at the last request was removed.
func TestLimits_AfterRemovals(t *testing.T) {
	small := registry.Attributes{"k": strings.Repeat("x", 50_000)}
	large := registry.Attributes{"k": strings.Repeat("x", 60_000)}
	sized := func(endpoints int, a registry.Attributes) *registry.Service {
		s := service("sized", make([]string, endpoints)...)
		s.Attributes = a
		return s
	}
	for name, less := range map[string][]func(*registry.Table){
		"services": {
			func(t *registry.Table) { t.Delete("s0") }, func(t *registry.Table) { t.Delete("s1") }, func(t *registry.Table) { t.Delete("s2") },
		},
		"endpoints": {
			func(t *registry.Table) { t.Put(sized(10, large)) }, func(t *registry.Table) { t.Put(sized(9, large)) }, func(t *registry.Table) { t.Put(sized(8, large)) },
		},
		"bytes": {
			func(*registry.Table) {}, func(t *registry.Table) { t.Put(sized(11, large)) }, func(t *registry.Table) { t.Put(sized(11, small)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, asked := registry.NewTable(), 0
			table.Limit(registry.Limits{Bytes: 100_000}, func() { asked++ })
			reported := []*registry.Service{sized(11, large)}
			for i := range 11 {
				reported = append(reported, service(fmt.Sprint("s", i))) // without endpoints
			}
			huge := service("huge")
			huge.Attributes = large
			table.Replace(slices.Values(append(reported, huge, service("first"))))
			table.Delete("first")
			for i, want := range []int{1, 1, 2} {
				if less[i](table); asked != want {
					t.Fatalf("asked %d times after step %d, want %d: %+v", asked, i, want, table.Usage())
				}
			}
		})
	}
}

// TestTable_ExternalUsage shows that reserved bytes count against the limit, and that
// at least half of the limit is left for the rows.
func TestTable_ExternalUsage(t *testing.T) {
	t.Parallel()
	table := registry.NewTable()
	if !table.Reserve(1 << 40) {
		t.Error("refused without a limit")
	}
	table.Limit(registry.Limits{Bytes: 2048}, nil)
	for _, step := range []struct {
		bytes int64
		fits  bool
		usage int64
	}{
		{1 << 39, true, 1 << 39}, // fewer always fit
		{0, true, 0},
		{1024, true, 1024},
		{1025, false, 1024},
		{512, true, 512},
	} {
		if got := table.Reserve(step.bytes); got != step.fits || table.Usage().Bytes != step.usage {
			t.Errorf("%d bytes: %v, usage %d, want %v and %d", step.bytes, got, table.Usage().Bytes, step.fits, step.usage)
		}
	}
	table.Replace(slices.Values(fleet(10)))
	if k := table.Certainty(); !errors.Is(k.Stale, registry.ErrLimit) || table.Reserve(1024) {
		t.Errorf("%v, usage %+v", k.Stale, table.Usage())
	}
}

// TestTable_ExternalUsageRemoved shows that a full read is requested when reserved bytes
// are released.
func TestTable_ExternalUsageRemoved(t *testing.T) {
	t.Parallel()
	table, asked := registry.NewTable(), 0
	table.Limit(registry.Limits{Bytes: 2048}, func() { asked++ })
	table.Reserve(1024)
	table.Replace(slices.Values(fleet(10)))
	before := asked
	if table.Reserve(0); asked != before+1 {
		t.Errorf("asked %d times more", asked-before)
	}
}
