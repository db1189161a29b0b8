package nacos_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func TestOnlyWhatIsWantedIsSubscribed_A63(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		wish := registry.NewInterest()
		r := newReadRig(t, func(_ *nacos.Options, o *nacos.SourceOptions) { o.Interest = wish })
		r.register("api.A", "10.0.0.1")
		r.register("api.B", "10.0.0.2")
		r.run(t)
		later(time.Second)
		r.tells(t)
		r.fresh(t)
		version := wish.Add(named("api.A").Name, named("api.C").Name)
		later(time.Second)
		if told, _ := wish.Await(version); !told {
			t.Error("the source does not say that it told of what is wanted")
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
