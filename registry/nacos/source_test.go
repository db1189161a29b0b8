package nacos_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// sourceTest is a test of a source that has read what the first function did.
type sourceTest struct {
	tune   tuneFunc
	before func(*readRig)
	then   func(*testing.T, *readRig)
}

func (test sourceTest) run(t *testing.T) {
	t.Helper()
	var tune []tuneFunc
	if test.tune != nil {
		tune = append(tune, test.tune)
	}
	r := newReadRig(t, tune...)
	if test.before != nil {
		test.before(r)
	}
	r.run(t)
	later(time.Second)
	test.then(t, r)
}

func runAll(t *testing.T, tests map[string]sourceTest) {
	t.Helper()
	for name, test := range tests {
		bubble(t, name, test.run)
	}
}

func TestSource(t *testing.T) {
	runAll(t, map[string]sourceTest{
		"registered services are reported after everything was read": {
			before: func(r *readRig) {
				r.register("api.A", "10.0.0.1", "10.0.0.2")
				r.register("api.B", "10.0.0.3")
				if r.tableState().Synced {
					panic("synced before anything was read")
				}
			},
			then: func(t *testing.T, r *readRig) {
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				r.fresh(t)
			},
		},
		"an empty registry is known to be empty": {
			then: func(t *testing.T, r *readRig) {
				r.reports(t)
				r.fresh(t)
			},
		},
		"instances and services come and go": {
			before: func(r *readRig) { r.register("api.A", "10.0.0.1", "10.0.0.2") },
			then: func(t *testing.T, r *readRig) {
				r.register("api.A", "10.0.0.2")
				later(time.Millisecond)
				r.reports(t, "api.A=10.0.0.2")
				r.register("api.B", "10.0.0.3")
				later(5 * time.Second)
				r.reports(t, "api.A=10.0.0.2", "api.B=10.0.0.3")
				r.register("api.B", "10.0.0.4")
				later(time.Millisecond)
				r.reports(t, "api.A=10.0.0.2", "api.B=10.0.0.4")
				r.server.Remove(named("api.B"))
				later(7 * time.Second)
				r.reports(t, "api.A=10.0.0.2")
				if n := r.server.Subscriptions(); n != 1 {
					t.Errorf("%d subscriptions, want one", n)
				}
				r.register("api.B", "10.0.0.5")
				later(10 * time.Second)
				r.reports(t, "api.A=10.0.0.2", "api.B=10.0.0.5")
				r.fresh(t)
			},
		},
		"unhealthy is reported, disabled and weight 0 are not offered, in answers and pushes alike": {
			before: func(r *readRig) {
				r.server.Set(named("api.A"), "p",
					instanceOf("api.A", "10.0.0.1", func(i *model.Instance) { i.Healthy = false }),
					instanceOf("api.A", "10.0.0.2", func(i *model.Instance) { i.Enable = false }),
					instanceOf("api.A", "10.0.0.3", func(i *model.Instance) { i.Weight = 0 }),
					instanceOf("api.A", "10.0.0.4"))
			},
			then: func(t *testing.T, r *readRig) {
				r.reports(t, "api.A=10.0.0.1(unhealthy),10.0.0.3(disabled),10.0.0.4")
				r.server.Set(named("api.A"), "p",
					instanceOf("api.A", "10.0.0.1"),
					instanceOf("api.A", "10.0.0.2", func(i *model.Instance) { i.Healthy = false }),
					instanceOf("api.A", "10.0.0.3"),
					instanceOf("api.A", "10.0.0.4", func(i *model.Instance) { i.Enable = false }))
				later(time.Millisecond)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2(unhealthy),10.0.0.3")
				reader := r.table.Reader()
				reader.Drain()
				later(2 * time.Minute)
				if rows := reader.Drain().Rows; len(rows) != 0 {
					t.Errorf("changed to %v, want no change: an answer and a push have the same instances", rows)
				}
			},
		},
		"persistent instances are read as ephemeral ones are": {
			before: func(r *readRig) {
				r.server.Set(named("api.A"), "p", instanceOf("api.A", "10.0.0.1", func(i *model.Instance) { i.Ephemeral = false }))
			},
			then: func(t *testing.T, r *readRig) { r.reports(t, "api.A=10.0.0.1") },
		},
		"a service of no format is not subscribed": {
			before: func(r *readRig) {
				r.register("api.A", "10.0.0.1")
				r.registerAt(nacosfake.Service{Group: "DEFAULT_GROUP", Name: "spring-shop"}, "x", "10.0.0.3")
			},
			then: func(t *testing.T, r *readRig) {
				r.reports(t, "api.A=10.0.0.1")
				if len(r.table.Skipped()) != 0 || r.server.Subscriptions() != 1 {
					t.Errorf("skipped %v, %d subscriptions, want none skipped and one subscription", r.table.Skipped(), r.server.Subscriptions())
				}
			},
		},
		"a service of two namespaces and groups is a service in each": {
			tune: func(_ *nacos.Options, o *nacos.SourceOptions) {
				o.Scopes = []nacos.Scope{{}, {Namespace: "blue"}, {Namespace: "blue", Group: "G"}}
			},
			before: func(r *readRig) {
				r.registerAt(nacosfake.Service{Namespace: "", Group: "DEFAULT_GROUP", Name: "providers:api.A::"}, "api.A", "10.0.0.1")
				r.registerAt(nacosfake.Service{Namespace: "blue", Group: "DEFAULT_GROUP", Name: "providers:api.A::"}, "api.A", "10.0.0.2")
				r.registerAt(nacosfake.Service{Namespace: "blue", Group: "G", Name: "providers:api.A::"}, "api.A", "10.0.0.3")
				r.registerAt(nacosfake.Service{Namespace: "red", Group: "G", Name: "providers:api.A::"}, "api.A", "10.0.0.4")
			},
			then: func(t *testing.T, r *readRig) {
				r.reports(t, "api.A=10.0.0.1", "api.A=10.0.0.2", "api.A=10.0.0.3")
				r.registerAt(nacosfake.Service{Namespace: "blue", Group: "DEFAULT_GROUP", Name: "providers:api.A::"}, "api.A", "10.0.0.9")
				later(2 * time.Second)
				r.reports(t, "api.A=10.0.0.1", "api.A=10.0.0.3", "api.A=10.0.0.9")
			},
		},
		"one bad instance costs that instance": {
			before: func(r *readRig) {
				r.server.Set(named("api.A"), "p", instanceOf("api.A", "10.0.0.1"),
					instanceOf("api.A", "10.0.0.2", func(i *model.Instance) { i.Metadata = nil }),
					instanceOf("api.A", "no address"),
					instanceOf("api.A", "10.0.0.4", func(i *model.Instance) { i.Port = 85536 }))
			},
			then: func(t *testing.T, r *readRig) {
				r.reports(t, "api.A=10.0.0.1")
				if s := r.table.Skipped(); len(s) != 3 {
					t.Errorf("skipped %v, want three", s)
				}
				r.server.Set(named("api.A"), "p", instanceOf("api.A", "10.0.0.1"), instanceOf("api.A", "10.0.0.2"))
				later(time.Millisecond)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2")
				if s := r.table.Skipped(); len(s) != 0 {
					t.Errorf("skipped %v, want none", s)
				}
			},
		},
		"an address that two connections publish is one endpoint": {
			before: func(r *readRig) {
				r.server.Set(named("api.A"), "p", instanceOf("api.A", "10.0.0.1"))
				r.server.Set(named("api.A"), "q", instanceOf("api.A", "10.0.0.1", func(i *model.Instance) { i.Metadata["revision"] = "2" }))
			},
			then: func(t *testing.T, r *readRig) { r.reports(t, "api.A=10.0.0.1") },
		},
		"every push is acknowledged": {
			before: func(r *readRig) { r.register("api.A", "10.0.0.1") },
			then: func(t *testing.T, r *readRig) {
				for range 3 {
					r.register("api.A", "10.0.0.1", "10.0.0.2")
					r.register("api.A", "10.0.0.1")
				}
				later(time.Second)
				if n := len(r.server.Requests("NotifySubscriberResponse")); n != 6 {
					t.Errorf("%d pushes acknowledged, want 6", n)
				}
			},
		},
	})
}

