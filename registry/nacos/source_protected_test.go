package nacos_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// dead makes an instance unhealthy.
func dead(in *model.Instance) { in.Healthy = false }

// health returns the hosts of an interface with their health, and why it is unknown.
func (r *readRig) health(iface string) (hosts []string, unknown error) {
	rows, k := r.table.Snapshot()
	for name, s := range rows {
		if s.Interfaces[0].Name != iface {
			continue
		}
		for _, e := range s.Endpoints {
			hosts = append(hosts, fmt.Sprintf("%s %s", e.Host, e.Health))
		}
		unknown = k.Of(name)
	}
	return hosts, unknown
}

// expectHealth fails the test unless the table has these hosts of api.A, known or
// unknown.
func (r *readRig) expectHealth(t *testing.T, certainty string, want ...string) {
	t.Helper()
	got, unknown := r.health("api.A")
	is := "known"
	if unknown != nil {
		is = "unknown"
	}
	if !slices.Equal(got, want) || is != certainty {
		t.Errorf("api.A = %q, %s: %v; want %q, %s", got, is, unknown, want, certainty)
	}
	if unknown != nil && !strings.Contains(unknown.Error(), "protects this service") {
		t.Errorf("unknown: %v", unknown)
	}
}

// TestSource_Protected: a server that protects a service shows its unhealthy instances
// as healthy.
func TestSource_Protected(t *testing.T) {
	sv := named("api.A")
	alive := func(ip string) model.Instance { return instanceOf("api.A", ip) }
	died := func(ip string) model.Instance { return instanceOf("api.A", ip, dead) }
	runAll(t, map[string]sourceTest{
		"from the beginning, without a healthy instance": {
			before: func(r *readRig) {
				r.server.Set(sv, "providers", died("10.0.0.1"), died("10.0.0.2"))
				r.server.Protect(sv, 0)
			},
			then: func(t *testing.T, r *readRig) {
				r.expectHealth(t, "unknown", "10.0.0.1 unhealthy", "10.0.0.2 unhealthy")
				if k := r.tableState(); !k.Synced {
					t.Errorf("state of the table %+v, want it synced", k)
				}
			},
		},
		"when one more dies, until it is back": {
			before: func(r *readRig) {
				r.server.Set(sv, "providers", alive("10.0.0.1"), alive("10.0.0.2"))
				r.server.Protect(sv, 0.6)
			},
			then: func(t *testing.T, r *readRig) {
				r.expectHealth(t, "known", "10.0.0.1 healthy", "10.0.0.2 healthy")
				r.server.Set(sv, "providers", alive("10.0.0.1"), died("10.0.0.2"))
				later(3 * time.Second)
				r.expectHealth(t, "unknown", "10.0.0.1 healthy", "10.0.0.2 unhealthy")
				r.server.Set(sv, "providers", alive("10.0.0.1"), died("10.0.0.2"), died("10.0.0.3"), alive("10.0.0.4"))
				later(3 * time.Second)
				r.expectHealth(t, "unknown", "10.0.0.1 healthy", "10.0.0.2 unhealthy", "10.0.0.3 unhealthy", "10.0.0.4 healthy")
				r.server.Set(sv, "providers", alive("10.0.0.1"), alive("10.0.0.2"))
				later(3 * time.Second)
				r.expectHealth(t, "known", "10.0.0.1 healthy", "10.0.0.2 healthy")
			},
		},
		"with a threshold of 1, while all are healthy": {
			before: func(r *readRig) {
				r.server.Set(sv, "providers", alive("10.0.0.1"), alive("10.0.0.2"))
				r.server.Protect(sv, 1)
			},
			then: func(t *testing.T, r *readRig) {
				r.expectHealth(t, "known", "10.0.0.1 healthy", "10.0.0.2 healthy")
				r.server.Set(sv, "providers", alive("10.0.0.1"), alive("10.0.0.3"))
				later(3 * time.Second)
				r.expectHealth(t, "known", "10.0.0.1 healthy", "10.0.0.3 healthy")
			},
		},
		"while the server does not answer which are healthy": {
			before: func(r *readRig) {
				r.server.Set(sv, "providers", alive("10.0.0.1"), alive("10.0.0.2"))
				r.server.Protect(sv, 0.6)
			},
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(refuse("ServiceQueryRequest", "api.A", 500))
				r.server.Set(sv, "providers", alive("10.0.0.1"), died("10.0.0.2"))
				later(3 * time.Second)
				r.expectHealth(t, "unknown", "10.0.0.1 healthy", "10.0.0.2 healthy") // as it was before
				r.server.Fail(nil)
				later(time.Minute)
				r.expectHealth(t, "unknown", "10.0.0.1 healthy", "10.0.0.2 unhealthy")
			},
		},
	})
}

// TestSource_ProtectedForConsumers: consumers call the unhealthy ones as well, as
// those of Nacos do.
func TestSource_ProtectedForConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interest := registry.NewInterest()
		sv := named("api.A")
		r := newReadRig(t, func(_ *nacos.Options, o *nacos.SourceOptions) { o.Interest = interest })
		r.server.Set(sv, "providers", instanceOf("api.A", "10.0.0.1"), instanceOf("api.A", "10.0.0.2", dead))
		r.server.Protect(sv, 0.6)
		interest.Add(sv.Name)
		r.run(t)
		later(3 * time.Second)
		r.expectHealth(t, "known", "10.0.0.1 healthy", "10.0.0.2 healthy")
	})
}
