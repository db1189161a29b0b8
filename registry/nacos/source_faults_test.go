package nacos_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func two(r *readRig) {
	r.register("api.A", "10.0.0.1", "10.0.0.2")
	r.register("api.B", "10.0.0.3")
}

func TestSource_Outages(t *testing.T) {
	runAll(t, map[string]sourceTest{
		"ten minutes without a server: everything is kept and stale, and attempts are rare": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.down.Store(true)
				r.server.Drop()
				later(10 * time.Minute)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if k := r.tableState(); k.Stale == nil || !strings.Contains(k.Stale.Error(), "connection refused") {
					t.Errorf("stale for %v, want a refused connection", k.Stale)
				}
				if n := r.refused.Load(); r.source.State().Connected || n < 100 || n > 160 {
					t.Errorf("%d attempts, state %+v, want an attempt each five seconds", n, r.source.State())
				}
				r.register("api.A", "10.0.0.9")
				r.down.Store(false)
				later(time.Minute)
				r.reports(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
				r.fresh(t)
				for name, row := range reader.Drain().Rows {
					if strings.Contains(string(name), "api.A") && !row.Found {
						t.Errorf("row %s is reported, want it found missing", name)
					}
				}
			},
		},
		"a server that accepts connections and does not answer makes everything stale": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(func(nacosfake.Request) (int, string) {
					time.Sleep(time.Hour)
					return 500, "too late"
				})
				later(time.Minute)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if k := r.tableState(); k.Stale == nil {
					t.Errorf("state of the table %+v, want it stale", k)
				}
				r.server.Fail(nil)
				later(2 * time.Hour)
				r.fresh(t)
			},
		},
		"a server without its data is read whole, and missing services are found, not reported": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.restart()
				later(5 * time.Second)
				r.reports(t)
				d := reader.Drain()
				if len(d.Rows) != 2 || d.Epoch != 2 {
					t.Errorf("%d rows changed in epoch %d, want 2 and 2", len(d.Rows), d.Epoch)
				}
				for name, row := range d.Rows {
					if row.Service != nil || !row.Found {
						t.Errorf("%s: %+v, want found missing", name, row)
					}
				}
				r.register("api.A", "10.0.0.1")
				later(6 * time.Second)
				r.reports(t, "api.A=10.0.0.1")
				r.register("api.A", "10.0.0.2")
				later(time.Millisecond)
				r.reports(t, "api.A=10.0.0.2")
			},
		},
		"an empty push is believed only once an answer says the same": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				empty := model.Service{Name: named("api.B").Name, GroupName: "DEFAULT_GROUP"}
				for range 5 {
					later(time.Second)
					empty.LastRefTime = uint64(time.Now().UnixMilli())
					r.server.Send(nacosfake.Push{Service: named("api.B"), Info: empty})
					later(time.Millisecond)
					r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				}
				later(time.Minute)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				later(time.Second)
				r.register("api.B")
				later(time.Second)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=")
				r.fresh(t)
			},
		},
		"services that a server lost silently are removed after two reads": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.server.Forget()
				later(10 * time.Second)
				r.reports(t)
				if asked := len(r.server.Requests("SubscribeServiceRequest")); asked < 2+2*2+2 || asked > 2+2*2+2+2 {
					t.Errorf("%d requests, want for both services one at first, two looks, a leave and at most a look in turn", asked)
				}
				if d := reader.Drain(); len(d.Rows) != 2 {
					t.Errorf("%d rows changed, want 2", len(d.Rows))
				}
			},
		},
		"a server that wants another connection is read again over it": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Reset()
				later(5 * time.Second)
				r.fresh(t)
				if k := r.tableState(); k.Epoch != 2 || r.server.Connections() != 1 {
					t.Errorf("epoch %d, %d connections, want 2 and 1", k.Epoch, r.server.Connections())
				}
				r.register("api.B", "10.0.0.4")
				later(time.Millisecond)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.4")
			},
		},
	})
}

