package admin_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A service is as its target holds it, as far as is known: what keeps that from
// being known is said with it, and nothing of registries that it does not pass.
func TestWhyTellsTheConditionsOnTheWayOfAService(t *testing.T) {
	mesh, other := registry.NewTable(), registry.NewTable()
	mesh.Replace(slices.Values([]*registry.Service{service()}))
	mesh.Stale(errors.New("istiod is away"))
	other.Stale(errors.New("nacos is away"))
	away := func() admin.TargetState { return admin.TargetState{LastError: "refused"} }
	of := func(name string, services ...bridge.ServiceStatus) admin.Target {
		st := inSync()
		st.Services = services
		return admin.Target{Name: name, Kind: "zookeeper", Loop: &loop{st: st}, State: away}
	}
	s, err := admin.New(t.Context(), admin.Options{
		Inputs:  []admin.Input{{Name: "mesh", Table: mesh}, {Name: "nacos", Table: other}},
		Targets: []admin.Target{of("zk", bridge.ServiceStatus{Bridge: "b", Service: greeter, Reason: bridge.ReasonSynced}), of("zk2")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]string{
		"api.Greeter": {"mesh stale", "zk away"},
		"api.Nobody":  {"mesh stale", "nacos pending", "nacos stale", "zk away", "zk2 away"},
	} {
		var got []string
		for _, c := range s.Why(t.Context(), query).Conditions {
			got = append(got, c.Peer+" "+string(c.Name))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
