package registry_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func TestPlace(t *testing.T) {
	shop := func(rest string) bool { return strings.HasPrefix(rest, "shop-") }
	prod := registry.NewPlace(registry.Group{Kind: "kratos", Namespace: "/prod", Name: "any"}, shop)
	nacos := registry.NewPlace(registry.Group{Kind: "kratos", Namespace: "n", Group: "G"}, nil)
	for name, places := range map[registry.Name][2]bool{
		"kratos:/prod/shop-a":  {true, false},
		"kratos:/prod/other":   {false, false},
		"kratos:/gray/shop-a":  {false, false},
		"plain:/prod/shop-a":   {false, false},
		"kratos:n@G/anything":  {false, true},
		"kratos:n@G2/anything": {false, false},
		"a.shop.svc:80":        {false, false},
	} {
		if got := [2]bool{prod.Has(name), nacos.Has(name)}; got != places {
			t.Errorf("Has(%s) = %v, want %v", name, got, places)
		}
		if !(registry.Part{}).Has(name) || (registry.Part{prod, nacos}).Has(name) != (places[0] || places[1]) {
			t.Errorf("Has(%s) of all, of both = false, or not as either has it", name)
		}
	}
	if got := prod.Scope(); got != "kratos:/prod/*" {
		t.Errorf("Scope() = %s, want that of the root", got)
	}
}

// TestTable_Parts shows that a reader sees the services and unknown scopes of its part.
func TestTable_Parts(t *testing.T) {
	table, denied := registry.NewTable(), errors.New("denied")
	table.Put(service("f:/prod/a", "10.0.0.1"))
	table.Put(service("f:/gray/a", "10.0.0.1"))
	table.Unknown("f:/gray/*", denied)
	at := func(root string) *registry.Reader {
		return table.ReaderOn(make(chan struct{}, 1), registry.NewPlace(registry.Group{Kind: "f", Namespace: root}, nil))
	}
	prod, gray, all := at("/prod"), at("/gray"), table.Reader()
	for step, want := range []struct {
		act                            func()
		prod, gray, all, scopes, grays string
	}{
		{func() {}, "+f:/prod/a", "+f:/gray/a", "+f:/gray/a +f:/prod/a", "", "f:/gray/*"},
		{func() { table.Delete("f:/gray/a") }, "", "-f:/gray/a", "-f:/gray/a", "", "f:/gray/*"},
		{func() { table.Unknown("f:/prod/a", denied) }, "", "", "", "f:/prod/a", "f:/gray/*"},
		{func() { table.Unknown("f:*", denied) }, "", "", "", "f:* f:/prod/a", "f:* f:/gray/*"},
		{func() { table.Renew(denied) }, "", "", "", "", ""},
	} {
		want.act()
		p, g, a := prod.Drain(), gray.Drain(), all.Drain()
		rows := func(d registry.Delta) string { return strings.Join(changed(d), " ") }
		if rows(p) != want.prod || rows(g) != want.gray || rows(a) != want.all {
			t.Errorf("step %d: drained %q, %q and %q, want %q, %q and %q", step, rows(p), rows(g), rows(a), want.prod, want.gray, want.all)
		}
		scopes := func(d registry.Delta) string { return strings.Join(slices.Sorted(maps.Keys(d.Unknown)), " ") }
		if scopes(p) != want.scopes || scopes(g) != want.grays {
			t.Errorf("step %d: unknown %q and %q, want %q and %q", step, scopes(p), scopes(g), want.scopes, want.grays)
		}
	}
	table.Replace(slices.Values([]*registry.Service{service("f:/prod/a", "10.0.0.1")}))
	if d := prod.Drain(); !d.Synced || d.Stale != nil || d.Epoch != 1 {
		t.Errorf("drained %+v, want the certainty of the whole table", d.Certainty)
	}
}
