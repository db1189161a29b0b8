package ads_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// TestDefectsOfOthers shows, for defects that no other test is about, that
// they are not here.
func TestDefectsOfOthers(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"the last name is removed by the handler of its removal": func(t *testing.T) {
			for name, m := range variants() {
				s, n := istiod(t)
				s.Set(cluster("a", 1))
				c := connect(t, n, speaking(m))
				var removed, added int
				var sub *ads.Subscription[int64]
				sub = ads.Subscribe(c, clusters(nil), func(e ads.Event[int64]) {
					if len(e.Removed) > 0 {
						sub.Unwatch(ads.Wildcard)
					}
					removed, added = removed+len(e.Removed), added+len(e.Changed)
				})
				sub.Watch(ads.Wildcard)
				synctest.Wait()
				s.Remove(cds, "a")
				synctest.Wait()
				is(t, name, removed, 1)
				sub.Watch(ads.Wildcard)
				s.Set(cluster("b", 1))
				synctest.Wait()
				is(t, name, added, 2)
			}
		},
		"a removed name is reported and requested no more, however often": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(load("kept", "10.0.0.1"))
			c := connect(t, n)
			v, sub := watch(c, endpoints(), "kept")
			for i := range 200 {
				name := fmt.Sprint("gone-", i)
				sub.Watch(name)
				synctest.Wait()
				sub.Unwatch(name)
			}
			synctest.Wait()
			v.heard()
			s.Set(load("kept", "10.0.0.2"), load("gone-7", "10.0.0.3"))
			synctest.Wait()
			equal(t, "changed", changed(v.one(t)), "kept")
			equal(t, "requested", s.Connections()[0].Watches[eds], "kept")
			is(t, "held", c.State().Types[eds].Resources, 1)
		},
		"a client without endpoints is served at once, and so is one that gets endpoints later": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1), load("a", "10.9.9.9"))
			c := connect(t, n) // as 10.0.0.1
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			w, _ := watch(c, endpoints(), "a")
			synctest.Wait()
			equal(t, "clusters", v.names(), "a")
			is(t, "endpoints", w.held["a"], "10.9.9.9")
			s.Set(load("a", "10.9.9.9", "10.0.0.1"))
			synctest.Wait()
			is(t, "endpoints", w.held["a"], "10.9.9.9,10.0.0.1")
			is(t, "streams", s.Streams(), 1)
		},
		"a name is removed at once while the server is unreachable, and not requested after the reconnect": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(load("a", "10.0.0.1"), load("b", "10.0.0.2"))
			c := connect(t, n)
			v, sub := watch(c, endpoints(), "a", "b")
			synctest.Wait()
			n.cut(errors.New("no route"))
			n.reset()
			began := time.Now()
			sub.Unwatch("a")
			is(t, "took", time.Since(began), 0)
			in(time.Minute)
			before := len(s.Requests(eds))
			n.heal()
			in(time.Minute)
			for _, r := range s.Requests(eds)[before:] {
				is(t, "requested a removed name", slices.Contains(r.Subscribe, "a"), false)
			}
			equal(t, "requested", s.Connections()[0].Watches[eds], "b")
			is(t, "held", v.held["b"], "10.0.0.2")
		},
		"a client reports that it has no server, and when it connects": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			n.cut(errors.New("no route"))
			c := connect(t, n)
			watch(c, clusters(nil), ads.Wildcard)
			in(time.Second)
			is(t, "connected", c.State().Connected, false)
			is(t, "why", c.State().Err != nil, true)
			n.heal()
			in(31 * time.Second)
			is(t, "connected", c.State().Connected, true)
			n.cut(errors.New("no route"))
			n.reset()
			in(time.Second)
			is(t, "connected", c.State().Connected, false)
		},
	})
}
