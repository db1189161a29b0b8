package nacos_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func TestOnlyWhatIsWantedIsSubscribed(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		wish := registry.NewInterest()
		r := newReadRig(t, func(_ *nacos.Options, o *nacos.SourceOptions) { o.Interest = wish })
		r.register("api.A", "10.0.0.1")
		r.register("api.B", "10.0.0.2")
		r.run(t)
		later(time.Second)
		r.tells(t)
		r.fresh(t)
		wish.Add(named("api.A").Name, named("api.C").Name)
		later(time.Second)
		if a := wish.Answer(named("api.A").Name, named("api.C").Name); !a.Reported || a.Err != nil {
			t.Error("the source does not say that it reported what is wanted")
		}
		r.tells(t, "api.A=10.0.0.1")
		r.register("api.A", "10.0.0.1", "10.0.0.3")
		r.register("api.C", "10.0.0.4") // the service comes later than the wish
		later(time.Second)
		r.tells(t, "api.A=10.0.0.1,10.0.0.3", "api.C=10.0.0.4")
		wish.Drop(named("api.A").Name)
		later(time.Second)
		r.tells(t, "api.C=10.0.0.4")
		if n := r.source.Stats().Services; n != 1 {
			t.Errorf("%d services are subscribed", n)
		}
		wish.Add(named("api.A").Name)
		later(time.Second)
		r.tells(t, "api.A=10.0.0.1,10.0.0.3", "api.C=10.0.0.4")
		r.restart()
		later(time.Minute)
		if n := len(r.server.Requests("ServiceListRequest")); n > 0 {
			t.Errorf("names are listed %d times although they are given", n)
		}
	})
}

func TestANameThatCannotBeReadHidesNoOther(t *testing.T) {
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
			t.Errorf("it waits for others: %+v", a)
		}
		r.tells(t, "api.A=10.0.0.1")
		if a := wish.Answer(named("api.Secret").Name); a.Reported || !errors.Is(a.Err, registry.ErrRefused) {
			t.Errorf("denied: %+v", a)
		}
		if a := wish.Answer(named("api.Slow").Name); a.Reported || a.Err == nil {
			t.Errorf("failing: %+v", a)
		}
		r.server.Fail(nil)
		later(10 * time.Minute)
		if a := wish.Answer(named("api.Slow").Name, named("api.Secret").Name); !a.Reported || a.Err != nil {
			t.Errorf("in the end: %+v", a)
		}
	})
}

// TestANameThatIsWantedAgainWhileItIsLeftIsTold: its subscription is being ended
// when somebody wants it again.
func TestANameThatIsWantedAgainWhileItIsLeftIsTold(t *testing.T) {
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
			r.tells(t, "api.A=10.0.0.1")
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
				t.Fatal("the subscription was not ended")
			}
			if a := wish.Answer(name); !a.Reported {
				t.Error("never reported again")
			}
			r.tells(t, "api.A=10.0.0.1")
			wish.Drop(name)
			later(time.Second)
		}
	})
}
