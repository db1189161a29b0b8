package client_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

func TestBalance_Weights(t *testing.T) {
	const n = 20_000
	weight := func(w uint64) uint64 { return w }
	counts := make(map[uint64]int)
	for range n {
		one, ok := client.Choose([]uint64{10, 0, 30}, weight)
		if !ok {
			t.Fatal("nobody is chosen")
		}
		counts[one]++
	}
	if share := counts[30] * 100 / n; counts[0] > 0 || share < 72 || share > 78 {
		t.Errorf("%v", counts)
	}
	for name, none := range map[string][]uint64{"nobody": nil, "nobody with a weight": {0, 0}} {
		if one, ok := client.Choose(none, weight); ok {
			t.Errorf("%s: %d is chosen", name, one)
		}
	}
}

// TestBalance_WeightChange: to what it was before, and to none.
func TestBalance_WeightChange(t *testing.T) {
	asked := 0
	fading := func(uint64) uint64 {
		if asked++; asked > 2 {
			return 0
		}
		return 1
	}
	if one, ok := client.Choose([]uint64{1, 2}, fading); ok {
		t.Errorf("%d is chosen, and has no weight any more", one)
	}
}

func TestBalance_Subset(t *testing.T) {
	table := &routes.Table{Routes: []routes.Route{
		{Match: routes.Match{Headers: []routes.Header{{Name: "x-env", Text: routes.Text{Exact: "canary"}}}}, Clusters: []routes.Share{
			{Cluster: naming.Cluster{Direction: naming.Outbound, Port: 80, Subset: "v2", Host: "greeter.shop"}, Weight: 1},
		}},
	}}
	e := client.Endpoint{
		Endpoint: registry.Endpoint{Attributes: registry.Attributes{mesh.AttributeSubset: "v1,v2"}},
		Service:  &registry.Service{Name: "greeter.shop:80"}, Routes: table,
	}
	canary := func(name string) (string, bool) { return "canary", name == "x-env" }
	plain := func(string) (string, bool) { return "", false }
	if got := e.Subset("/api.Greeter/Hello", canary); got != "v2" {
		t.Errorf("the canary goes to %q", got)
	}
	if got := e.Subset("/api.Greeter/Hello", plain); got != "" {
		t.Errorf("others go to %q", got)
	}
	if got := (client.Endpoint{}).Subset("/", canary); got != "" {
		t.Errorf("without routes it goes to %q", got)
	}
	for subset, in := range map[string]bool{"v1": true, "v2": true, "v3": false} {
		if got := e.In("greeter.shop:80", subset); got != in {
			t.Errorf("in %s: %v", subset, got)
		}
	}
	if e.In("other.shop:80", "v1") {
		t.Error("in a subset of another service")
	}
}

func TestBalance_HeaderCase(t *testing.T) {
	header := client.Header(map[string]any{"X-Env": []string{"a", "b"}, "x-size": 3}, nil, map[string]any{"x-env": "later", "x-user": "me"})
	for name, want := range map[string]string{"x-env": "a,b", "X-User": "me", "x-size": "", "x-none": ""} {
		if got, ok := header(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}
