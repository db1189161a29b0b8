package ads_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// asking starts a client that wants all clusters, in the state of the world, and
// returns its first stream after its first request.
func asking(t *testing.T) (*world, *view[int64], sides) {
	t.Helper()
	s, n := scripted(t)
	c := connect(t, n, speaking(ads.StateOfTheWorld))
	v, _ := watch(c, clusters(nil), ads.Wildcard)
	k := next(t, s.worlds)
	k.request(t)
	return k, v, sides{script: s, client: c}
}

// sides are what a story may need in addition to its stream.
type sides struct {
	*script
	client *ads.Client
	sub    *subscription[int64]
}

// ack is what an acknowledgement says.
type ack struct{ url, version, nonce string }

// acked checks the next request.
func acked(t *testing.T, k *world, want ack, names ...string) {
	t.Helper()
	r := k.request(t)
	if r.GetErrorDetail() != nil {
		t.Fatalf("rejection %v, want none", r.GetErrorDetail())
	}
	is(t, "acknowledged", ack{r.GetTypeUrl(), r.GetVersionInfo(), r.GetResponseNonce()}, want)
	equal(t, "names", r.GetResourceNames(), names...)
}

func nacked(t *testing.T, k *world, version, nonce, about string) {
	t.Helper()
	r := k.request(t)
	is(t, "code", codes.Code(r.GetErrorDetail().GetCode()), codes.InvalidArgument)
	is(t, "version", r.GetVersionInfo(), version)
	is(t, "nonce", r.GetResponseNonce(), nonce)
	if !strings.Contains(r.GetErrorDetail().GetMessage(), about) {
		t.Fatalf("rejection %q, want one with %q", r.GetErrorDetail().GetMessage(), about)
	}
}

