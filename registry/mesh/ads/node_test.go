package ads_test

import (
	"fmt"
	"testing"
	"time"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// TestNode is about a node that changes while the client runs.
func TestNode(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a changed node costs no connection, no error and one stream": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			settle()
			v.heard()
			for i := range 1000 {
				c.SetNode(named(fmt.Sprintf("bridge-%d", i)))
				in(1100 * time.Millisecond)
				connections := s.Connections()
				if len(connections) != 1 {
					t.Fatalf("%d connections after change %d", len(connections), i)
				}
			}
			dials, open := n.counts()
			is(t, "connections dialled", dials, 1)
			is(t, "connections open", open, 1)
			is(t, "node", s.Connections()[0].Node.GetId(), named("bridge-999").GetId())
			for _, e := range v.heard() {
				is(t, "news", len(e.Changed)+len(e.Removed)+len(e.Unknown), 0)
				is(t, "errors", e.Disconnected, nil)
			}
			obedient(t, s)
		},
		"a thousand changes at once are announced as one": func(t *testing.T) {
			s, n := istiod(t)
			c := connect(t, n)
			watch(c, clusters(nil), ads.Wildcard)
			settle()
			for i := range 1000 {
				c.SetNode(named(fmt.Sprintf("bridge-%d", i)))
			}
			in(5 * time.Second)
			is(t, "streams", s.Streams() <= 3, true)
			is(t, "node", s.Connections()[0].Node.GetId(), named("bridge-999").GetId())
		},
		"the old stream stays until the new one has delivered": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			settle()
			v.heard()
			s.Refuse(istiodfake.ErrRateLimit)
			c.SetNode(named("other"))
			in(10 * time.Second)
			is(t, "connected", c.State().Connected, true)
			s.Set(cluster("b", 1))
			settle()
			equal(t, "changed", changed(v.one(t)), "b")
			s.Refuse(nil)
			in(31 * time.Second)
			is(t, "node", s.Connections()[0].Node.GetId(), named("other").GetId())
			is(t, "connections", len(s.Connections()), 1)
		},
		"a new stream that says nothing is given up": func(t *testing.T) {
			s, n := istiod(t)
			c := connect(t, n)
			watch(c, clusters(nil), ads.Wildcard)
			settle()
			s.Mute()
			c.SetNode(named("other"))
			in(31 * time.Second)
			is(t, "connections", len(s.Connections()), 1)
			s.Unmute()
			in(31 * time.Second)
			is(t, "node", s.Connections()[0].Node.GetId(), named("other").GetId())
			is(t, "connections", len(s.Connections()), 1)
		},
		"a node that changes while subscribers come and go loses nobody": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1), cluster("b", 1))
			c := connect(t, n)
			first, _ := watch(c, clusters(nil), ads.Wildcard)
			second, _ := watch(c, clusters(nil), ads.Wildcard)
			settle()
			c.SetNode(named("other"))
			late, _ := watch(c, clusters(nil), ads.Wildcard)
			in(2 * time.Second)
			s.Remove(cds, "b")
			settle()
			for _, v := range []*view[int64]{first, second, late} {
				equal(t, "held", v.names(), "a")
			}
		},
	})
}
