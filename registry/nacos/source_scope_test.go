package nacos_test

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func TestSource_Lists(t *testing.T) {
	seven := func(r *readRig) {
		for _, name := range services(7) {
			r.register(name, "10.0.0.1")
		}
		r.server.PageLimit = 3
	}
	runAll(t, map[string]sourceTest{
		"a list that comes in pages is read to its end": {
			before: seven,
			then: func(t *testing.T, r *readRig) {
				if n := len(r.rows()); n != 7 {
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
				if n := len(r.rows()); n != 8 {
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
				if n := len(r.rows()); n != 7 {
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
				if n, got := len(r.rows()), r.unknown(); n != 7 || len(got) != 7 {
					t.Errorf("%d services, unknown %v, want all seven in both", n, got)
				}
				r.server.Fail(nil)
				later(time.Minute)
				r.fresh(t)
			},
		},
	})
}

func TestSource_ManyServices(t *testing.T) {
	const n = 1_000 // ten times as many as the goroutines there may be
	bubble(t, "a steady state costs a list each five seconds and a look at each service each minute, and no goroutine a service", func(t *testing.T) {
		r := newReadRig(t)
		all := services(n)
		for _, name := range all {
			r.register(name, "10.0.0.1")
		}
		r.run(t)
		later(10 * time.Second)
		if got := len(r.rows()); got != n {
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
			t.Errorf("%d goroutines, want at most %d", g, n/10)
		}
		before := len(r.server.Requests("SubscribeServiceRequest"))
		r.register(all[n/2], "10.0.0.2")
		synctest.Wait()
		if after := len(r.server.Requests("SubscribeServiceRequest")); after != before {
			t.Errorf("%d requests because of a push, want none", after-before)
		}
	})
}

func TestSource_SubscribesInterestAlone(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		wish := registry.NewInterest()
		r := newReadRig(t, func(_ *nacos.Options, o *nacos.SourceOptions) { o.Interest = wish })
		r.register("api.A", "10.0.0.1")
		r.register("api.B", "10.0.0.2")
		r.run(t)
		later(time.Second)
		r.reports(t)
		r.fresh(t)
		wish.Add(named("api.A").Name, named("api.C").Name)
		later(time.Second)
		if a := wish.Answer(named("api.A").Name, named("api.C").Name); !a.Reported || a.Err != nil {
			t.Error("the source does not say that it reported what is asked for")
		}
		r.reports(t, "api.A=10.0.0.1")
		r.register("api.A", "10.0.0.1", "10.0.0.3")
		r.register("api.C", "10.0.0.4") // the service comes later than the wish
		later(time.Second)
		r.reports(t, "api.A=10.0.0.1,10.0.0.3", "api.C=10.0.0.4")
		wish.Drop(named("api.A").Name)
		later(time.Second)
		r.reports(t, "api.C=10.0.0.4")
		if n := r.server.Subscriptions(); n != 1 {
			t.Errorf("%d services subscribed, want 1", n)
		}
		wish.Add(named("api.A").Name)
		later(time.Second)
		r.reports(t, "api.A=10.0.0.1,10.0.0.3", "api.C=10.0.0.4")
		r.restart()
		later(time.Minute)
		if n := len(r.server.Requests("ServiceListRequest")); n > 0 {
			t.Errorf("%d lists, want none: the names are given", n)
		}
	})
}

func TestSource_UnreadableNameHidesNoOther(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		wish := registry.NewInterest()
		r := newReadRig(t, func(_ *nacos.Options, o *nacos.SourceOptions) { o.Interest = wish })
		r.register("api.A", "10.0.0.1")
		r.register("api.Slow", "10.0.0.2")
		r.register("api.Secret", "10.0.0.3")
		code := map[string]int{"api.Slow": 500, "api.Secret": 403}
		r.server.Fail(func(q nacosfake.Request) (int, string) {
			for name, code := range code {
				if q.Type == "SubscribeServiceRequest" && strings.Contains(string(q.Body), name) {
					return code, "no"
				}
			}
			return 0, ""
		})
		r.run(t)
		later(time.Second)
		wish.Add(named("api.Slow").Name, named("api.Secret").Name)
		later(time.Millisecond)
		wish.Add(named("api.A").Name)
		later(100 * time.Millisecond)
		if a := wish.Answer(named("api.A").Name); !a.Reported || a.Err != nil {
			t.Errorf("Answer(api.A) = %+v, want it reported", a)
		}
		r.reports(t, "api.A=10.0.0.1")
		if a := wish.Answer(named("api.Secret").Name); a.Reported || !errors.Is(a.Err, registry.ErrRefused) {
			t.Errorf("Answer(api.Secret) = %+v, want a refusal", a)
		}
		if a := wish.Answer(named("api.Slow").Name); a.Reported || a.Err == nil {
			t.Errorf("Answer(api.Slow) = %+v, want its error", a)
		}
		r.server.Fail(nil)
		later(10 * time.Minute)
		if a := wish.Answer(named("api.Slow").Name, named("api.Secret").Name); !a.Reported || a.Err != nil {
			t.Errorf("Answer() = %+v, want both reported in the end", a)
		}
	})
}

