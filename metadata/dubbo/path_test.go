package dubbo_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestPath_RoundTrip shows that consumers of every format call an interface at the path
// that its provider names.
func TestPath_RoundTrip(t *testing.T) {
	s := &registry.Service{
		Name: "dubbo-interface:/dubbo/providers:api.Greeter::", Application: "greeter",
		Interfaces: []registry.Interface{{Name: "api.Greeter"}},
		Endpoints: []registry.Endpoint{
			{Host: "10.0.0.1", Port: 1, Protocol: "dubbo", Weight: 100},
			{Host: "10.0.0.1", Port: 1, Protocol: "rest", Weight: 100, URLPath: "api/x.Rest"},
		},
	}
	app, err := dubbo.NewZooKeeperApp(marked())
	if err != nil {
		t.Fatal(err)
	}
	inNacos, err := dubbo.NewNacosApp(marked())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		codec   metadata.Codec
		one     bool   // entry for both endpoints
		written string // where consumers look for it
	}{
		"interface, ZooKeeper":   {zookeeper(t, marked()), false, "rest://10.0.0.1:1/api/x.Rest?"},
		"interface, Nacos":       {nacos(t, marked()), true, `"path":"api/x.Rest"`},
		"application, ZooKeeper": {app, false, `"protocol":"rest","path":"api/x.Rest"`},
		"application, Nacos":     {inNacos, false, `"protocol":"rest","path":"api/x.Rest"`},
	} {
		t.Run(name, func(t *testing.T) {
			of := *s
			if tt.one { // of two protocols at one address Nacos holds the last
				of.Endpoints = s.Endpoints[1:]
			}
			entries := encode(t, tt.codec, &of)
			if !strings.Contains(text(entries), tt.written) {
				t.Errorf("no %s in %s", tt.written, text(entries))
			}
			if err := leftOut(tt.codec, s); tt.one != (err != nil) {
				t.Errorf("left out: %v", err)
			}
			services, failures := tt.codec.Decode(slices.DeleteFunc(slices.Clone(entries), func(e registry.Entry) bool { return registry.IsPart(e.Key) }), entries)
			if len(failures) > 0 || len(services) != 1 || len(services[0].Endpoints) != len(of.Endpoints) {
				t.Fatalf("Decode = %s, want one service with %d endpoints", render(services, failures), len(of.Endpoints))
			}
			for i, e := range services[0].Endpoints {
				if e.URLPath != of.Endpoints[i].URLPath {
					t.Errorf("Decode: URLPath of %s = %q, want %q", e.Protocol, e.URLPath, of.Endpoints[i].URLPath)
				}
			}
		})
	}
}

// TestPath_Invalid shows that an invalid path affects only its own endpoint.
func TestPath_Invalid(t *testing.T) {
	z := zookeeper(t, dubbo.Options{})
	g := registry.Group{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "api.Greeter"}
	services, failures := z.Decode([]registry.Entry{
		{Group: g, Key: "a", Value: "tri://10.0.0.1:1/a b?interface=api.Greeter"},
		{Group: g, Key: "b", Value: "tri://10.0.0.2:1/api.Greeter"},
	}, nil)
	if len(failures) != 1 || failures[0].Entry.Key != "a" || len(services) != 1 || len(services[0].Endpoints) != 1 {
		t.Errorf("Decode = %s, want an error only for entry a", render(services, failures))
	}
}
