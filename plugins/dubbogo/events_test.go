package dubbogo_test

import (
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/dubbogo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

var greeter = registry.Interface{Name: "api.Greeter"}

const host = "greeter.shop"

// at is a snapshot of one host of the mesh.
func at(endpoints ...registry.Endpoint) client.Snapshot {
	s := &registry.Service{
		Name: registry.Name(host + ":20000"), Protocol: "tri", Interfaces: []registry.Interface{greeter, {Name: "api.Other"}},
		Attributes: registry.Attributes{mesh.AttributeCluster: "outbound|20000||" + host, mesh.AttributeHost: host + ":20000"},
	}
	var out client.Snapshot
	for _, e := range endpoints {
		out.Endpoints = append(out.Endpoints, client.Endpoint{Endpoint: e, Service: s})
	}
	return out
}

func endpoint(host, subset string, weight uint32) registry.Endpoint {
	e := registry.Endpoint{Host: host, Port: 20000, Weight: weight}
	if subset != "" {
		e.Attributes = registry.Attributes{mesh.AttributeSubset: subset}
	}
	return e
}

const (
	whole1 = "tri://10.0.0.1:20000/api.Greeter?endPointWeight=1&meshClusterID=outbound%7C20000%7C%7Cgreeter.shop&meshHostAddr=greeter.shop%3A20000&meshSubset="
	whole2 = "tri://10.0.0.2:20000/api.Greeter?endPointWeight=1&meshClusterID=outbound%7C20000%7C%7Cgreeter.shop&meshHostAddr=greeter.shop%3A20000&meshSubset="
	heavy1 = "tri://10.0.0.1:20000/api.Greeter?endPointWeight=5&meshClusterID=outbound%7C20000%7C%7Cgreeter.shop&meshHostAddr=greeter.shop%3A20000&meshSubset="
	v2     = "tri://10.0.0.2:20000/api.Greeter?endPointWeight=1&meshClusterID=outbound%7C20000%7Cv2%7Cgreeter.shop&meshHostAddr=greeter.shop%3A20000&meshSubset=v2"
	gone   = "tri://*/api.Greeter?endPointWeight=1&meshClusterID=outbound%7C20000%7C%7Cgreeter.shop&meshHostAddr=greeter.shop%3A20000&meshSubset="
)

func TestEventsAreThoseOfTheXDSRegistry_A66_B1_B2(t *testing.T) {
	one, two := endpoint("10.0.0.1", "", 0), endpoint("10.0.0.2", "", 1)
	none := client.Snapshot{}
	update, remove := dubbogo.Update, dubbogo.Delete
	for name, c := range map[string]struct {
		before, after client.Snapshot
		want          []dubbogo.Event
	}{
		"a new listener is told of everything": {none, at(one, two), []dubbogo.Event{{update, whole1}, {update, whole2}}},
		"nothing changed":                      {at(one, two), at(one, two), nil},
		"one comes":                            {at(one), at(one, two), []dubbogo.Event{{update, whole2}}},
		"one goes":                             {at(one, two), at(one), []dubbogo.Event{{remove, whole2}}},
		"another weight is an update alone":    {at(one), at(endpoint("10.0.0.1", "", 5)), []dubbogo.Event{{update, heavy1}}},
		"a subset is a cluster of its own":     {at(two), at(endpoint("10.0.0.2", "v2", 1)), []dubbogo.Event{{update, v2}}},
		"a cluster that is gone is one event":  {at(one, two), none, []dubbogo.Event{{remove, gone}}},
		"both clusters of a subset go": {at(endpoint("10.0.0.2", "v2", 1)), none, []dubbogo.Event{
			{remove, "tri://*/api.Greeter?endPointWeight=1&meshClusterID=outbound%7C20000%7Cv2%7Cgreeter.shop&meshHostAddr=greeter.shop%3A20000&meshSubset=v2"}, {remove, gone},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dubbogo.Events(greeter, c.before, c.after); !slices.Equal(got, c.want) {
				t.Errorf("events\n  %v\nwant\n  %v", got, c.want)
			}
		})
	}
	if got := dubbogo.All(greeter, at(one, two)); !slices.Equal(got, []string{whole1, whole2}) {
		t.Errorf("all: %v", got)
	}
	if got := dubbogo.All(registry.Interface{Name: "api.Stranger"}, at(one)); got != nil {
		t.Errorf("of an interface that is not provided: %v", got)
	}
}