func TestSource_Refused(t *testing.T) {
	const denied, busy, broken = 403, 503, 500
	recovers := func(t *testing.T, r *readRig) {
		t.Helper()
		r.server.Fail(nil)
		later(2 * time.Minute)
		r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
		r.fresh(t)
	}
	keepsBoth := func(t *testing.T, r *readRig, code int, text string) { // while each request is refused
		t.Helper()
		r.server.Fail(func(q nacosfake.Request) (int, string) {
			if strings.HasPrefix(q.Type, "Service") || strings.HasPrefix(q.Type, "Subscribe") {
				return code, text
			}
			return 0, ""
		})
		later(10 * time.Minute)
		r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
		if got := r.unknown(); len(got) != 2 {
			t.Errorf("unknown %v, want both services", got)
		}
	}
	runAll(t, map[string]sourceTest{
		"access that is withdrawn leaves everything, as unknown": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				keepsBoth(t, r, denied, "user not found!")
				if n := len(r.server.Requests("ServiceListRequest")); n > 200 {
					t.Errorf("%d lists in ten minutes, want at most 200", n)
				}
				recovers(t, r)
			},
		},
		"a service that is denied is kept and unknown, others continue": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(refuse("SubscribeServiceRequest", "api.A", denied))
				r.register("api.B")
				later(2 * time.Minute)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=")
				if got := r.unknown(); !slices.Equal(got, []string{"api.A"}) {
					t.Errorf("unknown %v, want api.A", got)
				}
				r.register("api.B", "10.0.0.3")
				recovers(t, r)
			},
		},
		"a service that fails from the start costs that service": {
			before: func(r *readRig) {
				two(r)
				r.server.Fail(refuse("SubscribeServiceRequest", "api.A", broken))
			},
			then: func(t *testing.T, r *readRig) {
				later(5 * time.Second)
				r.reports(t, "api.B=10.0.0.3")
				if k := r.tableState(); !k.Synced || k.Stale != nil || len(k.Unknown) != 1 {
					t.Errorf("state of the table %+v, want one that is synced with one unknown scope", k)
				}
				recovers(t, r)
			},
		},
		"a namespace that is denied is unknown, others continue": {
			tune: func(_ *nacos.Options, o *nacos.SourceOptions) { o.Scopes = []nacos.Scope{{}, {Namespace: "blue"}} },
			before: func(r *readRig) {
				two(r)
				r.server.Fail(refuse("ServiceListRequest", `"namespace":"blue"`, denied))
			},
			then: func(t *testing.T, r *readRig) {
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				k := r.tableState()
				if err := k.Of("dubbo-interface:blue@DEFAULT_GROUP/providers:api.A::"); !k.Synced || err == nil {
					t.Errorf("state of the table %+v, want one that is synced with api.A unknown", k)
				}
				if got := r.unknown(); len(got) != 0 {
					t.Errorf("unknown %v, want none", got)
				}
				recovers(t, r)
			},
		},
		"the services of a namespace that is no longer denied are unknown until they are read": {
			tune: func(_ *nacos.Options, o *nacos.SourceOptions) { o.Scopes = []nacos.Scope{{}, {Namespace: "blue"}} },
			before: func(r *readRig) {
				two(r)
				blue := named("api.C")
				blue.Namespace = "blue"
				r.registerAt(blue, "api.C", "10.0.0.4")
				r.server.Fail(refuse("ServiceListRequest", `"namespace":"blue"`, denied))
			},
			then: func(t *testing.T, r *readRig) {
				const name = "dubbo-interface:blue@DEFAULT_GROUP/providers:api.C::"
				r.server.Fail(func(q nacosfake.Request) (int, string) {
					if q.Type == "SubscribeServiceRequest" && strings.Contains(string(q.Body), "api.C") {
						time.Sleep(time.Second)
					}
					return 0, ""
				})
				for range 600 {
					later(100 * time.Millisecond)
					if k := r.tableState(); k.Of(name) == nil && len(r.rows()) != 3 {
						t.Errorf("%s is known with the rows %q, want it unknown until it is read", name, r.rows())
						break
					}
				}
				r.server.Fail(nil)
				later(time.Minute)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3", "api.C=10.0.0.4")
				r.fresh(t)
			},
		},
		"a server that denies everything from the start is never an empty registry": {
			before: func(r *readRig) {
				two(r)
				r.server.Fail(refuse("ServiceListRequest", "", denied))
			},
			then: func(t *testing.T, r *readRig) {
				later(time.Minute)
				if k := r.tableState(); k.Synced || k.Stale == nil || !strings.Contains(k.Stale.Error(), "access denied") && !strings.Contains(k.Stale.Error(), "permission") {
					t.Errorf("state of the table %+v, want it stale for denied access", k)
				}
				recovers(t, r)
			},
		},
		"a server that throttles gets requests less and less often, and nothing is removed": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				keepsBoth(t, r, busy, "OVER_THRESHOLD")
				if n := len(r.server.Requests("ServiceListRequest")) + len(r.server.Requests("SubscribeServiceRequest")); n > 120 {
					t.Errorf("%d requests in ten minutes, want at most 120", n)
				}
				recovers(t, r)
			},
		},
	})
}

