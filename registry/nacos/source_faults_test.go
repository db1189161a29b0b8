package nacos_test

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/nacos/nacostest"
)

func two(r *readRig) {
	r.register("api.A", "10.0.0.1", "10.0.0.2")
	r.register("api.B", "10.0.0.3")
}

func TestSourceOutages(t *testing.T) {
	runAll(t, map[string]reading{
		"A32 F23 ten minutes without a server: everything stays and is stale, and nobody is hurried": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.down.Store(true)
				r.server.Drop()
				later(10 * time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if k := r.knows(); k.Stale == nil || !strings.Contains(k.Stale.Error(), "connection refused") {
					t.Errorf("stale: %v", k.Stale)
				}
				if s := r.source.State(); s.Connected || s.Attempts < 100 || s.Attempts > 160 {
					t.Errorf("%+v, want an attempt each five seconds", s)
				}
				r.register("api.A", "10.0.0.9")
				r.down.Store(false)
				later(time.Minute)
				r.tells(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
				r.fresh(t)
				for name, row := range reader.Drain().Rows {
					if strings.Contains(string(name), "api.A") && !row.Found {
						t.Error("what was missed has to be found, not told")
					}
				}
			},
		},
		"F23 a server that takes connections and answers nothing makes everything stale": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(func(nacostest.Request) (int, string) {
					time.Sleep(time.Hour)
					return 500, "too late"
				})
				later(time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if k := r.knows(); k.Stale == nil {
					t.Error("not stale")
				}
				r.server.Fail(nil)
				later(2 * time.Hour)
				r.fresh(t)
			},
		},
		"F24 a server without its data is read whole, and what is missing then is found and not told": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.restart()
				later(5 * time.Second)
				r.tells(t)
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
				r.tells(t, "api.A=10.0.0.1")
				r.register("api.A", "10.0.0.2")
				later(time.Millisecond)
				r.tells(t, "api.A=10.0.0.2")
			},
		},
		"F24 an empty push is believed only once an answer says the same": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				empty := model.Service{Name: named("api.B").Name, GroupName: "DEFAULT_GROUP"}
				for range 5 {
					later(time.Second)
					empty.LastRefTime = uint64(time.Now().UnixMilli())
					r.server.Send(nacostest.Push{Service: named("api.B"), Info: empty})
					later(time.Millisecond)
					r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				}
				later(time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				later(time.Second)
				r.register("api.B")
				later(time.Second)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=")
				r.fresh(t)
			},
		},
		"F25 what a server lost without a word goes after two looks": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.server.Forget()
				later(10 * time.Second)
				r.tells(t)
				if asked := len(r.server.Requests("SubscribeServiceRequest")); asked < 2+2*2+2 || asked > 2+2*2+2+2 {
					t.Errorf("%d requests, want for both services one at first, two looks, a leave and at most a look in turn", asked)
				}
				if d := reader.Drain(); len(d.Rows) != 2 {
					t.Errorf("%d rows changed, want 2", len(d.Rows))
				}
			},
		},
		"a server that asks for another connection is read anew over it": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Reset()
				later(5 * time.Second)
				r.fresh(t)
				if k := r.knows(); k.Epoch != 2 || r.server.Connections() != 1 {
					t.Errorf("epoch %d, %d connections", k.Epoch, r.server.Connections())
				}
				r.register("api.B", "10.0.0.4")
				later(time.Millisecond)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.4")
			},
		},
	})
}

