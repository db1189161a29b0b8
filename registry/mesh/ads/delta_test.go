package ads_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// askingDelta starts a client that wants all clusters in delta and returns its
// first stream after its first request.
func askingDelta(t *testing.T) (*delta, *view[int64], sides) {
	t.Helper()
	s, n := scripted(t)
	c := connect(t, n)
	v, sub := watch(c, clusters(nil), ads.Wildcard)
	k := next(t, s.deltas)
	k.request(t)
	return k, v, sides{script: s, client: c, sub: sub}
}

// bare checks that the next request acknowledges and does nothing else.
func bare(t *testing.T, k *delta, nonce string) *discoveryv3.DeltaDiscoveryRequest {
	t.Helper()
	r := k.request(t)
	is(t, "nonce", r.GetResponseNonce(), nonce)
	is(t, "names next to it", len(r.GetResourceNamesSubscribe())+len(r.GetResourceNamesUnsubscribe())+len(r.GetInitialResourceVersions()), 0)
	is(t, "node next to it", r.GetNode() == nil, true)
	return r
}

func a1() *discoveryv3.Resource { return wrap("a", "", cluster("a", 1)) }
func b1() *discoveryv3.Resource { return wrap("b", "", cluster("b", 1)) }

func TestDelta(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"the first request has type, node, a wildcard and no nonce": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			watch(c, clusters(nil), ads.Wildcard)
			r := next(t, s.deltas).request(t)
			is(t, "type", r.GetTypeUrl(), cds)
			is(t, "node", r.GetNode().GetId(), node().GetId())
			equal(t, "names", r.GetResourceNamesSubscribe(), "*")
			is(t, "nonce", r.GetResponseNonce(), "")
			is(t, "versions", len(r.GetInitialResourceVersions()), 0)
		},
		"a response is acknowledged with its nonce and without names": func(t *testing.T) {
			k, v, _ := askingDelta(t)
			k.answer(deltaOf(cds, "n", nil, a1()))
			is(t, "error", bare(t, k, "n").GetErrorDetail() == nil, true)
			e := v.one(t)
			equal(t, "changed", changed(e), "a")
			is(t, "complete", e.Complete, true)
		},
		"a bad resource is rejected, the others are applied": func(t *testing.T) {
			k, v, s := askingDelta(t)
			k.answer(deltaOf(cds, "n", nil, &discoveryv3.Resource{Name: "a", Resource: garbage(cds)}, b1()))
			r := bare(t, k, "n")
			is(t, "code", codes.Code(r.GetErrorDetail().GetCode()), codes.InvalidArgument)
			is(t, "named", strings.Contains(r.GetErrorDetail().GetMessage(), `"a"`), true)
			e := v.one(t)
			equal(t, "changed", changed(e), "b")
			equal(t, "invalid", keys(e.Invalid), "a")
			is(t, "shown", s.client.State().Types[cds].Nacks, 1)
		},
		"names are added and removed without a nonce, only the difference": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			_, sub := watch(c, endpoints(), "a", "b")
			k := next(t, s.deltas)
			equal(t, "first", k.request(t).GetResourceNamesSubscribe(), "a", "b")
			k.answer(deltaOf(eds, "1", nil, wrap("a", "", load("a")), wrap("b", "", load("b"))))
			bare(t, k, "1")
			sub.Set("b", "c")
			r := k.request(t)
			equal(t, "subscribe", r.GetResourceNamesSubscribe(), "c")
			equal(t, "unsubscribe", r.GetResourceNamesUnsubscribe(), "a")
			is(t, "nonce", r.GetResponseNonce(), "")
			k.silent(t)
		},
		"a rejection and a change of names are two messages": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			var sub *ads.Subscription[string]
			sub = ads.Subscribe(c, endpoints(), func(ads.Event[string]) { sub.Watch("b") })
			sub.Watch("a")
			k := next(t, s.deltas)
			k.request(t)
			k.answer(deltaOf(eds, "1", nil, &discoveryv3.Resource{Name: "a", Resource: garbage(eds)}))
			is(t, "rejected", bare(t, k, "1").GetErrorDetail() != nil, true)
			r := k.request(t)
			is(t, "error next to names", r.GetErrorDetail() == nil, true)
			equal(t, "names", r.GetResourceNamesSubscribe(), "b")
		},
		"a removed resource is reported, an unknown name is ignored": func(t *testing.T) {
			k, v, _ := askingDelta(t)
			k.answer(deltaOf(cds, "1", nil, a1(), b1()))
			v.heard()
			k.answer(deltaOf(cds, "2", []string{"a", "never seen"}))
			e := v.one(t)
			equal(t, "removed", e.Removed, "a")
		},
		"a new stream requests all names with the cached versions, and unchanged resources are not reported": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			w, _ := watch(c, endpoints(), "a")
			k := next(t, s.deltas)
			k.request(t)
			k.request(t)
			all := func() *discoveryv3.DeltaDiscoveryResponse {
				return deltaOf(cds, "1", nil, a1(), wrap("b", "v7", cluster("b", 1)))
			}
			k.answer(all())
			k.answer(deltaOf(eds, "2", nil, wrap("a", "v3", load("a", "10.0.0.1"))))
			v.heard()
			w.heard()
			k.close(nil)
			in(2 * time.Second)
			k = next(t, s.deltas)
			r := k.request(t)
			equal(t, "names", r.GetResourceNamesSubscribe(), "*")
			is(t, "held", fmt.Sprint(r.GetInitialResourceVersions()), "map[a: b:v7]")
			is(t, "node", r.GetNode() != nil, true)
			r = k.request(t)
			equal(t, "names", r.GetResourceNamesSubscribe(), "a")
			is(t, "held", fmt.Sprint(r.GetInitialResourceVersions()), "map[a:v3]")
			k.answer(all())
			k.answer(deltaOf(eds, "2", nil, wrap("a", "v3", load("a", "10.0.0.1"))))
			e := v.one(t)
			equal(t, "changed", changed(e))
			equal(t, "confirmed", e.Confirmed, "a", "b")
			is(t, "complete", e.Complete, true)
			f := w.one(t)
			equal(t, "changed", changed(f))
			equal(t, "confirmed", f.Confirmed, "a")
		},
		"endpoints that the server does not confirm after a reconnect are unknown after 15 s, and never removed": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			v, _ := watch(c, endpoints(), "a", "b")
			k := next(t, s.deltas)
			k.request(t)
			k.answer(deltaOf(eds, "1", nil, wrap("a", "", load("a", "10.0.0.1")), wrap("b", "", load("b", "10.0.0.1"))))
			v.heard()
			k.close(nil)
			in(2 * time.Second)
			k = next(t, s.deltas)
			k.answer(deltaOf(eds, "1", nil, wrap("a", "", load("a", "10.0.0.1"))))
			equal(t, "confirmed", v.one(t).Confirmed, "a")
			in(16 * time.Second)
			e := v.one(t)
			equal(t, "unknown", keys(e.Unknown), "b")
			equal(t, "removed", e.Removed)
			equal(t, "held", v.names(), "a", "b")
			in(time.Hour)
			for _, e := range v.heard() {
				equal(t, "removed", e.Removed)
			}
		},
		"a server that knows the versions may omit unchanged resources": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			w, _ := watch(c, endpoints(), "a")
			k := next(t, s.deltas)
			k.answer(deltaOf(cds, "1", nil, wrap("a", "v1", cluster("a", 1)), wrap("b", "v1", cluster("b", 1))))
			k.answer(deltaOf(eds, "2", nil, wrap("a", "v1", load("a"))))
			v.heard()
			w.heard()
			k.close(nil)
			in(2 * time.Second)
			k = next(t, s.deltas)
			is(t, "held", fmt.Sprint(k.request(t).GetInitialResourceVersions()), "map[a:v1 b:v1]")
			k.answer(deltaOf(cds, "1", []string{"b"}))
			e := v.one(t)
			equal(t, "confirmed", e.Confirmed, "a")
			equal(t, "removed", e.Removed, "b")
			is(t, "complete", e.Complete, true)
			in(16 * time.Second)
			f := w.one(t)
			equal(t, "confirmed", f.Confirmed, "a")
			equal(t, "unknown", keys(f.Unknown))
		},
		"a server that repeats the presented versions does not compare them, and omitted resources are removed": func(t *testing.T) {
			k, v, s := askingDelta(t)
			k.answer(deltaOf(cds, "1", nil, wrap("a", "v1", cluster("a", 1)), wrap("b", "v1", cluster("b", 1))))
			v.heard()
			k.close(nil)
			in(2 * time.Second)
			k = next(t, s.deltas)
			k.answer(deltaOf(cds, "1", nil, wrap("a", "v1", cluster("a", 1))))
			e := v.one(t)
			equal(t, "removed", e.Removed, "b")
		},
		"a server without delta is spoken to in the state of the world at once": func(t *testing.T) {
			s, n := istiod(t)
			s.WithoutDelta()
			s.Set(cluster("a", 1))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			e := v.one(t)
			equal(t, "changed", changed(e), "a")
			is(t, "mode", c.State().Mode, ads.StateOfTheWorld)
		},
		"a server that refuses both variants is reported, with the usual waits": func(t *testing.T) {
			s, n := istiod(t)
			s.Refuse(status.Error(codes.Unimplemented, "not found"))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			is(t, "reported", v.one(t).Disconnected != nil, true)
			s.Refuse(nil)
			s.Set(cluster("a", 1))
			in(3 * time.Second)
			equal(t, "held", v.names(), "a")
		},
		"an envelope and a resource of two names are rejected": func(t *testing.T) {
			k, v, _ := askingDelta(t)
			k.answer(deltaOf(cds, "1", nil, wrap("a", "", cluster("other", 1)), b1()))
			is(t, "rejected", strings.Contains(bare(t, k, "1").GetErrorDetail().GetMessage(), `"other"`), true)
			equal(t, "held", v.names(), "b")
			v.heard()
			k.answer(deltaOf(cds, "2", nil, wrap("a", "", cluster("b", 1)))) // bytes that are known under another name
			is(t, "rejected", bare(t, k, "2").GetErrorDetail() != nil, true)
			equal(t, "held", v.names(), "b")
		},
		"a heartbeat is not a removal": func(t *testing.T) {
			k, v, _ := askingDelta(t)
			k.answer(deltaOf(cds, "1", nil, a1()))
			v.heard()
			bare(t, k, "1")
			k.answer(deltaOf(cds, "2", nil, wrap("a", "", nil)))
			is(t, "error", bare(t, k, "2").GetErrorDetail() == nil, true)
			v.none(t)
			equal(t, "held", v.names(), "a")
		},
		"a name removed that the wildcard covers stays until the server answers": func(t *testing.T) {
			k, v, s := askingDelta(t)
			s.sub.Watch("a")
			equal(t, "subscribe", k.request(t).GetResourceNamesSubscribe(), "a")
			k.answer(deltaOf(cds, "1", nil, a1(), b1()))
			bare(t, k, "1")
			v.heard()
			s.sub.Unwatch("a")
			equal(t, "unsubscribe", k.request(t).GetResourceNamesUnsubscribe(), "a")
			v.none(t)
			k.answer(deltaOf(cds, "2", []string{"a"}))
			equal(t, "removed", v.one(t).Removed, "a")
		},
		"a type that was unsubscribed from is never rejected": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			v, sub := watch(c, endpoints(), "a")
			k := next(t, s.deltas)
			k.request(t)
			k.answer(deltaOf(eds, "1", nil, wrap("a", "", load("a"))))
			bare(t, k, "1")
			v.heard()
			sub.Set()
			equal(t, "unsubscribe", k.request(t).GetResourceNamesUnsubscribe(), "a")
			k.answer(deltaOf(eds, "2", nil, &discoveryv3.Resource{Name: "a", Resource: garbage(eds)}))
			k.silent(t)
			v.none(t)
		},
		"a response of a type that was not requested is ignored": func(t *testing.T) {
			k, v, _ := askingDelta(t)
			k.answer(deltaOf(eds, "1", nil, wrap("a", "", load("a"))))
			k.silent(t)
			k.answer(deltaOf(cds, "2", nil, a1()))
			bare(t, k, "2")
			equal(t, "held", v.names(), "a")
		},
		"a name twice in one response is rejected": func(t *testing.T) {
			k, v, _ := askingDelta(t)
			k.answer(deltaOf(cds, "1", nil, a1(), wrap("a", "", cluster("a", 2)), b1()))
			is(t, "rejected", strings.Contains(bare(t, k, "1").GetErrorDetail().GetMessage(), "duplicate"), true)
			equal(t, "held", v.names(), "b")
		},
		"a name that does not exist is reported as removed, and may come later": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			v, _ := watch(c, endpoints(), "a")
			k := next(t, s.deltas)
			k.answer(deltaOf(eds, "1", []string{"a"}))
			equal(t, "removed", v.one(t).Removed, "a")
			in(time.Minute)
			v.none(t)
			k.answer(deltaOf(eds, "2", nil, wrap("a", "", load("a"))))
			equal(t, "changed", changed(v.one(t)), "a")
		},
		"names beyond what istiod accepts in one request are sent in several, after a reconnect too": func(t *testing.T) {
			s, n := istiod(t)
			var names []string
			var all []proto.Message
			for i := range 12_000 { // 4.8 MB
				names = append(names, fmt.Sprintf("outbound|80||%0387d", i))
				all = append(all, load(names[i]), cluster(names[i], 1))
			}
			s.Set(all...)
			w := &witness{}
			c := connect(t, n, w.observe)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			u, _ := watch(c, endpoints(), names...)
			in(time.Second)
			equal(t, "clusters", v.names(), names...)
			equal(t, "endpoints", u.names(), names...)
			before := len(s.Requests(eds))
			s.Drop(nil)
			in(20 * time.Second)
			for _, e := range u.heard() {
				is(t, "removed or unknown", len(e.Removed)+len(e.Unknown), 0)
			}
			for _, e := range v.heard() {
				is(t, "removed or unknown", len(e.Removed)+len(e.Unknown), 0)
			}
			is(t, "several", before > 2 && len(s.Requests(eds)) > before+2, true)
			is(t, "streams", s.Streams(), 2)
			is(t, "refused", len(w.failures()), 0)
			obedient(t, s)
		},
		"a wildcard added to other names is complete once the server had time to answer": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			v, sub := watch(c, clusters(nil), "a")
			k := next(t, s.deltas)
			k.answer(deltaOf(cds, "1", nil, a1()))
			sub.Watch(ads.Wildcard)
			synctest.Wait()
			k.answer(deltaOf(cds, "2", nil, a1())) // may be an answer to either
			for _, e := range v.heard() {
				is(t, "complete", e.Complete, false)
			}
			k.answer(deltaOf(cds, "3", nil, b1()))
			v.heard()
			in(16 * time.Second)
			is(t, "complete", v.one(t).Complete, true)
			equal(t, "held", v.names(), "a", "b")
		},
		"a wildcard added before the names are answered does not treat their answer as whole": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			v, sub := watch(c, clusters(nil), "a", "b")
			k := next(t, s.deltas)
			k.answer(deltaOf(cds, "1", nil, a1(), b1()))
			k.close(nil)
			in(2 * time.Second)
			k = next(t, s.deltas)
			k.request(t)
			sub.Watch(ads.Wildcard)
			synctest.Wait()
			v.heard()
			k.answer(deltaOf(cds, "1", nil, a1())) // requested by name
			e := v.one(t)
			equal(t, "removed", e.Removed)
			is(t, "complete", e.Complete, false)
			equal(t, "held", v.names(), "a", "b")
		},
		"after a complete response with a nameless resource, no incremental response is taken for a complete one": func(t *testing.T) {
			k, v, s := askingDelta(t)
			k.answer(deltaOf(cds, "1", nil, a1(), b1()))
			k.close(nil)
			in(2 * time.Second)
			k = next(t, s.deltas)
			k.answer(deltaOf(cds, "1", nil, a1(), &discoveryv3.Resource{Resource: garbage(cds)})) // may be b
			k.answer(deltaOf(cds, "2", nil, wrap("c", "", cluster("c", 1))))
			equal(t, "held", v.names(), "a", "b", "c")
		},
		"a resource that was not requested is ignored, even if it is invalid": func(t *testing.T) {
			s, n := scripted(t)
			c := connect(t, n)
			v, sub := watch(c, clusters(nil), "a")
			k := next(t, s.deltas)
			k.request(t)
			k.answer(deltaOf(cds, "1", nil, a1(), wrap("z", "v1", cluster("z", 1)), &discoveryv3.Resource{Name: "y", Resource: garbage(cds)}))
			is(t, "error", bare(t, k, "1").GetErrorDetail() == nil, true)
			equal(t, "changed", changed(v.one(t)), "a")
			is(t, "held", c.State().Types[cds].Resources, 1)
			sub.Watch("z")
			equal(t, "requested", k.request(t).GetResourceNamesSubscribe(), "z")
			v.none(t) // what came unasked is not known
			k.close(nil)
			in(2 * time.Second)
			is(t, "held", fmt.Sprint(next(t, s.deltas).request(t).GetInitialResourceVersions()), "map[a:]")
		},
		"a wildcard that nothing is answered to is unknown, and nothing is removed": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			c := connect(t, n)
			v, sub := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			v.heard()
			s.Mute()
			s.Drop(istiodfake.ErrNotReady)
			in(20 * time.Second)
			e := v.one(t)
			equal(t, "unknown", keys(e.Unknown), "*")
			equal(t, "held", v.names(), "a")
			sub.Unwatch(ads.Wildcard)
			sub.Watch(ads.Wildcard)
			synctest.Wait()
			events := v.heard()
			is(t, "reported again", slices.ContainsFunc(events, func(e ads.Event[int64]) bool { return len(e.Unknown) == 1 }), true)
			s.Unmute()
			synctest.Wait()
			equal(t, "confirmed", v.one(t).Confirmed, "a")
		},
	})
}