func TestSource_Login(t *testing.T) {
	login := func(o *nacos.Options, _ *nacos.SourceOptions) {
		o.Username, o.Password = "nacos", func() (string, error) { return "secret", nil }
	}
	locked := func(r *readRig) {
		r.server.User, r.server.Password, r.server.TokenTTL = "nacos", "secret", 5*time.Second
		two(r)
	}
	runAll(t, map[string]sourceTest{
		"a token that is valid for five seconds never interrupts": {
			tune: login, before: locked,
			then: func(t *testing.T, r *readRig) {
				for range 60 {
					later(time.Second)
					r.fresh(t)
				}
				r.register("api.C", "10.0.0.5")
				later(6 * time.Second)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3", "api.C=10.0.0.5")
			},
		},
		"a token that is revoked is replaced": {
			tune: login, before: locked,
			then: func(t *testing.T, r *readRig) {
				r.server.Revoke()
				later(10 * time.Second)
				r.fresh(t)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
			},
		},
	})
}

// TestSource_LogsInSeldomAfterDenials: a user without the right to
// some services is denied them with every token.
func TestSource_LogsInSeldomAfterDenials(t *testing.T) {
	loggedIn := func(o *nacos.Options, _ *nacos.SourceOptions) {
		o.Username, o.Password = "nacos", func() (string, error) { return "secret", nil }
	}
	bubble(t, "sixty denied services cost a login a minute", func(t *testing.T) {
		r := newReadRig(t, loggedIn)
		r.server.User, r.server.Password, r.server.TokenTTL = "nacos", "secret", 5*time.Hour
		r.server.Fail(refuse("SubscribeServiceRequest", "api.S", 403))
		r.run(t)
		for _, name := range services(60) { // so that they are asked for at different times
			r.register(name, "10.0.0.1")
			later(time.Second)
		}
		later(3 * time.Minute)
		if n := r.server.Logins(); n > 14 {
			t.Errorf("%d logins in four minutes, want at most 14: the token is valid for five hours", n)
		}
	})
	bubble(t, "a revoked token is replaced as well", func(t *testing.T) {
		r := newReadRig(t, loggedIn)
		r.server.User, r.server.Password, r.server.TokenTTL = "nacos", "secret", 5*time.Hour
		r.server.Fail(refuse("SubscribeServiceRequest", "api.S00000", 403))
		r.register("api.S00000", "10.0.0.1")
		r.register("api.Open", "10.0.0.1")
		r.run(t)
		later(10 * time.Minute)
		r.server.Revoke()
		later(time.Second)
		r.register("api.Later", "10.0.0.1")
		later(3 * time.Minute)
		r.reports(t, "api.Later=10.0.0.1", "api.Open=10.0.0.1")
	})
}