func TestNewSource_Options(t *testing.T) {
	formats := []nacos.Format{nil}
	for name, test := range map[string]struct {
		servers []string
		o       nacos.SourceOptions
		want    string
	}{
		"no server":                {nil, nacos.SourceOptions{Formats: formats}, "servers"},
		"no format":                {[]string{"http://n:8848"}, nacos.SourceOptions{}, "format"},
		"a scope named twice":      {[]string{"http://n:8848"}, nacos.SourceOptions{Formats: formats, Scopes: []nacos.Scope{{}, {Group: "DEFAULT_GROUP"}}}, "twice"},
		"public by both its names": {[]string{"http://n:8848"}, nacos.SourceOptions{Formats: formats, Scopes: []nacos.Scope{{}, {Namespace: "public"}}}, "twice"},
		"a group that cannot be":   {[]string{"http://n:8848"}, nacos.SourceOptions{Formats: formats, Scopes: []nacos.Scope{{Group: "a b"}}}, `group "a b"`},
		"a namespace out of range": {[]string{"http://n:8848"}, nacos.SourceOptions{Formats: formats, Scopes: []nacos.Scope{{Namespace: "a/b"}}}, "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nacos.NewSource(nacos.Options{Servers: test.servers}, test.o)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want something about %s", err, test.want)
			}
		})
	}
	var _ registry.Source = (*nacos.Source)(nil)
}
