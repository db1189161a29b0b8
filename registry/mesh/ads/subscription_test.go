package ads_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

func TestSubscriptions(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a handler may subscribe, watch and unwatch": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1), load("a", "10.0.0.1"))
			c := connect(t, n)
			inner := &view[string]{held: map[string]string{}}
			ads.Subscribe(c, clusters(nil), func(e ads.Event[int64]) {
				for _, name := range changed(e) {
					sub := ads.Subscribe(c, endpoints(), inner.observe)
					sub.Watch(name, "other")
					sub.Unwatch("other")
				}
			}).Watch(ads.Wildcard)
			synctest.Wait()
			equal(t, "held", inner.names(), "a")
		},
		"a removal is reported once to a name and the wildcard": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard, "a")
			synctest.Wait()
			v.heard()
			s.Remove(cds, "a")
			synctest.Wait()
			equal(t, "removed", v.one(t).Removed, "a")
		},
		"a removed name is not requested any more": func(t *testing.T) {
			s, n := istiod(t)
			c := connect(t, n)
			_, sub := watch(c, endpoints(), "a", "b", "c")
			synctest.Wait()
			equal(t, "requested", s.Connections()[0].Watches[eds], "a", "b", "c")
			sub.Unwatch("a")
			synctest.Wait()
			equal(t, "requested", s.Connections()[0].Watches[eds], "b", "c")
			sub.Set()
			synctest.Wait()
			is(t, "requested", len(s.Connections()[0].Watches[eds]), 0)
			for _, r := range s.Requests(eds) {
				is(t, "empty names", slices.Contains(r.Subscribe, ""), false)
			}
			obedient(t, s)
		},
		"a name that was removed and is added again is reported again": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(load("a", "10.0.0.1"))
			c := connect(t, n)
			v, sub := watch(c, endpoints(), "a")
			synctest.Wait()
			sub.Unwatch("a")
			synctest.Wait()
			v.heard()
			sub.Watch("a")
			synctest.Wait()
			equal(t, "changed", changed(v.one(t)), "a")
		},
		"a name removed and added again before the server hears of it is reported": func(t *testing.T) {
			for name, m := range variants() {
				for _, all := range []string{"a", ads.Wildcard} {
					s, n := istiod(t)
					s.Set(cluster("a", 1))
					c := connect(t, n, speaking(m))
					v, sub := watch(c, clusters(nil), all)
					synctest.Wait()
					before := len(s.Requests(cds))
					v.heard()
					sub.Set()
					sub.Watch(all)
					synctest.Wait()
					equal(t, name, changed(v.one(t)), "a")
					is(t, "requests", len(s.Requests(cds)) <= before+2, true)
					s.Set(cluster("a", 2))
					synctest.Wait()
					equal(t, name, changed(v.one(t)), "a")
					obedient(t, s)
				}
			}
		},
		"names that change as fast as the server pushes end as desired": func(t *testing.T) {
			for _, m := range variants() {
				s, n := istiod(t)
				c := connect(t, n, speaking(m))
				_, sub := watch(c, endpoints(), "seed")
				var last []string
				random := rand.New(rand.NewPCG(1, 1))
				for i := range 200 {
					last = nil
					for range 1 + random.IntN(20) {
						last = append(last, fmt.Sprintf("c%02d", random.IntN(40)))
					}
					s.Set(load(fmt.Sprintf("c%02d", i%40), fmt.Sprintf("10.0.0.%d", i)))
					sub.Set(last...)
				}
				in(time.Second)
				slices.Sort(last)
				equal(t, "requested", s.Connections()[0].Watches[eds], slices.Compact(last)...)
				obedient(t, s)
			}
		},
		"bytes that did not change are not decoded again": func(t *testing.T) {
			for name, m := range variants() {
				s, n := istiod(t)
				s.Set(cluster("a", 1), cluster("b", 1))
				var decoded []string
				c := connect(t, n, speaking(m))
				watch(c, clusters(&decoded), ads.Wildcard)
				synctest.Wait()
				s.Set(cluster("b", 2))
				synctest.Wait()
				s.Push()
				synctest.Wait()
				s.Drop(nil)
				in(2 * time.Second)
				equal(t, name, decoded, "a", "b", "b")
			}
		},
		"state can be read at any time": func(t *testing.T) {
			s, n := istiod(t)
			c := connect(t, n)
			_, sub := watch(c, clusters(nil), ads.Wildcard)
			var readers sync.WaitGroup
			for range 8 {
				readers.Go(func() {
					for range 200 {
						_ = c.State().Types[cds].Version
					}
				})
			}
			for i := range 50 {
				s.Set(cluster("a", i))
			}
			readers.Wait()
			synctest.Wait()
			is(t, "resources", c.State().Types[cds].Resources, 1)
			is(t, "connected", c.State().Connected, true)
			sub.Set()
		},
		"an empty response to the wildcard is reported as removals": func(t *testing.T) {
			for _, m := range variants() {
				s, n := istiod(t)
				s.Set(cluster("a", 1))
				c := connect(t, n, speaking(m))
				v, _ := watch(c, clusters(nil), ads.Wildcard)
				synctest.Wait()
				v.heard()
				s.Withhold(cds, "a")
				s.Drop(nil)
				in(2 * time.Second)
				e := v.one(t)
				equal(t, "removed", e.Removed, "a")
			}
		},
	})
}

