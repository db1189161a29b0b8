package ads_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// sides are what a story may need beside its stream.
type sides struct {
	*script
	client *ads.Client
	sub    *ads.Subscription[int64]
}

// ack is what an acknowledgement says.
type ack struct{ url, version, nonce string }

// acked checks the next request.
func acked(t *testing.T, k *world, want ack, names ...string) {
	t.Helper()
	r := k.request(t)
	if r.GetErrorDetail() != nil {
		t.Fatalf("rejected: %v", r.GetErrorDetail())
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
		t.Fatalf("rejection %q does not speak of %q", r.GetErrorDetail().GetMessage(), about)
	}
}

func TestStateOfTheWorld_A57(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"C01 the first request has a node of four parts, no version and no nonce": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			watch(c, clusters(nil), ads.Wildcard)
			r := next(t, s.worlds).request(t)
			is(t, "parts of the id", len(strings.Split(r.GetNode().GetId(), "~")), 4)
			is(t, "id", r.GetNode().GetId(), "router~10.0.0.1~bridge-0.istio-system~istio-system.svc.cluster.local")
			is(t, "type", r.GetTypeUrl(), cds)
			is(t, "version and nonce", r.GetVersionInfo()+r.GetResponseNonce(), "")
		},
		"C02 B42 later requests carry no node": func(t *testing.T) {
			k, _, _ := asking(t)
			k.answer(say(cds, "v1", "a"))
			is(t, "node", k.request(t).GetNode() == nil, true)
		},
		"C03 a valid response is acknowledged with its version and nonce": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "a", cluster("x", 1)))
			acked(t, k, ack{cds, "v1", "a"})
			equal(t, "changed", changed(v.one(t)), "x")
		},
		"C04 F16 one unreadable resource is rejected by name, the others are applied and it stays": func(t *testing.T) {
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
		"C04 F16 a resource without a readable name removes nobody": func(t *testing.T) {
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
		"F16 a resource of another type is rejected": func(t *testing.T) {
			k, _, _ := asking(t)
			k.answer(say(cds, "v1", "a", load("x")))
			nacked(t, k, "", "a", "ClusterLoadAssignment")
		},
		"F16 a decoder that panics costs one resource": func(t *testing.T) {
			k, v, _ := asking(t)
			bad := cluster("x", 1)
			bad.AltStatName = "panic"
			k.answer(say(cds, "v1", "a", bad, cluster("y", 1)))
			nacked(t, k, "", "a", "panicked")
			equal(t, "held", v.names(), "y")
		},
		"F16 a rejection stays short however much is wrong": func(t *testing.T) {
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
		"F16 an envelope that cannot be read, or that holds another, is rejected": func(t *testing.T) {
			k, _, _ := asking(t)
			k.answer(say(cds, "v1", "a", garbage("type.googleapis.com/envoy.service.discovery.v3.Resource"), body(wrap("b", "", wrap("b", "", nil)))))
			r := k.request(t).GetErrorDetail().GetMessage()
			is(t, "both", strings.Contains(r, "envelope cannot be read") && strings.Contains(r, "envelope in an envelope"), true)
		},
		"C05 a first response that is invalid is rejected with an empty version": func(t *testing.T) {
			k, _, _ := asking(t)
			k.answer(say(cds, "v1", "a", garbage(cds)))
			nacked(t, k, "", "a", "resource[0]")
		},
		"C06 after a rejection a valid response is acknowledged and told though nothing changed": func(t *testing.T) {
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
		"C07 the same content in a new version is acknowledged and not told": func(t *testing.T) {
			k, v, s := asking(t)
			k.answer(say(cds, "v1", "a", cluster("x", 1)))
			k.request(t)
			v.heard()
			k.answer(say(cds, "v2", "b", cluster("x", 1)))
			acked(t, k, ack{cds, "v2", "b"})
			v.none(t)
			is(t, "version shown", s.client.State().Types[cds].Version, "v2")
		},
		"C08 wildcard shrinks from a,b to a: b is removed exactly once": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1), cluster("b", 1)))
			v.heard()
			k.answer(say(cds, "v2", "2", cluster("a", 1)))
			e := v.one(t)
			equal(t, "removed", e.Removed, "b")
			is(t, "found at a resync", e.Resync, false)
			k.answer(say(cds, "v3", "3", cluster("a", 1)))
			v.none(t)
		},
		"C09 an empty cluster list removes all": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1), cluster("b", 1)))
			v.heard()
			k.answer(say(cds, "v2", "2"))
			equal(t, "removed", v.one(t).Removed, "a", "b")
		},
		"C10 endpoints that a response does not hold stay": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2", load("c", "10.0.0.9")))
			e := v.one(t)
			equal(t, "changed", changed(e), "c")
			equal(t, "removed", e.Removed)
			equal(t, "held", v.names(), "a", "b", "c", "d", "e")
		},
		"C11 an empty endpoint response changes nothing and is acknowledged": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2"))
			acked(t, k, ack{eds, "v2", "2"}, "a", "b", "c", "d", "e")
			v.none(t)
		},
		"C12 endpoints without an endpoint are told as such": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2", load("a")))
			e := v.one(t)
			equal(t, "changed", changed(e), "a")
			is(t, "value", e.Changed[0].Value, "")
			equal(t, "removed", e.Removed)
		},
		"C13 endpoints that shrink are told whole": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2", load("a", "10.0.0.1", "10.0.0.2")))
			is(t, "two", v.one(t).Changed[0].Value, "10.0.0.1,10.0.0.2")
			k.answer(say(eds, "v3", "3", load("a", "10.0.0.2")))
			is(t, "one", v.one(t).Changed[0].Value, "10.0.0.2")
		},
		"C14 a new name is asked for in one request with all names, the last nonce and version": func(t *testing.T) {
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
		"C15 500 clusters in one response become a handful of endpoint requests": func(t *testing.T) {
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
			for settle(); len(k.requests) > 0; settle() {
				if r := k.request(t); r.GetTypeUrl() == eds {
					requests++
					is(t, "names", len(r.GetResourceNames()), 500)
				}
			}
			is(t, "endpoint requests", requests, 1)
		},
		"C16 the last name given up is an empty list, and nothing is acknowledged afterwards": func(t *testing.T) {
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
		"C17 names that a stale request lost travel with the next acknowledgement": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			_, sub := watch(c, endpoints(), "a")
			k := next(t, s.worlds)
			k.request(t)
			k.answer(say(eds, "v1", "1", load("a")))
			k.request(t)
			sub.Watch("b")
			k.request(t) // with nonce 1; suppose that 2 was on its way and this is ignored
			k.answer(say(eds, "v2", "2", load("a", "10.0.0.1")))
			acked(t, k, ack{eds, "v2", "2"}, "a", "b")
		},
		"C18 a response of a type nobody asked for is ignored and the stream lives": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say("type.googleapis.com/envoy.config.listener.v3.Listener", "v1", "x", garbage("y")))
			k.silent(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1)))
			acked(t, k, ack{cds, "v1", "1"})
			equal(t, "held", v.names(), "a")
		},
		"C19 a type that was unsubscribed from is never rejected": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, sub := watch(c, endpoints(), "a")
			k := next(t, s.worlds)
			k.request(t)
			k.answer(say(eds, "v1", "1", load("a")))
			k.request(t)
			v.heard()
			sub.Close()
			k.request(t)
			k.answer(say(eds, "v2", "2", garbage(eds)))
			k.silent(t)
			v.none(t)
			is(t, "state", c.State().Types[eds].Version, "v1")
			again, _ := watch(c, endpoints(), "a")
			acked(t, k, ack{eds, "v1", "2"}, "a") // the newest nonce, or the server would think it stale
			k.answer(say(eds, "v3", "3", load("a")))
			equal(t, "held", again.names(), "a")
		},
		"C20 a resource that was not requested is ignored": func(t *testing.T) {
			k, v := five(t)
			k.answer(say(eds, "v2", "2", load("z", "10.0.0.1")))
			acked(t, k, ack{eds, "v2", "2"}, "a", "b", "c", "d", "e")
			v.none(t)
		},
		"C21 B43 F16 a name twice in one response is rejected, and neither is taken": func(t *testing.T) {
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
		"C22 F14 a stream that ends after responses is replaced without a word": func(t *testing.T) {
			for _, err := range []error{nil, status.Error(codes.Unavailable, "restarting")} {
				k, v, s := asking(t)
				k.answer(say(cds, "v1", "1", cluster("a", 1)))
				v.heard()
				k.close(err)
				v.none(t)
				in(2 * time.Second)
				k = next(t, s.worlds)
				k.request(t)
				v.none(t)
				is(t, "connected", s.client.State().Connected, false)
				k.answer(say(cds, "v1", "1", cluster("a", 1)))
				e := v.one(t)
				equal(t, "confirmed", e.Confirmed, "a")
				equal(t, "changed", changed(e))
				equal(t, "removed", e.Removed)
				is(t, "epoch", e.Epoch, 2)
				is(t, "complete", e.Complete, true)
				is(t, "connected", s.client.State().Connected, true)
			}
		},
		"C23 a server that is down before any response is told, and the known state stays": func(t *testing.T) {
			k, v, s := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1)))
			v.heard()
			k.close(nil)
			in(2 * time.Second)
			next(t, s.worlds).close(status.Error(codes.Unavailable, "still restarting"))
			e := v.one(t)
			is(t, "error told", strings.Contains(e.Disconnected.Error(), "still restarting"), true)
			equal(t, "removed", e.Removed)
			equal(t, "held", v.names(), "a")
		},
		"C24 B42 a new stream starts with node, all names, the last version and no nonce": func(t *testing.T) {
			k, _, s := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1)))
			k.close(nil)
			in(2 * time.Second)
			k = next(t, s.worlds)
			r := k.request(t)
			is(t, "node", r.GetNode().GetId(), node().GetId())
			is(t, "version", r.GetVersionInfo(), "v1")
			is(t, "nonce", r.GetResponseNonce(), "")
			equal(t, "names: all", r.GetResourceNames())
		},
		"C25 F15 fewer clusters after a reconnect are removals, marked as found at a resync": func(t *testing.T) {
			k, v, s := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1), cluster("b", 1)))
			k.close(nil)
			in(2 * time.Second)
			k = next(t, s.worlds)
			k.request(t)
			v.heard()
			k.answer(say(cds, "v2", "1", cluster("a", 1)))
			e := v.one(t)
			equal(t, "removed", e.Removed, "b")
			is(t, "resync", e.Resync, true)
			k.answer(say(cds, "v3", "2"))
			e = v.one(t)
			equal(t, "removed", e.Removed, "a")
			is(t, "resync", e.Resync, false)
		},
		"C30 B26 an endpoint name without an answer in 15 s is unknown, and a later answer revives it": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, _ := watch(c, endpoints(), "a", "b")
			k := next(t, s.worlds)
			k.request(t)
			k.answer(say(eds, "v1", "1", load("a")))
			equal(t, "changed", changed(v.one(t)), "a")
			in(14 * time.Second)
			v.none(t)
			in(2 * time.Second)
			e := v.one(t)
			equal(t, "unknown", keys(e.Unknown), "b")
			equal(t, "removed", e.Removed)
			is(t, "shown", c.State().Types[eds].Unknown, 1)
			k.answer(say(eds, "v2", "2", load("b")))
			equal(t, "changed", changed(v.one(t)), "b")
			is(t, "shown", c.State().Types[eds].Unknown, 0)
		},
		"C31 the clock of an unanswered name does not run while disconnected": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, _ := watch(c, endpoints(), "a")
			other, _ := watch(c, clusters(nil), ads.Wildcard)
			k := next(t, s.worlds)
			k.answer(say(cds, "v1", "1"))
			other.heard()
			in(10 * time.Second)
			n.cut(errors.New("no route"))
			k.close(nil)
			in(10 * time.Minute)
			for _, e := range v.heard() {
				equal(t, "unknown", keys(e.Unknown))
			}
			n.heal()
			in(31 * time.Second)
			next(t, s.worlds)
			in(16 * time.Second)
			equal(t, "unknown", keys(v.one(t).Unknown), "a")
		},
		"C35 names of any form are told and acknowledged": func(t *testing.T) {
			k, v, _ := asking(t)
			names := []string{"", "BlackHoleCluster", "PassthroughCluster", "inbound|80||", "x"}
			var all []proto.Message
			for _, name := range names {
				all = append(all, cluster(name, 1))
			}
			k.answer(say(cds, "v1", "1", all...))
			acked(t, k, ack{cds, "v1", "1"})
			equal(t, "held", v.names(), names...)
		},
		"B21 a static or original-destination cluster is no reason to reject the rest": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "1", cluster("BlackHoleCluster", 0), cluster("PassthroughCluster", 0), cluster("outbound|80||a.b.svc.cluster.local", 1)))
			acked(t, k, ack{cds, "v1", "1"})
			is(t, "held", len(v.names()), 3)
		},
		"C46 B43 a resource in an envelope is unwrapped": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "1", body(wrap("a", "7", cluster("a", 1)))))
			acked(t, k, ack{cds, "v1", "1"})
			e := v.one(t)
			equal(t, "changed", changed(e), "a")
			is(t, "version", e.Changed[0].Version, "7")
			k.answer(say(cds, "v2", "2", body(wrap("a", "7", nil)))) // a heartbeat: it is there
			acked(t, k, ack{cds, "v2", "2"})
			v.none(t)
		},
		"C47 B44 20 MiB in one response are taken": func(t *testing.T) {
			k, v, _ := asking(t)
			var all []proto.Message
			for i := range 20 {
				big := cluster(fmt.Sprintf("c%02d", i), 1)
				big.AltStatName = strings.Repeat("x", 1<<20)
				all = append(all, big)
			}
			k.answer(say(cds, "v1", "1", all...))
			acked(t, k, ack{cds, "v1", "1"})
			is(t, "held", len(v.names()), 20)
		},
		"C48 a version is opaque": func(t *testing.T) {
			k, _, _ := asking(t)
			for i, version := range []string{"2026-08-27T00:00:00Z/7\n\"ü\"", "", strings.Repeat("9", 5000)} {
				nonce := strconv.Itoa(i)
				k.answer(say(cds, version, nonce))
				acked(t, k, ack{cds, version, nonce})
			}
		},
		"C49 nonces are kept per type": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			watch(c, clusters(nil), ads.Wildcard)
			_, sub := watch(c, endpoints(), "a")
			k := next(t, s.worlds)
			k.request(t)
			k.request(t)
			k.answer(say(cds, "c1", "1"))
			acked(t, k, ack{cds, "c1", "1"})
			k.answer(say(eds, "e1", "1", load("a")))
			acked(t, k, ack{eds, "e1", "1"}, "a")
			k.answer(say(cds, "c2", "2"))
			acked(t, k, ack{cds, "c2", "2"})
			sub.Watch("b")
			acked(t, k, ack{eds, "e1", "1"}, "a", "b")
		},
		"a wildcard is an empty list until a name was given, and explicit from then on": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, sub := watch(c, clusters(nil), ads.Wildcard)
			k := next(t, s.worlds)
			equal(t, "names", k.request(t).GetResourceNames())
			k.answer(say(cds, "v1", "1", cluster("a", 1)))
			acked(t, k, ack{cds, "v1", "1"})
			sub.Watch("a")
			acked(t, k, ack{cds, "v1", "1"}, "*", "a")
			sub.Unwatch("a")
			acked(t, k, ack{cds, "v1", "1"}, "*")
			sub.Unwatch("*")
			acked(t, k, ack{cds, "v1", "1"})
			v.heard()
			sub.Watch("*")
			acked(t, k, ack{cds, "v1", "1"}, "*")
			k.answer(say(cds, "v1", "2", cluster("a", 1)))
			equal(t, "changed", changed(v.one(t)), "a")
		},
		"a wildcard that was given up and is wanted again is asked for again": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, sub := watch(c, clusters(nil), ads.Wildcard)
			settle()
			sub.Set(nil)
			settle()
			v.heard()
			sub.Set([]string{ads.Wildcard})
			settle()
			equal(t, "changed", changed(v.one(t)), "a")
		},
		"a name added beside a rejection follows in a request of its own": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			var sub *ads.Subscription[string]
			sub = ads.Subscribe(c, endpoints(), func(ads.Event[string]) { sub.Watch("b") })
			sub.Watch("a")
			k := next(t, s.worlds)
			k.request(t)
			k.answer(say(eds, "v1", "1", garbage(eds)))
			r := k.request(t)
			is(t, "rejected", r.GetErrorDetail() != nil, true)
			equal(t, "names of the rejection", r.GetResourceNames(), "a")
			acked(t, k, ack{eds, "", "1"}, "a", "b")
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