func TestSourceRefused_F26(t *testing.T) {
	const denied, busy, broken = 403, 503, 500
	recovers := func(t *testing.T, r *readRig) {
		t.Helper()
		r.server.Fail(nil)
		later(2 * time.Minute)
		r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
		r.fresh(t)
	}
	runAll(t, map[string]reading{
		"access that is taken away leaves everything as it was, unknown": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(func(q nacostest.Request) (int, string) {
					if strings.HasPrefix(q.Type, "Service") || strings.HasPrefix(q.Type, "Subscribe") {
						return denied, "user not found!"
					}
					return 0, ""
				})
				later(10 * time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if got := r.unknown(); len(got) != 2 {
					t.Errorf("unknown %v", got)
				}
				if n := len(r.server.Requests("ServiceListRequest")); n > 200 {
					t.Errorf("%d lists asked for in ten minutes", n)
				}
				recovers(t, r)
			},
		},
		"a service that is denied stays as it was and is unknown, others go on": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(refuse("SubscribeServiceRequest", "api.A", denied))
				r.register("api.B")
				later(2 * time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=")
				if got := r.unknown(); !slices.Equal(got, []string{"api.A"}) {
					t.Errorf("unknown %v", got)
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
				r.tells(t, "api.B=10.0.0.3")
				if k := r.knows(); !k.Synced || k.Stale != nil || len(k.Unknown) != 1 {
					t.Errorf("%+v", k)
				}
				recovers(t, r)
			},
		},
		"a namespace that is denied is unknown, others go on": {
			tune: func(_ *nacos.Options, o *nacos.SourceOptions) { o.Scopes = []nacos.Scope{{}, {Namespace: "blue"}} },
			before: func(r *readRig) {
				two(r)
				r.server.Fail(refuse("ServiceListRequest", `"namespace":"blue"`, denied))
			},
			then: func(t *testing.T, r *readRig) {
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				k := r.knows()
				if err := k.Of("dubbo-interface:blue@DEFAULT_GROUP/providers:api.A::"); !k.Synced || err == nil {
					t.Errorf("%+v", k)
				}
				if got := r.unknown(); len(got) != 0 {
					t.Errorf("unknown %v", got)
				}
				recovers(t, r)
			},
		},
		"a server that denies everything from the start is never an empty registry": {
			before: func(r *readRig) {
				two(r)
				r.server.Fail(refuse("ServiceListRequest", "", denied))
			},
			then: func(t *testing.T, r *readRig) {
				later(time.Minute)
				if k := r.knows(); k.Synced || k.Stale == nil || !strings.Contains(k.Stale.Error(), "access denied") && !strings.Contains(k.Stale.Error(), "permission") {
					t.Errorf("%+v", k)
				}
				recovers(t, r)
			},
		},
		"a server that throttles is left alone for longer each time, and nothing goes": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(func(q nacostest.Request) (int, string) {
					if strings.HasPrefix(q.Type, "Service") || strings.HasPrefix(q.Type, "Subscribe") {
						return busy, "OVER_THRESHOLD"
					}
					return 0, ""
				})
				later(10 * time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if got := r.unknown(); len(got) != 2 {
					t.Errorf("unknown %v", got)
				}
				if n := len(r.server.Requests("ServiceListRequest")) + len(r.server.Requests("SubscribeServiceRequest")); n > 120 {
					t.Errorf("%d requests in ten minutes", n)
				}
				recovers(t, r)
			},
		},
	})
}

func TestSourceLogin_F27(t *testing.T) {
	login := func(o *nacos.Options, _ *nacos.SourceOptions) {
		o.Username, o.Password = "nacos", func() (string, error) { return "secret", nil }
	}
	locked := func(r *readRig) {
		r.server.User, r.server.Password, r.server.TokenTTL = "nacos", "secret", 5*time.Second
		two(r)
	}
	runAll(t, map[string]reading{
		"a token that lives five seconds never interrupts": {
			tune: login, before: locked,
			then: func(t *testing.T, r *readRig) {
				for range 60 {
					later(time.Second)
					r.fresh(t)
				}
				r.register("api.C", "10.0.0.5")
				later(6 * time.Second)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3", "api.C=10.0.0.5")
			},
		},
		"a token that is revoked is replaced": {
			tune: login, before: locked,
			then: func(t *testing.T, r *readRig) {
				r.server.Revoke()
				later(10 * time.Second)
				r.fresh(t)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
			},
		},
	})
}