func TestConcurrentCalls(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := istiodfake.NewServer()
	s.Set(cluster("a", 1), load("a", "10.0.0.1"))
	address, stop := listen(t, s)
	defer stop()
	c, err := ads.New(ads.Options{Address: address, Node: node()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	heard := make(chan ads.Event[string], 1)
	sub := ads.Subscribe(c, endpoints(), func(e ads.Event[string]) {
		if slices.Contains(changed(e), "last") {
			heard <- e
		}
	})
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 500 {
				sub.Watch("a")
				sub.Unwatch("a")
			}
		})
	}
	group.Wait()
	s.Set(load("last", "10.0.0.1"))
	sub.Watch("last")
	select {
	case <-heard:
	case <-time.After(10 * time.Second):
		t.Fatal("no event of a name after ten thousand calls, want one")
	}
	obedient(t, s)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestEndsWithoutLeak(t *testing.T) {
	for name, m := range variants() {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			s := istiodfake.NewServer()
			s.Set(cluster("a", 1))
			address, stop := listen(t, s)
			defer stop()
			for range 5 {
				c, err := ads.New(ads.Options{Address: address, Node: node(), Mode: m})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				heard := make(chan struct{}, 10)
				sub := ads.Subscribe(c, clusters(nil), func(ads.Event[int64]) { heard <- struct{}{} })
				sub.Watch(ads.Wildcard)
				go func() {
					<-heard
					cancel()
				}()
				if err := c.Run(ctx); err != nil {
					t.Fatal(err)
				}
				sub.Watch("later") // does nothing any more
				is(t, "connected", c.State().Connected, false)
			}
		})
	}
}

// TestSubscription_FailedStart: the bubble waits for every goroutine.
func TestSubscription_FailedStart(t *testing.T) {
	failures := map[string]func(*istiodfake.Server, *network){
		"unreachable":      func(_ *istiodfake.Server, n *network) { n.cut(errors.New("no route")) },
		"it is not ready":  func(s *istiodfake.Server, _ *network) { s.Refuse(istiodfake.ErrNotReady) },
		"nothing is heard": func(_ *istiodfake.Server, n *network) { n.freeze() },
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			inBoth(t, func(t *testing.T, m ads.Mode) {
				s, n := istiod(t)
				fail(s, n)
				c, err := ads.New(ads.Options{Address: "istiod.test:15010", Node: node(), Dialer: n.dial, Mode: m})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx) }()
				v, sub := watch(c, clusters(nil), ads.Wildcard)
				in(time.Minute)
				cancel()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				sub.Set()
				v.heard()
				in(0) // gRPC ends its calls in flight concurrently with Close
				_, open := n.counts()
				is(t, "connections open", open, 0)
				s.Refuse(nil)
				n.heal()
				s.Set(cluster("a", 1))
				in(time.Minute)
				v.none(t)
				is(t, "watched by", len(s.Connections()), 0)
			})
		})
	}
}

