package main

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// V09: what an entry says of itself tells which service may keep it.
func TestTrace(t *testing.T) {
	t.Parallel()
	of, none := trace{mesh: true}, trace{}
	for value, want := range map[string]registry.Name{
		"dubbo://10.0.0.1:20880/api.A?meshHostAddr=a.shop:20880&side=provider": "a.shop:20880",
		`{"metadata":{"meshHostAddr":"a.shop:1"}}`:                             "a.shop:1",
		`{}`: "",
	} {
		if got := of.Origin(registry.Entry{Value: value}); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
		if got := none.Origin(registry.Entry{Value: value}); got != "" {
			t.Errorf("%s: %q, of a registry that knows no host", value, got)
		}
	}
	if !of.Service("a.shop:1") || of.Service("service keys") || none.Service("a") {
		t.Error("scopes are taken for services that are none")
	}
}