func TestSourceClocks_F28(t *testing.T) {
	follows := func(t *testing.T, r *readRig) {
		t.Helper()
		r.register("api.A", "10.0.0.1")
		later(3 * time.Second)
		r.tells(t, "api.A=10.0.0.1", "api.B=10.0.0.3")
		r.register("api.A", "10.0.0.1", "10.0.0.5")
		later(time.Millisecond)
		r.tells(t, "api.A=10.0.0.1,10.0.0.5", "api.B=10.0.0.3")
		r.fresh(t)
	}
	runAll(t, map[string]reading{
		"a clock that is behind ours": {
			before: func(r *readRig) { two(r); r.server.Skew(-time.Minute) },
			then:   follows,
		},
		"a clock that jumps back": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Skew(-time.Minute)
				follows(t, r)
			},
		},
		"a clock that jumps forth and back": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Skew(time.Hour)
				r.register("api.A", "10.0.0.8")
				later(time.Second)
				r.server.Skew(0)
				follows(t, r)
			},
		},
		"another server with another clock": {
			before: func(r *readRig) { two(r); r.server.Skew(time.Hour) },
			then: func(t *testing.T, r *readRig) {
				r.restart()
				two(r)
				later(5 * time.Second)
				follows(t, r)
			},
		},
	})
}

func TestSourcePushes(t *testing.T) {
	runAll(t, map[string]reading{
		"F29 a push that is lost is made up for within a minute": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Post(func(nacostest.Push) []nacostest.Push { return nil })
				r.register("api.A", "10.0.0.9")
				r.register("api.B")
				later(62 * time.Second)
				r.tells(t, "api.A=10.0.0.9", "api.B=")
				if n := r.source.Stats().Repaired; n != 2 {
					t.Errorf("%d repairs, want 2", n)
				}
			},
		},
		"F29 a server that forgot our subscriptions has them again within a minute": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Unsubscribe()
				later(61 * time.Second)
				r.register("api.A", "10.0.0.9")
				later(time.Millisecond)
				r.tells(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
			},
		},
		"F30 pushes that are repeated": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Post(func(p nacostest.Push) []nacostest.Push { return []nacostest.Push{p, p, p} })
				later(time.Second)
				asked := len(r.server.Requests("SubscribeServiceRequest"))
				r.register("api.A", "10.0.0.9")
				later(time.Millisecond)
				r.tells(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
				if n := len(r.server.Requests("SubscribeServiceRequest")) - asked; n != 0 {
					t.Errorf("%d requests because of repeated pushes", n)
				}
			},
		},
		"F30 pushes in the wrong order": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				var held []nacostest.Push
				r.server.Post(func(p nacostest.Push) []nacostest.Push {
					held = append(held, p)
					return nil
				})
				for _, ip := range []string{"10.0.0.7", "10.0.0.8", "10.0.0.9"} {
					later(time.Second)
					r.register("api.A", ip)
				}
				for _, p := range slices.Backward(held) {
					r.server.Send(p)
					later(100 * time.Millisecond)
				}
				later(2 * time.Second)
				r.tells(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
				r.fresh(t)
			},
		},
		"F30 two pushes of one millisecond, the newer one first": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				var held []nacostest.Push
				r.server.Post(func(p nacostest.Push) []nacostest.Push {
					held = append(held, p)
					return nil
				})
				later(time.Second)
				r.register("api.A", "10.0.0.8")
				r.register("api.A", "10.0.0.9")
				r.server.Send(held[1])
				r.server.Send(held[0])
				later(2 * time.Second)
				r.tells(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
			},
		},
		"F30 old pushes without end cost a request a second, and nothing else": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				old := model.Service{
					Name: named("api.A").Name, GroupName: "DEFAULT_GROUP", LastRefTime: 1,
					Hosts: []model.Instance{instanceOf("api.A", "10.0.0.66")},
				}
				asked := len(r.server.Requests("SubscribeServiceRequest"))
				for range 1000 {
					r.server.Send(nacostest.Push{Service: named("api.A"), Info: old})
					later(10 * time.Millisecond)
				}
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if n := len(r.server.Requests("SubscribeServiceRequest")) - asked; n > 12 {
					t.Errorf("%d requests in ten seconds", n)
				}
			},
		},
		"a push that cannot be read costs that push": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Post(func(p nacostest.Push) []nacostest.Push {
					return []nacostest.Push{{Service: p.Service, Info: model.Service{Name: "another"}}, p}
				})
				r.register("api.A", "10.0.0.9")
				later(time.Second)
				r.tells(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
			},
		},
		"an answer that takes its time does not keep others waiting": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(func(q nacostest.Request) (int, string) {
					if strings.Contains(string(q.Body), "api.Slow") {
						time.Sleep(4 * time.Second)
					}
					return 0, ""
				})
				r.register("api.Slow", "10.0.0.6")
				r.register("api.Swift", "10.0.0.7")
				later(5 * time.Second)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3", "api.Swift=10.0.0.7")
				later(4 * time.Second)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3", "api.Slow=10.0.0.6", "api.Swift=10.0.0.7")
			},
		},
	})
}