func TestEndsWhileConnecting(t *testing.T) {
	defer goleak.VerifyNone(t)
	hole, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	c, err := ads.New(ads.Options{Address: hole.Addr().String(), Node: node()})
	if err != nil {
		t.Fatal(err)
	}
	ads.Subscribe(c, clusters(nil), func(ads.Event[int64]) {}).Watch(ads.Wildcard)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	conn, err := hole.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// listen serves the fake over TCP.
func listen(t *testing.T, s *istiodfake.Server) (address string, stop func()) {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(istiodfake.ServerOptions()...)
	s.Register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(lis)
	}()
	return lis.Addr().String(), func() {
		g.Stop()
		<-done
	}
}

func TestOptions_Invalid(t *testing.T) {
	for name, c := range map[string]struct {
		o    ads.Options
		says string
	}{
		"no address":                    {ads.Options{}, "Address"},
		"unknown mode":                  {ads.Options{Address: "a:1", Mode: 7}, "Mode"},
		"negative limit":                {ads.Options{Address: "a:1", MaxReceive: -1}, "MaxReceive"},
		"certificate without key":       {ads.Options{Address: "a:1", Credentials: ads.Credentials{TLS: &ads.TLS{CertFile: "x"}}}, "KeyFile"},
		"token in plaintext":            {ads.Options{Address: "istiod:15010", Credentials: ads.Credentials{TokenFile: "/t"}}, "plaintext"},
		"token to another host":         {ads.Options{Address: "10.0.0.1:15010", Credentials: ads.Credentials{TokenFile: "/t"}}, "insecure: true"},
		"token to a like-loopback name": {ads.Options{Address: "127.0.0.1.example.com:15010", Credentials: ads.Credentials{TokenFile: "/t"}}, "plaintext"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ads.New(c.o); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want one with %q", err, c.says)
			}
		})
	}
	for _, address := range []string{"127.0.0.1:1", "[::1]:1", "localhost:1", "unix:///run/x", "dns:///127.0.0.9:1"} {
		if _, err := ads.New(ads.Options{Address: address, Credentials: ads.Credentials{TokenFile: "/t"}}); err != nil {
			t.Errorf("New(%s) = %v, want nil", address, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		identity ads.Identity
		says     string
	}{
		"no address":   {ads.Identity{Type: "router", Name: "a", Namespace: "b"}, "ip"},
		"no name":      {ads.Identity{Type: "router", IP: "::1", Namespace: "b"}, "node: name: missing"},
		"no namespace": {ads.Identity{Type: "router", IP: "::1", Name: "a"}, "node: namespace: missing"},
		"a separator":  {ads.Identity{Type: "router", IP: "::1", Name: "a~b", Namespace: "b"}, "~"},
		"a bad label":  {ads.Identity{Type: "router", IP: "::1", Name: "a", Namespace: "b", Labels: map[string]any{"x": struct{}{}}}, "labels"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.identity.Node(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want one with %q", err, c.says)
			}
		})
	}
	n, err := ads.Identity{Type: "sidecar", IP: "fd00::1", Name: "p", Namespace: "ns", Domain: "mesh.local", Labels: map[string]any{"k": "v"}}.Node()
	if err != nil {
		t.Fatal(err)
	}
	is(t, "id", n.GetId(), "sidecar~fd00::1~p.ns~ns.svc.mesh.local")
	is(t, "label", n.GetMetadata().GetFields()["LABELS"].GetStructValue().GetFields()["k"].GetStringValue(), "v")
	is(t, "copied", proto.Equal(n, proto.CloneOf(n)), true)
}
