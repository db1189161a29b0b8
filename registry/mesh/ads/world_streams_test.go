package ads_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// TestWorld_Streams is about streams that end, unanswered names, and unusual contents.
func TestWorld_Streams(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a stream that ends after responses is replaced silently": func(t *testing.T) {
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
		"a server that is down before any response is reported, and the known state stays": func(t *testing.T) {
			k, v, s := asking(t)
			k.answer(say(cds, "v1", "1", cluster("a", 1)))
			v.heard()
			k.close(nil)
			in(2 * time.Second)
			next(t, s.worlds).close(status.Error(codes.Unavailable, "still restarting"))
			e := v.one(t)
			is(t, "error reported", strings.Contains(e.Disconnected.Error(), "still restarting"), true)
			equal(t, "removed", e.Removed)
			equal(t, "held", v.names(), "a")
		},
		"a new stream starts with node, all names, the last version and no nonce": func(t *testing.T) {
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
		"fewer clusters after a reconnect are removals, marked as found at a resync": func(t *testing.T) {
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
			k.answer(say(cds, "v3", "2"))
			e = v.one(t)
			equal(t, "removed", e.Removed, "a")
		},
		"an endpoint name without an answer in 15 s is unknown, and a later answer revives it": func(t *testing.T) {
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
		"the clock of an unanswered name does not run while disconnected": func(t *testing.T) {
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
		"names of any form are reported and acknowledged": func(t *testing.T) {
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
		"a static or original-destination cluster does not reject the other clusters": func(t *testing.T) {
			k, v, _ := asking(t)
			k.answer(say(cds, "v1", "1", cluster("BlackHoleCluster", 0), cluster("PassthroughCluster", 0), cluster("outbound|80||a.b.svc.cluster.local", 1)))
			acked(t, k, ack{cds, "v1", "1"})
			is(t, "held", len(v.names()), 3)
		},
		"a resource in an envelope is unwrapped": func(t *testing.T) {
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
		"20 MiB in one response are accepted": func(t *testing.T) {
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
		"a version is opaque": func(t *testing.T) {
			k, _, _ := asking(t)
			for i, version := range []string{"2026-08-27T00:00:00Z/7\n\"ü\"", "", strings.Repeat("9", 5000)} {
				nonce := strconv.Itoa(i)
				k.answer(say(cds, version, nonce))
				acked(t, k, ack{cds, version, nonce})
			}
		},
		"nonces are kept per type": func(t *testing.T) {
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
		"a wildcard that was removed and is added again is requested again": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			c := connect(t, n, speaking(ads.StateOfTheWorld))
			v, sub := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			sub.Set()
			synctest.Wait()
			v.heard()
			sub.Set(ads.Wildcard)
			synctest.Wait()
			equal(t, "changed", changed(v.one(t)), "a")
		},
		"a name added next to a rejection follows in a request of its own": func(t *testing.T) {
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
