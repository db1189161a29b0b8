package nacos_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
)

func TestSource_Clocks(t *testing.T) {
	follows := func(t *testing.T, r *readRig) {
		t.Helper()
		r.register("api.A", "10.0.0.1")
		later(3 * time.Second)
		r.reports(t, "api.A=10.0.0.1", "api.B=10.0.0.3")
		r.register("api.A", "10.0.0.1", "10.0.0.5")
		later(time.Millisecond)
		r.reports(t, "api.A=10.0.0.1,10.0.0.5", "api.B=10.0.0.3")
		r.fresh(t)
	}
	runAll(t, map[string]sourceTest{
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

func TestSource_Pushes(t *testing.T) {
	runAll(t, map[string]sourceTest{
		"a push that is lost is made up for within a minute": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.ReplacePushes(func(nacosfake.Push) []nacosfake.Push { return nil })
				r.register("api.A", "10.0.0.9")
				r.register("api.B")
				later(62 * time.Second)
				r.reports(t, "api.A=10.0.0.9", "api.B=")
			},
		},
		"a service without instances is read again soon: it may have been listed before it could be read": {
			before: func(r *readRig) { r.register("api.A") },
			then: func(t *testing.T, r *readRig) {
				r.server.ReplacePushes(func(nacosfake.Push) []nacosfake.Push { return nil })
				later(6 * time.Second)
				if n := len(r.server.Requests("SubscribeServiceRequest")); n != 2 {
					t.Errorf("%d requests, want 2", n)
				}
			},
		},
		"a server that forgot our subscriptions has them again within a minute": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Unsubscribe()
				later(61 * time.Second)
				r.register("api.A", "10.0.0.9")
				later(time.Millisecond)
				r.reports(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
			},
		},
		"pushes that are repeated": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.ReplacePushes(func(p nacosfake.Push) []nacosfake.Push { return []nacosfake.Push{p, p, p} })
				later(time.Second)
				asked := len(r.server.Requests("SubscribeServiceRequest"))
				r.register("api.A", "10.0.0.9")
				later(time.Millisecond)
				r.reports(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
				if n := len(r.server.Requests("SubscribeServiceRequest")) - asked; n != 0 {
					t.Errorf("%d requests because of repeated pushes, want none", n)
				}
			},
		},
		"pushes in the wrong order": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				var held []nacosfake.Push
				r.server.ReplacePushes(func(p nacosfake.Push) []nacosfake.Push {
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
				r.reports(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
				r.fresh(t)
			},
		},
		"two pushes of one millisecond, the newer one first": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				var held []nacosfake.Push
				r.server.ReplacePushes(func(p nacosfake.Push) []nacosfake.Push {
					held = append(held, p)
					return nil
				})
				later(time.Second)
				r.register("api.A", "10.0.0.8")
				r.register("api.A", "10.0.0.9")
				r.server.Send(held[1])
				r.server.Send(held[0])
				later(2 * time.Second)
				r.reports(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
			},
		},
		"old pushes without end cost a request a second, and nothing else": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				old := model.Service{
					Name: named("api.A").Name, GroupName: "DEFAULT_GROUP", LastRefTime: 1,
					Hosts: []model.Instance{instanceOf("api.A", "10.0.0.66")},
				}
				asked := len(r.server.Requests("SubscribeServiceRequest"))
				for range 1000 {
					r.server.Send(nacosfake.Push{Service: named("api.A"), Info: old})
					later(10 * time.Millisecond)
				}
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if n := len(r.server.Requests("SubscribeServiceRequest")) - asked; n > 12 {
					t.Errorf("%d requests in ten seconds, want at most 12", n)
				}
			},
		},
		"a push that cannot be read costs that push": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.ReplacePushes(func(p nacosfake.Push) []nacosfake.Push {
					return []nacosfake.Push{{Service: p.Service, Info: model.Service{Name: "another"}}, p}
				})
				r.register("api.A", "10.0.0.9")
				later(time.Second)
				r.reports(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
			},
		},
		"a slow answer does not delay others": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(func(q nacosfake.Request) (int, string) {
					if strings.Contains(string(q.Body), "api.Slow") {
						time.Sleep(4 * time.Second)
					}
					return 0, ""
				})
				r.register("api.Slow", "10.0.0.6")
				r.register("api.Swift", "10.0.0.7")
				later(5 * time.Second)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3", "api.Swift=10.0.0.7")
				later(4 * time.Second)
				r.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3", "api.Slow=10.0.0.6", "api.Swift=10.0.0.7")
				r.server.Fail(nil)
				later(4 * time.Second) // for a question that is still being answered slowly
			},
		},
	})
}
