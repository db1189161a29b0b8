package registry_test

import (
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func held(key string) registry.Held {
	return registry.Held{Entry: registry.Entry{Group: registry.Group{Name: "g"}, Key: key}}
}

func TestKeepHoldsDeletionsBack(t *testing.T) {
	change := registry.Change{
		Delete: []registry.Held{held("a"), held("c")},
		Want:   []registry.Entry{held("b").Entry, held("d").Entry},
	}
	kept := change.Keep(func(h registry.Held) bool { return h.Key == "c" })
	if len(kept.Delete) != 1 || kept.Delete[0].Key != "c" {
		t.Errorf("deletes %v", kept.Delete)
	}
	var want []string
	for _, e := range kept.Want {
		want = append(want, e.Key)
	}
	if !slices.Equal(want, []string{"a", "b", "d"}) {
		t.Errorf("wants %v", want)
	}
	if len(change.Delete) != 2 || len(change.Want) != 2 {
		t.Error("the change itself was altered")
	}
}

func TestOfferedHealth(t *testing.T) {
	for health, want := range map[registry.Health]bool{
		registry.HealthUnknown: true, registry.Healthy: true, registry.Degraded: true,
		registry.Unhealthy: false, registry.Draining: false, registry.Disabled: false,
	} {
		if health.Offered() != want {
			t.Errorf("%s: offered %v, want %v", health, health.Offered(), want)
		}
	}
}

func TestPathKnowsItsHops(t *testing.T) {
	p := registry.Path("aaaabbbbcccc")
	if p.Hops() != 3 || !p.Has("bbbb") || !p.Has("cccc") || p.Has("aabb") || registry.Path("").Has("aaaa") {
		t.Errorf("%q: hops %d", p, p.Hops())
	}
}

func TestEndpointAddress(t *testing.T) {
	for host, want := range map[string]string{"10.0.0.1": "10.0.0.1:80", "fd00::1": "[fd00::1]:80", "a.example.com": "a.example.com:80"} {
		if got := (registry.Endpoint{Host: host, Port: 80}).Address(); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

func TestServicesDifferInEveryField(t *testing.T) {
	base := func() *registry.Service {
		return &registry.Service{
			Name: "n", Namespace: "ns", Application: "app", Protocol: "tri", Path: "aaaa",
			Interfaces: []registry.Interface{{Name: "i"}}, Attributes: registry.Attributes{"k": "v"},
			Endpoints: []registry.Endpoint{{Host: "h", Port: 1, Attributes: registry.Attributes{"k": "v"}}},
		}
	}
	if !base().Equal(base()) {
		t.Fatal("equal services differ")
	}
	for name, change := range map[string]func(*registry.Service){
		"name":        func(s *registry.Service) { s.Name = "x" },
		"namespace":   func(s *registry.Service) { s.Namespace = "x" },
		"application": func(s *registry.Service) { s.Application = "x" },
		"protocol":    func(s *registry.Service) { s.Protocol = "x" },
		"path":        func(s *registry.Service) { s.Path = "x" },
		"interfaces":  func(s *registry.Service) { s.Interfaces[0].Group = "x" },
		"attributes":  func(s *registry.Service) { s.Attributes["k"] = "x" },
		"endpoints":   func(s *registry.Service) { s.Endpoints = nil },
		"host":        func(s *registry.Service) { s.Endpoints[0].Host = "x" },
		"port":        func(s *registry.Service) { s.Endpoints[0].Port = 2 },
		"port name":   func(s *registry.Service) { s.Endpoints[0].PortName = "x" },
		"health":      func(s *registry.Service) { s.Endpoints[0].Health = registry.Draining },
		"weight":      func(s *registry.Service) { s.Endpoints[0].Weight = 2 },
		"zone":        func(s *registry.Service) { s.Endpoints[0].Zone = "x" },
		"instance":    func(s *registry.Service) { s.Endpoints[0].Instance = "x" },
		"labels":      func(s *registry.Service) { s.Endpoints[0].Attributes["k"] = "x" },
	} {
		s := base()
		change(s)
		if s.Equal(base()) {
			t.Errorf("%s: no difference seen", name)
		}
	}
}
