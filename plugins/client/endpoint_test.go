package client_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

func TestEndpoint_Subset(t *testing.T) {
	table := &routes.Table{Routes: []routes.Route{
		{Match: routes.Match{Headers: []routes.Header{{Name: "x-env", Text: routes.Text{Exact: "canary"}}}}, Clusters: []routes.Share{
			{Cluster: naming.Cluster{Direction: naming.Outbound, Port: 80, Subset: "v2", Host: "greeter.shop"}, Weight: 1},
		}},
	}}
	e := client.Endpoint{Service: "greeter.shop:80", Subsets: []string{"v1", "v2"}, Router: table}
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

func TestWeight_OneForm(t *testing.T) {
	for part, want := range map[float64]float64{1: 1, 0.1: 0.1, 0: 0, -1: 0, 3: 3, 0.001: 0.01} {
		if w := client.WeightOf(part); w.Part() != want || !w.Reported() {
			t.Errorf("WeightOf(%v).Part() = %v, %t, want %v", part, w.Part(), w.Reported(), want)
		}
	}
	if w := (client.Weight{}); w.Part() != 1 || w.Reported() {
		t.Errorf("one that is not reported = %v, %t", w.Part(), w.Reported())
	}
}
