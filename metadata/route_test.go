package metadata_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// hops returns a path through registries.
func hops(ids ...string) registry.Path {
	var p registry.Path
	for _, id := range ids {
		p += registry.Path(metadata.Hop(id))
	}
	return p
}

// passes lists the path of the service and of each of its endpoints.
func passes(s *registry.Service) []registry.Path {
	if s == nil {
		return nil
	}
	all := []registry.Path{s.Path}
	for _, e := range s.Endpoints {
		all = append(all, e.Path)
	}
	return all
}

func TestRoute(t *testing.T) {
	t.Parallel()
	route := metadata.Route{From: metadata.Hop("here"), To: metadata.Hop("there")}
	for name, tt := range map[string]struct {
		service   registry.Path
		endpoints []registry.Path
		want      []registry.Path // of the service, then of each endpoint; none: nothing passes
		refused   int
	}{
		"what is at home here":           {endpoints: []registry.Path{"", ""}, want: []registry.Path{hops("here"), hops("here"), hops("here")}},
		"what came from elsewhere":       {endpoints: []registry.Path{hops("a")}, want: []registry.Path{hops("here"), hops("a", "here")}},
		"the service's path is its own":  {service: hops("a"), endpoints: []registry.Path{"", hops("b")}, want: []registry.Path{hops("a", "here"), hops("a", "here"), hops("b", "here")}},
		"what came from there stays":     {endpoints: []registry.Path{hops("there")}, refused: 1},
		"a ring of three ends":           {endpoints: []registry.Path{hops("there", "a")}, refused: 1},
		"its neighbours pass":            {endpoints: []registry.Path{hops("there"), ""}, want: []registry.Path{hops("here"), hops("here")}, refused: 1},
		"a service that came from there": {service: hops("there"), endpoints: []registry.Path{"", ""}, refused: 2},
		"a fourth hop is the last":       {endpoints: []registry.Path{hops("a", "b", "c")}, want: []registry.Path{hops("here"), hops("a", "b", "c", "here")}},
		"a fifth is taken for a loop":    {endpoints: []registry.Path{hops("a", "b", "c", "d")}, refused: 1},
		"a service without endpoints":    {want: []registry.Path{hops("here")}},
		"one without that came by there": {service: hops("there"), refused: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &registry.Service{Name: "x", Path: tt.service}
			for i, p := range tt.endpoints {
				s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0." + strconv.Itoa(i+1), Port: 1, Path: p})
			}
			before := passes(s)
			got, err := route.Pass(s)
			wantSame(t, passes(got), tt.want)
			wantSame(t, passes(s), before)
			refused := 0
			if err != nil {
				refused = strings.Count(err.Error(), "loop: ")
			}
			if refused != tt.refused {
				t.Errorf("%d reasons, want %d: %v", refused, tt.refused, err)
			}
		})
	}
	t.Run("a route without names changes nothing", func(t *testing.T) {
		t.Parallel()
		s := &registry.Service{Path: hops("a"), Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 1}}}
		got, err := metadata.Route{}.Pass(s)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, passes(got), []registry.Path{hops("a"), hops("a")})
	})
}

func wantSame(t *testing.T, got, want []registry.Path) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
}
