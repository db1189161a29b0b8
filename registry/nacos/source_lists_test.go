package nacos_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
)

func TestSourceLists(t *testing.T) {
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
				r.server.Fail(func(q nacosfake.Request) (int, string) {
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
				r.server.Fail(func(q nacosfake.Request) (int, string) {
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

func TestSourceOfManyServices(t *testing.T) {
	const n = 1_000 // ten times as many as the goroutines there may be
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
		if g := runtime.NumGoroutine(); g > n/10 {
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