func TestWorld(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"the first request has a node of four parts, no version and no nonce": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			watch(c, clusters(nil), ads.Wildcard)
			r := next(t, s.worlds).request(t)
			is(t, "parts of the id", len(strings.Split(r.GetNode().GetId(), "~")), 4)
			is(t, "id", r.GetNode().GetId(), "router~10.0.0.1~bridge-0.istio-system~istio-system.svc.cluster.local")
			is(t, "type", r.GetTypeUrl(), cds)
			is(t, "version and nonce", r.GetVersionInfo()+r.GetResponseNonce(), "")
		},
		"later requests carry no node": func(t *testing.T) {
			k, _, s := asking(t)
			none := func(what string, r *discoveryv3.DiscoveryRequest) {
				t.Helper()
				is(t, "node next to "+what, r.GetNode() == nil, true)
			}
			k.answer(say(cds, "v1", "a"))
			none("an acknowledgement", k.request(t))
			k.answer(say(cds, "v2", "b", garbage(cds)))
			none("a rejection", k.request(t))
			_, sub := watch(s.client, endpoints(), "x")
			none("the first request of another type", k.request(t))
			sub.Watch("y")
			none("more names", k.request(t))
			sub.Set()
			none("no names", k.request(t))
			k.silent(t)
		},
		"a valid response is acknowledged with its version and nonce": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "a", cluster("x", 1)))
			acked(t, k, ack{cds, "v1", "a"})
			equal(t, "changed", changed(v.one(t)), "x")
		},
		"one unreadable resource is rejected by name, the others are applied and it stays": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "a", cluster("x", 1), cluster("y", 1)))
			acked(t, k, ack{cds, "v1", "a"})
			v.heard()
			bad := cluster("x", 2)
			bad.AltStatName = "invalid"
			k.answer(say(cds, "v2", "b", bad, cluster("y", 2)))
			nacked(t, k, "v1", "b", `"x": marked invalid`)
			e := v.one(t)
			equal(t, "changed", changed(e), "y")
			equal(t, "invalid", keys(e.Invalid), "x")
			equal(t, "removed", e.Removed)
			is(t, "value kept", v.held["x"], 1)
		},
		"a resource without a readable name removes nothing": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "a", cluster("x", 1), cluster("y", 1)))
			k.request(t)
			v.heard()
			k.answer(say(cds, "v2", "b", garbage(cds), cluster("y", 1)))
			nacked(t, k, "v1", "b", "resource[0]")
			e := v.one(t)
			equal(t, "removed", e.Removed)
			equal(t, "invalid", keys(e.Invalid), "resource[0]")
			equal(t, "held", v.names(), "x", "y")
		},
		"a resource of another type is rejected": func(t *testing.T) {
			k, _, _ := asking(t)
			k.answer(say(cds, "v1", "a", load("x")))
			nacked(t, k, "", "a", "ClusterLoadAssignment")
		},
		"a decoder that panics costs one resource": func(t *testing.T) {
			k, v, _ := asking(t)
			bad := cluster("x", 1)
			bad.AltStatName = "panic"
			k.answer(say(cds, "v1", "a", bad, cluster("y", 1)))
			nacked(t, k, "", "a", "panicked")
			equal(t, "held", v.names(), "y")
		},
		"a resource named as the wildcard is rejected": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "a", cluster("*", 1), cluster("a", 1)))
			nacked(t, k, "", "a", "reserved for the wildcard")
			equal(t, "held", v.names(), "a")
		},
		"a rejection stays short however much is wrong": func(t *testing.T) {
			k, _, _ := asking(t)
			var all []proto.Message
			for i := range 1000 {
				bad := cluster(strings.Repeat("x", 1000)+strconv.Itoa(i), 1)
				bad.AltStatName = "invalid"
				all = append(all, bad)
			}
			k.answer(say(cds, "v1", "a", all...))
			r := k.request(t)
			is(t, "counted", strings.Contains(r.GetErrorDetail().GetMessage(), "and 990 more"), true)
			is(t, "short", len(r.GetErrorDetail().GetMessage()) < 5000, true)
		},
		"an envelope that cannot be read, or that contains another, is rejected": func(t *testing.T) {
			k, _, _ := asking(t)
			k.answer(say(cds, "v1", "a", garbage("type.googleapis.com/envoy.service.discovery.v3.Resource"), body(wrap("b", "", wrap("b", "", nil)))))
			r := k.request(t).GetErrorDetail().GetMessage()
			is(t, "both", strings.Contains(r, "unmarshal envelope") && strings.Contains(r, "envelope in an envelope"), true)
		},
		"a first response that is invalid is rejected with an empty version": func(t *testing.T) {
			k, _, _ := asking(t)
			k.answer(say(cds, "v1", "a", garbage(cds)))
			nacked(t, k, "", "a", "resource[0]")
		},
		"after a rejection a valid response is acknowledged and reported though nothing changed": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "a", cluster("x", 1)))
			k.request(t)
			bad := cluster("x", 2)
			bad.AltStatName = "invalid"
			k.answer(say(cds, "v2", "b", bad))
			nacked(t, k, "v1", "b", "x")
			v.heard()
			k.answer(say(cds, "v3", "c", cluster("x", 1)))
			acked(t, k, ack{cds, "v3", "c"})
			equal(t, "changed", changed(v.one(t)), "x")
		},
		"the same content in a new version is acknowledged and not reported": func(t *testing.T) {
			k, v, s := asking(t)
			k.answer(say(cds, "v1", "a", cluster("x", 1)))
			k.request(t)
			v.heard()
			k.answer(say(cds, "v2", "b", cluster("x", 1)))
			acked(t, k, ack{cds, "v2", "b"})
			v.none(t)
			is(t, "version shown", s.client.State().Types[cds].Version, "v2")
		},
		"wildcard shrinks from a,b to a: b is removed exactly once": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1), cluster("b", 1)))
			v.heard()
			k.answer(say(cds, "v2", "2", cluster("a", 1)))
			e := v.one(t)
			equal(t, "removed", e.Removed, "b")
			k.answer(say(cds, "v3", "3", cluster("a", 1)))
			v.none(t)
		},
		"an empty cluster list removes all": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1), cluster("b", 1)))
			v.heard()
			k.answer(say(cds, "v2", "2"))
			equal(t, "removed", v.one(t).Removed, "a", "b")
		},
		"endpoints that are missing in a response stay": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2", load("c", "10.0.0.9")))
			e := v.one(t)
			equal(t, "changed", changed(e), "c")
			equal(t, "removed", e.Removed)
			equal(t, "held", v.names(), "a", "b", "c", "d", "e")
		},
		"an empty endpoint response changes nothing and is acknowledged": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2"))
			acked(t, k, ack{eds, "v2", "2"}, "a", "b", "c", "d", "e")
			v.none(t)
		},
		"endpoints without an endpoint are reported as such": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2", load("a")))
			e := v.one(t)
			equal(t, "changed", changed(e), "a")
			is(t, "value", e.Changed[0].Value, "")
			equal(t, "removed", e.Removed)
		},
		"endpoints that shrink are reported whole": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2", load("a", "10.0.0.1", "10.0.0.2")))
			is(t, "two", v.one(t).Changed[0].Value, "10.0.0.1,10.0.0.2")
			k.answer(say(eds, "v3", "3", load("a", "10.0.0.2")))
			is(t, "one", v.one(t).Changed[0].Value, "10.0.0.2")
		},
		"a new name is requested together with all names, the last nonce and version": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			_, sub := watch(c, endpoints(), "a")
			k := next(t, s.worlds)
			k.request(t)
			k.answer(say(eds, "v1", "1", load("a")))
			acked(t, k, ack{eds, "v1", "1"}, "a")
			sub.Watch("b")
			acked(t, k, ack{eds, "v1", "1"}, "a", "b")
			k.silent(t)
		},
		"500 clusters in one response are a handful of endpoint requests": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			follow := ads.Subscribe(c, endpoints(), func(ads.Event[string]) {})
			ads.Subscribe(c, clusters(nil), func(e ads.Event[int64]) {
				for _, r := range e.Changed {
					follow.Watch(r.Name)
				}
			}).Watch(ads.Wildcard)
			k := next(t, s.worlds)
			k.request(t)
			var all []proto.Message
			for i := range 500 {
				all = append(all, cluster(fmt.Sprintf("c%03d", i), 1))
			}
			k.answer(say(cds, "v1", "1", all...))
			var requests int
			for synctest.Wait(); len(k.requests) > 0; synctest.Wait() {
				if r := k.request(t); r.GetTypeUrl() == eds {
					requests++
					is(t, "names", len(r.GetResourceNames()), 500)
				}
			}
			is(t, "endpoint requests", requests, 1)
		},
		"the last name removed is an empty list, and nothing is acknowledged afterwards": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, sub := watch(c, endpoints(), "a")
			k := next(t, s.worlds)
			k.request(t)
			k.answer(say(eds, "v1", "1", load("a")))
			k.request(t)
			v.heard()
			sub.Unwatch("a")
			acked(t, k, ack{eds, "v1", "1"})
			k.answer(say(eds, "v2", "2", load("a", "10.0.0.1")))
			k.silent(t)
			v.none(t)
		},
		"names that a stale request lost travel with the next acknowledgement": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			_, sub := watch(c, endpoints(), "a")
			k := next(t, s.worlds)
			k.request(t)
			k.answer(say(eds, "v1", "1", load("a")))
			k.request(t)
			sub.Watch("b")
			k.request(t) // with nonce 1; suppose that 2 was in flight and this is ignored
			k.answer(say(eds, "v2", "2", load("a", "10.0.0.1")))
			acked(t, k, ack{eds, "v2", "2"}, "a", "b")
		},
		"a response of a type that was not requested is ignored and the stream continues": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say("type.googleapis.com/envoy.config.listener.v3.Listener", "v1", "x", garbage("y")))
			k.silent(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1)))
			acked(t, k, ack{cds, "v1", "1"})
			equal(t, "held", v.names(), "a")
		},
		"a type that was unsubscribed from is never rejected": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, sub := watch(c, endpoints(), "a")
			k := next(t, s.worlds)
			k.request(t)
			k.answer(say(eds, "v1", "1", load("a")))
			k.request(t)
			v.heard()
			sub.Set()
			k.request(t)
			k.answer(say(eds, "v2", "2", garbage(eds)))
			k.silent(t)
			v.none(t)
			is(t, "state", c.State().Types[eds].Version, "v1")
			sub.Watch("a")
			acked(t, k, ack{eds, "v1", "2"}, "a") // the newest nonce, or the server would think it stale
			k.answer(say(eds, "v3", "3", load("a")))
			equal(t, "held", v.names(), "a")
		},
		"a resource that was not requested is ignored": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, sub := watch(c, clusters(nil), "a")
			k := next(t, s.worlds)
			k.request(t)
			bad := cluster("y", 1)
			bad.AltStatName = "invalid"
			k.answer(say(cds, "v1", "1", cluster("a", 1), cluster("z", 1), bad))
			acked(t, k, ack{cds, "v1", "1"}, "a") // nor is its error
			equal(t, "changed", changed(v.one(t)), "a")
			is(t, "held", c.State().Types[cds].Resources, 1)
			sub.Watch("z")
			acked(t, k, ack{cds, "v1", "1"}, "a", "z")
			v.none(t) // what came unasked is not known
		},
		"a name twice in one response is rejected, and neither is accepted": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1), cluster("b", 1)))
			k.request(t)
			v.heard()
			k.answer(say(cds, "v2", "2", cluster("a", 2), cluster("b", 2), cluster("a", 3)))
			nacked(t, k, "v1", "2", `"a": duplicate`)
			e := v.one(t)
			equal(t, "changed", changed(e), "b")
			is(t, "a", v.held["a"], 1)
		},
	})
}

// five is a stream with five endpoint names answered.
func five(t *testing.T) (*world, *view[string]) {
	t.Helper()
	s, n := scripted(t)
	c := connect(t, n, speaking(ads.StateOfTheWorld))
	names := []string{"a", "b", "c", "d", "e"}
	v, _ := watch(c, endpoints(), names...)
	k := next(t, s.worlds)
	equal(t, "names", k.request(t).GetResourceNames(), names...)
	r := &discoveryv3.DiscoveryResponse{TypeUrl: eds, VersionInfo: "v1", Nonce: "1"}
	for _, name := range slices.Backward(names) {
		r.Resources = append(r.Resources, body(load(name, "10.0.0.1")))
	}
	k.answer(r)
	acked(t, k, ack{eds, "v1", "1"}, names...)
	equal(t, "changed", changed(v.one(t)), names...)
	return k, v
}
