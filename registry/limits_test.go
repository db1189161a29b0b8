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

// TestLimits_D1 shows that a table at its bound keeps what it has, lets
// nothing be concluded from what is missing, and recovers.
func TestLimits_D1(t *testing.T) {
	big := service("big", "10.1.0.1")
	big.Attributes = registry.Attributes{"k": strings.Repeat("x", 4096)}
	for name, tc := range map[string]struct {
		limits registry.Limits
		tells  []*registry.Service
		rows   int
	}{
		"services":  {registry.Limits{Services: 5}, fleet(8), 5},
		"endpoints": {registry.Limits{Endpoints: 5}, fleet(8), 5},
		"bytes, of one service that is too large": {registry.Limits{Bytes: 2048}, append(fleet(3), big), 3},
	} {
		t.Run(name, func(t *testing.T) {
			table := registry.NewTable()
			asked := 0
			table.Limit(tc.limits, func() { asked++ })
			table.Replace(slices.Values(tc.tells))
			rows, known := table.Snapshot()
			if len(rows) != tc.rows || !errors.Is(known.Stale, registry.ErrLimit) || !known.Synced {
				t.Fatalf("%d rows, %v", len(rows), known.Stale)
			}
			if u := table.Usage(); u.Services != tc.rows || u.Endpoints != tc.rows || u.Over != len(tc.tells)-tc.rows {
				t.Errorf("usage %+v", u)
			}
			table.Put(service("s1", "10.9.9.9")) // what is there is still followed
			if got := table.Get("s1").Endpoints[0].Host; got != "10.9.9.9" {
				t.Errorf("s1 is at %s", got)
			}
			table.Replace(slices.Values(tc.tells[:2]))
			if rows, known = table.Snapshot(); len(rows) != 2 || known.Stale != nil {
				t.Errorf("%d rows, %v", len(rows), known.Stale)
			}
		})
	}
}

func TestLimitsAskAgainOnceThereIsRoom_D1(t *testing.T) {
	table, asked := registry.NewTable(), 0
	table.Limit(registry.Limits{Services: 10}, func() { asked++ })
	r := table.Reader()
	defer r.Close()
	table.Replace(slices.Values(fleet(12)))
	r.Drain()
	table.Delete("s0")
	if asked != 0 {
		t.Fatal("asked while nine of ten are taken")
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
	table.Limit(registry.Limits{Services: 3}, nil) // a bound below what is there takes nothing away
	table.Put(service("new", "10.0.0.1"))
	if rows, known := table.Snapshot(); len(rows) != 9 || known.Stale == nil {
		t.Errorf("%d rows, %v", len(rows), known.Stale)
	}
}