func TestSourceLists_F31(t *testing.T) {
	seven := func(r *readRig) {
		for _, name := range services(7) {
			r.register(name, "10.0.0.1")
		}
		r.server.PageLimit = 3
	}
	runAll(t, map[string]reading{
		"a list that comes in pages is read to its end": {
			before: seven,
			then: func(t *testing.T, r *readRig) {
				if n := len(r.told()); n != 7 {
					t.Errorf("%d services, want 7", n)
				}
				r.fresh(t)
			},
		},
		"a list that changes between two pages is read again": {
			before: func(r *readRig) {
				seven(r)
				var once atomic.Bool
				r.server.Fail(func(q nacostest.Request) (int, string) {
					if q.Type == "ServiceListRequest" && strings.Contains(string(q.Body), `"pageNo":2`) && !once.Swap(true) {
						r.register("api.First", "10.0.0.1")
					}
					return 0, ""
				})
			},
			then: func(t *testing.T, r *readRig) {
				if n := len(r.told()); n != 8 {
					t.Errorf("%d services, want 8", n)
				}
				r.fresh(t)
			},
		},
		"a list that never holds still is none": {
			before: seven,
			then: func(t *testing.T, r *readRig) {
				var n atomic.Int32
				r.server.Fail(func(q nacostest.Request) (int, string) {
					if q.Type == "ServiceListRequest" && strings.Contains(string(q.Body), `"pageNo":2`) {
						if n.Add(1)%2 == 0 {
							r.register("api.Flaps", "10.0.0.1")
						} else {
							r.server.Remove(named("api.Flaps"), named("api.S00000"))
							r.register("api.S00000", "10.0.0.1")
						}
					}
					return 0, ""
				})
				r.register("api.Flaps", "10.0.0.1")
				later(5 * time.Second)
				if got := r.unknown(); len(got) != 7 {
					t.Errorf("unknown %v, want all seven", got)
				}
				if n := len(r.told()); n != 7 {
					t.Errorf("%d services, want 7", n)
				}
				r.server.Fail(nil)
				later(time.Minute)
				r.fresh(t)
			},
		},
		"a list of which a page fails is none": {
			before: seven,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(refuse("ServiceListRequest", `"pageNo":3`, 500))
				later(time.Minute)
				if n, got := len(r.told()), r.unknown(); n != 7 || len(got) != 7 {
					t.Errorf("%d services, unknown %v", n, got)
				}
				r.server.Fail(nil)
				later(time.Minute)
				r.fresh(t)
			},
		},
	})
}

func TestSourceOfTenThousandServices(t *testing.T) {
	const n = 10_000
	bubble(t, "a steady state costs a list each five seconds and a look at each service each minute, and no goroutine a service", func(t *testing.T) {
		r := newReadRig(t)
		all := services(n)
		for _, name := range all {
			r.register(name, "10.0.0.1")
		}
		r.run(t)
		later(10 * time.Second)
		if got := len(r.told()); got != n {
			t.Fatalf("%d services, want %d", got, n)
		}
		asked, listed := len(r.server.Requests("SubscribeServiceRequest")), len(r.server.Requests("ServiceListRequest"))
		later(time.Minute)
		asked, listed = len(r.server.Requests("SubscribeServiceRequest"))-asked, len(r.server.Requests("ServiceListRequest"))-listed
		if asked > n+n/10 || asked < n-n/10 {
			t.Errorf("%d requests in a minute, want about %d", asked, n)
		}
		if listed > 13 {
			t.Errorf("%d lists in a minute, want 12", listed)
		}
		if g := runtime.NumGoroutine(); g > 200 {
			t.Errorf("%d goroutines", g)
		}
		before := len(r.server.Requests("SubscribeServiceRequest"))
		r.register(all[n/2], "10.0.0.2")
		synctest.Wait()
		if after := len(r.server.Requests("SubscribeServiceRequest")); after != before {
			t.Errorf("%d requests because of a push", after-before)
		}
	})
}
