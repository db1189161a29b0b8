package registry_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func TestService_LastEndpoint(t *testing.T) {
	t.Parallel()
	at := func(paths ...registry.Path) *registry.Service {
		s := &registry.Service{Name: "x", Path: "home"}
		for _, p := range paths {
			s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0.1", Path: p})
		}
		return s
	}
	for name, tt := range map[string]struct {
		before *registry.Service
		want   registry.Path
	}{
		"keeps its own path":                            {at("", ""), "home"},
		"keeps the common path of its endpoints":        {at("mesh", "mesh"), "mesh"},
		"has none if its endpoints have different ones": {at("mesh", ""), ""},
		"keeps its own without endpoints":               {at(), "home"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := registry.KeepEmpty(nil, []*registry.Service{tt.before})
			if len(got) != 1 || len(got[0].Endpoints) != 0 || got[0].Path != tt.want {
				t.Errorf("%+v, want path %q", got, tt.want)
			}
		})
	}
}

func TestService_LastEndpointProtocol(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		own   string
		spoke []string
		want  string
	}{
		"the common protocol of its endpoints":     {"dubbo", []string{"tri", "tri"}, "tri"},
		"its own if those of its endpoints differ": {"dubbo", []string{"tri", "grpc"}, "dubbo"},
		"its own for an endpoint without one":      {"tri", []string{"", "tri"}, "tri"},
		"its own without endpoints":                {"dubbo", nil, "dubbo"},
		"that of an endpoint if it has none":       {"", []string{"dubbo", "rest"}, "dubbo"},
		"its own if only some endpoints have one":  {"dubbo", []string{"", "tri"}, "dubbo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &registry.Service{Name: "x", Protocol: tt.own}
			for _, p := range tt.spoke {
				s.Endpoints = append(s.Endpoints, registry.Endpoint{Protocol: p})
			}
			if got := registry.KeepEmpty(nil, []*registry.Service{s}); got[0].Protocol != tt.want {
				t.Errorf("%q, want %q", got[0].Protocol, tt.want)
			}
		})
	}
}
