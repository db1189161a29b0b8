package ads_test

import (
	"testing"
	"testing/synctest"
	"time"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

func TestRedial(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"many calls at once are one connection, and nothing changes": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			var c *ads.Client
			redials := 0
			c = connect(t, n, func(o *ads.Options) {
				o.Observe = func(ads.Observation) { // in Run's goroutine, which connects only once all calls were made
					for ; redials > 0; redials-- {
						c.Redial()
					}
				}
			})
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			v.heard()
			redials = 1000
			s.Push()
			in(5 * time.Second)
			dials, open := n.counts()
			is(t, "connections dialled", dials, 2)
			is(t, "connections open", open, 1)
			for _, e := range v.heard() {
				is(t, "changes", len(e.Changed)+len(e.Removed)+len(e.Unknown), 0)
				is(t, "errors", e.Disconnected, nil)
			}
			obedient(t, s)
		},
		"a call after the second connection was dialled replaces that one too": func(t *testing.T) {
			s, n := istiod(t)
			c := connect(t, n)
			watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			s.Mute()
			c.Redial()
			synctest.Wait()
			c.Redial() // the host may resolve to other addresses now
			synctest.Wait()
			s.Unmute()
			in(5 * time.Second)
			dials, open := n.counts()
			is(t, "connections dialled", dials, 3)
			is(t, "connections open", open, 1)
		},
		"the old stream is kept until the new one has delivered": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			v.heard()
			s.Refuse(istiodfake.ErrRateLimit)
			c.Redial()
			in(10 * time.Second)
			is(t, "connected", c.State().Connected, true)
			s.Set(cluster("b", 1))
			synctest.Wait()
			equal(t, "changed", changed(v.one(t)), "b")
			s.Refuse(nil)
			in(31 * time.Second)
			is(t, "epoch", c.State().Epoch, 2)
			is(t, "connections", len(s.Connections()), 1)
		},
		"a new stream without a response is replaced": func(t *testing.T) {
			s, n := istiod(t)
			c := connect(t, n)
			watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			s.Mute()
			c.Redial()
			in(31 * time.Second)
			is(t, "connections", len(s.Connections()), 1)
			s.Unmute()
			in(31 * time.Second)
			is(t, "epoch", c.State().Epoch, 2)
			is(t, "connections", len(s.Connections()), 1)
		},
		"names that are added meanwhile are known to the new stream": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1), cluster("b", 1))
			c := connect(t, n)
			v, sub := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			c.Redial()
			sub.Watch("b")
			in(2 * time.Second)
			is(t, "epoch", c.State().Epoch, 2)
			s.Remove(cds, "b")
			synctest.Wait()
			equal(t, "held", v.names(), "a")
		},
	})
}
