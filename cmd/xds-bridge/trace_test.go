package main

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// V09: what an entry says of itself tells which service may keep it.
func TestTrace(t *testing.T) {
	t.Parallel()
	b := &builder{cfg: &config.Config{Registries: map[string]config.Registry{"mesh": {Istiod: &config.Istiod{}}, "zk": {}}}}
	leading := []config.Bridge{{Name: "one", From: "mesh"}, {Name: "two", From: "zk"}}
	url := func(bridge string) registry.Entry {
		return registry.Entry{Value: "dubbo://10.0.0.1:20880/api.A?meshHostAddr=a.shop:20880&side=provider&xdsb=" + metadata.NewMark("me", bridge).String()}
	}
	for name, test := range map[string]struct {
		of    int
		entry registry.Entry
		want  registry.Name
		ours  bool
	}{
		"of the bridge itself":               {of: 0, entry: url("one"), want: "a.shop:20880", ours: true},
		"of another bridge to the place":     {of: 0, entry: url("two"), ours: false},
		"of a bridge that is gone":           {of: 0, entry: url("three"), want: "a.shop:20880", ours: true},
		"without a mark":                     {of: 0, entry: registry.Entry{Value: `{"metadata":{"meshHostAddr":"a.shop:1"}}`}, want: "a.shop:1", ours: true},
		"without a host":                     {of: 0, entry: registry.Entry{Value: `{}`}, ours: true},
		"from a registry that knows no host": {of: 1, entry: url("two"), ours: true},
	} {
		trace := b.trace(leading[test.of], leading)
		if got, ours := trace.Origin(test.entry); got != test.want || ours != test.ours {
			t.Errorf("%s: %q, %v", name, got, ours)
		}
	}
	if one, two := b.trace(leading[0], leading), b.trace(leading[1], leading); !one.Service("a.shop:1") || one.Service("service keys") || two.Service("a") {
		t.Error("scopes are taken for services that are none")
	}
}
