package registry_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func stored(key string) registry.Stored {
	return registry.Stored{Entry: registry.Entry{Group: registry.Group{Name: "g"}, Key: key}}
}

func TestChange_Keep(t *testing.T) {
	change := registry.Change{
		Delete: []registry.Stored{stored("a"), stored("c")},
		Want:   []registry.Entry{stored("b").Entry, stored("d").Entry},
	}
	kept := change.Keep(func(h registry.Stored) bool { return h.Key == "c" })
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

func TestPath_Hops(t *testing.T) {
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

func TestService_Equal(t *testing.T) {
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

func TestRefused(t *testing.T) {
	t.Parallel()
	t.Run("without keys it is not an error", func(t *testing.T) {
		t.Parallel()
		if err := (registry.Refused{}).Err(); err != nil {
			t.Errorf("Err = %v, want nil", err)
		}
	})
	t.Run("it is found in an error with its keys and reasons", func(t *testing.T) {
		t.Parallel()
		reason := errors.New("too large")
		err := fmt.Errorf("write: %w", registry.Refused{"k": reason}.Err())
		var found registry.Refused
		if !errors.Is(err, registry.ErrRefused) || !errors.Is(err, reason) || !errors.As(err, &found) || !found.Has("k") || found.Has("l") {
			t.Errorf("%v, %v", err, found)
		}
	})
	t.Run("equal reasons are reported once, and of many the first few", func(t *testing.T) {
		t.Parallel()
		all := make(registry.Refused)
		for i := range 100 {
			all[fmt.Sprintf("a%02d", i)] = fmt.Errorf("%w: no rights", registry.ErrRefused)
			all[fmt.Sprintf("b\x1b%02d", i)] = fmt.Errorf("bad %d", i)
		}
		want := `refused: "a00" and 99 more: no rights; "b\x1b00": bad 0; "b\x1b01": bad 1; 98 other reasons`
		if got := all.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		long := registry.Refused{strings.Repeat("x", 1<<20): errors.New("no")}
		if n := len(long.Error()); n > 300 {
			t.Errorf("%d bytes", n)
		}
	})
}

func TestChange_WithoutKeys(t *testing.T) {
	t.Parallel()
	entry := func(key, value string) registry.Entry { return registry.Entry{Key: key, Value: value} }
	stored := func(key, value string) registry.Stored { return registry.Stored{Entry: entry(key, value), Live: true} }
	old, stays := stored("b", "1"), stored("f", "1")
	change := registry.Change{
		Put: []registry.Write{
			{New: entry("a", "2")}, {New: entry("b", "2"), Old: &old}, {New: entry("c", "2")}, {New: entry("f", "2"), Old: &stays, KeepOld: true},
		},
		Delete: []registry.Stored{stored("d", "1"), stored("e", "1")},
		Want:   []registry.Entry{entry("a", "2"), entry("b", "2"), entry("c", "2"), entry("f", "1"), entry("f", "2")},
	}
	before := slices.Clone(change.Put)
	got := change.Without(func(key string) bool { return slices.Contains([]string{"a", "b", "d", "f"}, key) })
	if len(got.Put) != 1 || got.Put[0].New.Key != "c" || len(got.Delete) != 1 || got.Delete[0].Key != "e" {
		t.Errorf("it does %+v", got)
	}
	want := []registry.Entry{entry("b", "1"), entry("c", "2"), entry("d", "1"), entry("f", "1")}
	if !slices.Equal(got.Want, want) {
		t.Errorf("wants %v, want %v", got.Want, want)
	}
	if !slices.Equal(change.Put, before) || len(change.Want) != 5 {
		t.Error("the change itself was altered")
	}
}

// TestChange_WithoutEndpoints shows that no part is deleted while an endpoint is
// skipped, because the endpoint may refer to it.
func TestChange_WithoutEndpoints(t *testing.T) {
	t.Parallel()
	stored := func(key string) registry.Stored {
		return registry.Stored{Entry: registry.Entry{Key: key, Value: "1"}, Live: true}
	}
	old := stored("updated")
	change := registry.Change{
		Put:    []registry.Write{{New: registry.Entry{Key: "new", Value: "2"}}, {New: registry.Entry{Key: "updated", Value: "2"}, Old: &old}},
		Delete: []registry.Stored{stored("#part"), stored("gone")},
	}
	for skipped, want := range map[string]int{"new": 2, "updated": 1, "gone": 0, "#part": 1, "": 2} {
		if got := change.Without(func(key string) bool { return key == skipped }); len(got.Delete) != want {
			t.Errorf("Without(%q) deletes %v, want %d", skipped, got.Delete, want)
		}
	}
}
