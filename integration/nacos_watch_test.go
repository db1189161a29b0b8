package integration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// nacosReportsOthers shows what a real server reports a target of that others do,
// and that our own writes are not reported.
func nacosReportsOthers(t *testing.T, server *harness.Nacos) {
	t.Helper()
	target, _ := nacosTarget(t, at(server))
	other, _ := nacosTarget(t, at(server))
	target.Changed()
	g := nacosGroup("api.Watched")
	write := func(to registry.Target, entries ...registry.Entry) {
		t.Helper()
		if err := to.Write(t.Context(), nacosChange(g, entries...)); err != nil {
			t.Fatal(err)
		}
	}
	edited, err := metadata.ParseNacosInstance(nacosEntry(g, 1, "me").Value)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name     string
		happens  func()
		reported bool
	}{
		{name: "a first write", happens: func() { write(target, nacosEntry(g, 1, "me")) }},
		{name: "a second write", happens: func() { write(target, nacosEntry(g, 1, "me"), nacosEntry(g, 2, "me")) }},
		{name: "an instance of another", reported: true, happens: func() { write(other, nacosEntry(g, 3, "another")) }},
		{name: "its end", reported: true, happens: func() { write(other) }},
		{name: "weight and metadata set in the console", reported: true, happens: func() {
			server.Edit(t, g.Name, model.Instance{Ip: edited.IP, Port: uint64(edited.Port), Weight: 7, ClusterName: "DEFAULT", Metadata: edited.Metadata})
		}},
		{name: "nothing", happens: func() {}},
	} {
		if _, err := target.Watch(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // reports about the read itself have arrived by that time
		if got := target.Changes(); got != nil {
			t.Errorf("%s: Changes() = %v before it happens", step.name, got)
		}
		step.happens()
		time.Sleep(time.Second) // after which our write is read back
		if got := target.Changes(); slices.Contains(got, g) != step.reported {
			t.Errorf("%s: Changes() = %v, want it reported %v", step.name, got, step.reported)
		}
	}
	if _, err := target.Read(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	write(other, nacosEntry(g, 3, "another"))
	time.Sleep(time.Second)
	if got := target.Changes(); got != nil {
		t.Errorf("Changes() = %v of a service that is watched no more", got)
	}
}