// TestSource_UnreadableNameAtTheStart: names that are asked for together answer on
// their own.
func TestSource_UnreadableNameAtTheStart(t *testing.T) {
	for name, code := range map[string]int{"refused": 403, "an illegal name": 400, "an error": 500} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "", func(t *testing.T) {
				wish := registry.NewInterest()
				r := newReadRig(t, func(_ *nacos.Options, o *nacos.SourceOptions) { o.Interest = wish })
				r.register("api.A", "10.0.0.1")
				r.server.Fail(func(q nacosfake.Request) (int, string) {
					switch body := string(q.Body); {
					case q.Type == "SubscribeServiceRequest" && strings.Contains(body, "api.Bad"):
						return code, "no"
					case q.Type == "SubscribeServiceRequest":
						time.Sleep(50 * time.Millisecond) // the refusal comes first
					}
					return 0, ""
				})
				wish.Add(named("api.Bad").Name, named("api.A").Name)
				r.run(t)
				later(40 * time.Millisecond)
				if err := r.tableState().Stale; err == nil || strings.Contains(err.Error(), "no\"") {
					t.Errorf("Stale = %v before anything was read, want nothing of the other name", err)
				}
				later(100 * time.Millisecond)
				if a := wish.Answer(named("api.A").Name); !a.Reported || a.Err != nil {
					t.Errorf("Answer(api.A) = %+v, want it reported", a)
				}
				if err := r.tableState().Stale; err != nil {
					t.Errorf("Stale = %v, want it current", err)
				}
				if a := wish.Answer(named("api.Bad").Name); a.Reported || a.Err == nil {
					t.Errorf("Answer(api.Bad) = %+v, want its error", a)
				}
			})
		})
	}
}

// TestSource_RepeatedName: its subscription is being ended
// when somebody wants it again.
func TestSource_RepeatedName(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		wish := registry.NewInterest()
		r := newReadRig(t, func(_ *nacos.Options, o *nacos.SourceOptions) { o.Interest = wish })
		r.register("api.A", "10.0.0.1")
		r.run(t)
		later(time.Second)
		name := named("api.A").Name
		for range 20 {
			wish.Add(name)
			later(time.Second)
			r.reports(t, "api.A=10.0.0.1")
			again := false
			r.server.Fail(func(q nacosfake.Request) (int, string) {
				if !again && q.Type == "SubscribeServiceRequest" && strings.Contains(string(q.Body), `"subscribe":false`) {
					again = true
					wish.Add(name)
				}
				return 0, ""
			})
			wish.Drop(name)
			later(time.Second)
			r.server.Fail(nil)
			if !again {
				t.Fatal("no unsubscribe request, want one")
			}
			if a := wish.Answer(name); !a.Reported {
				t.Errorf("Answer() = %+v, want it reported again", a)
			}
			r.reports(t, "api.A=10.0.0.1")
			wish.Drop(name)
			later(time.Second)
		}
	})
}
