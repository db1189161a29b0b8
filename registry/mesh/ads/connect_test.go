package ads_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// witness keeps observations.
type witness struct {
	mu   sync.Mutex
	seen []ads.Observation
	at   []time.Time // of each attempt that failed
}

// waited checks that each wait took as long as was said, and lies in a fifth
// round its step, and returns the waits.
func (w *witness) waited(t *testing.T) []time.Duration {
	t.Helper()
	w.mu.Lock()
	at := slices.Clone(w.at)
	w.mu.Unlock()
	var waits []time.Duration
	want := float64(time.Second)
	for i, o := range w.failures() {
		low, high := time.Duration(min(want*0.8, float64(24*time.Second))), time.Duration(min(want*1.2, float64(30*time.Second)))
		if o.Delay < low || o.Delay > high {
			t.Errorf("wait %d: %s, want between %s and %s", i, o.Delay, low, high)
		}
		if i+1 < len(at) {
			is(t, fmt.Sprintf("wait %d took", i), at[i+1].Sub(at[i]), o.Delay)
		}
		waits = append(waits, o.Delay)
		want *= 1.6
	}
	return waits
}

func (w *witness) observe(o *ads.Options) {
	o.Observe = func(n ads.Observation) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, n)
		if n.Kind == ads.ConnectFailed {
			w.at = append(w.at, time.Now())
		}
	}
}

// failures returns the attempts that failed.
func (w *witness) failures() []ads.Observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	var some []ads.Observation
	for _, n := range w.seen {
		if n.Kind == ads.ConnectFailed {
			some = append(some, n)
		}
	}
	return some
}

func TestConnecting(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"waits grow by 1.6, a fifth more or less, up to the cap, and restart after a response": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			s.Refuse(istiodfake.ErrNotReady)
			w := &witness{}
			c := connect(t, n, w.observe)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			in(5 * time.Minute)
			failures := w.waited(t)
			is(t, "enough attempts", len(failures) > 10, true)
			is(t, "attempts shown", c.State().Attempts, len(failures))
			s.Refuse(nil)
			in(31 * time.Second)
			equal(t, "held", v.names(), "a")
			is(t, "attempts shown", c.State().Attempts, 0)
			s.Refuse(istiodfake.ErrNotReady)
			s.Drop(istiodfake.ErrNotReady)
			in(time.Second)
			is(t, "first wait again", w.failures()[len(failures)].Delay <= 1200*time.Millisecond, true)
		},
		"each stream has a connection of its own": func(t *testing.T) {
			for name, m := range variants() {
				s, n := istiod(t)
				s.Set(cluster("a", 1))
				c := connect(t, n, speaking(m))
				v, _ := watch(c, clusters(nil), ads.Wildcard)
				synctest.Wait()
				expect := func(epoch, connection int) {
					t.Helper()
					e := v.one(t)
					dials, open := n.counts()
					is(t, name+": stream", e.Epoch, epoch)
					is(t, name+": connection", e.Connection, connection)
					is(t, name+": dialled", dials, connection)
					is(t, name+": open", open, 1)
				}
				expect(1, 1)
				c.Redial()
				in(2 * time.Second)
				expect(2, 2)
				s.Drop(nil)
				in(2 * time.Second)
				expect(3, 3)
			}
		},
		"a server that is not ready is retried until it is": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			s.Refuse(istiodfake.ErrNotReady)
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			in(30 * time.Second)
			is(t, "reported once", strings.Contains(v.one(t).Disconnected.Error(), "not ready to serve"), true)
			s.Refuse(nil)
			in(31 * time.Second)
			equal(t, "held", v.names(), "a")
			is(t, "error shown", c.State().Err, nil)
		},
		"rejected credentials are reported with the remedy, and retried slowly": func(t *testing.T) {
			for _, m := range variants() {
				for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied} {
					s, n := istiod(t)
					s.Refuse(status.Error(code, "authentication failure"))
					w := &witness{}
					c := connect(t, n, w.observe, speaking(m))
					v, _ := watch(c, clusters(nil), ads.Wildcard)
					in(5 * time.Minute)
					is(t, "reported", errors.Is(v.one(t).Disconnected, ads.ErrDenied), true)
					is(t, "shown", errors.Is(c.State().Err, ads.ErrDenied), true)
					attempts := w.failures()
					is(t, "slowly but for ever", len(attempts) > 8 && len(attempts) < 15, true)
				}
			}
		},
		"a rotated token is read at the next attempt, without its white space": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			var got []string
			s.Authorize(func(ctx context.Context) error {
				md, _ := metadata.FromIncomingContext(ctx)
				got = append(got, md.Get("authorization")...)
				if got[len(got)-1] == "Bearer good" {
					return nil
				}
				return status.Error(codes.Unauthenticated, "authentication failure")
			})
			file := filepath.Join(t.TempDir(), "token")
			write(t, file, " expired\n")
			c := connect(t, n, func(o *ads.Options) {
				o.Credentials = ads.Credentials{TokenFile: file, Insecure: true}
			})
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			is(t, "first", got[0], "Bearer expired")
			write(t, file, "good\n\n")
			in(31 * time.Second)
			equal(t, "held", v.names(), "a")
			write(t, file, "expired again")
			in(10 * time.Minute)
			is(t, "still connected: a token counts when the stream opens", c.State().Connected, true)
		},
		"a rate limit is met with waits": func(t *testing.T) {
			for _, m := range variants() {
				s, n := istiod(t)
				s.Set(cluster("a", 1))
				s.Refuse(istiodfake.ErrRateLimit)
				w, other := &witness{}, &witness{}
				c := connect(t, n, w.observe, speaking(m))
				v, _ := watch(c, clusters(nil), ads.Wildcard)
				watch(connect(t, n, other.observe, speaking(m)), clusters(nil), ads.Wildcard)
				in(30 * time.Second)
				waits := w.waited(t)
				is(t, "attempts", len(waits) > 4, true)
				is(t, "two clients wait alike", slices.Equal(waits, other.waited(t)), false)
				is(t, "reported", strings.Contains(v.one(t).Disconnected.Error(), "rate limit"), true)
				s.Refuse(nil)
				in(31 * time.Second)
				equal(t, "held", v.names(), "a")
			}
		},
		"a missing node is reported": func(t *testing.T) {
			_, n := istiod(t)
			c := connect(t, n, func(o *ads.Options) { o.Node = nil })
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			is(t, "reported", strings.Contains(v.one(t).Disconnected.Error(), "missing node information"), true)
		},
		"an idle connection is kept for an hour of pings": func(t *testing.T) {
			s, n := istiod(t)
			c := connect(t, n)
			watch(c, clusters(nil), ads.Wildcard)
			in(time.Hour)
			is(t, "connected", c.State().Connected, true)
			is(t, "streams", s.Streams(), 1)
			is(t, "ping", ads.KeepaliveTime >= 15*time.Second, true)
		},
		"a half-open connection is found within 30 s": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			v.heard()
			n.freeze()
			in(31 * time.Second)
			is(t, "connected", c.State().Connected, false)
			equal(t, "held", v.names(), "a")
			for _, e := range v.heard() {
				equal(t, "removed", e.Removed)
			}
			n.heal()
			in(31 * time.Second)
			events := v.heard()
			equal(t, "confirmed", events[len(events)-1].Confirmed, "a")
		},
		"a stream that is reset every half hour removes and changes nothing": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1), load("a", "10.0.0.1"))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			w, _ := watch(c, endpoints(), "a")
			synctest.Wait()
			v.heard()
			w.heard()
			for range 4 {
				in(30 * time.Minute)
				s.Drop(nil)
			}
			in(2 * time.Second)
			for _, e := range v.heard() {
				is(t, "news", len(e.Changed)+len(e.Removed)+len(e.Unknown), 0)
			}
			for _, e := range w.heard() {
				is(t, "news", len(e.Changed)+len(e.Removed)+len(e.Unknown), 0)
			}
			is(t, "streams", s.Streams(), 5)
			is(t, "epoch", c.State().Epoch, 5)
		},
		"a response beyond the limit is reported clearly, tried again slowly, and the last state stays": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1))
			w := &witness{}
			c := connect(t, n, w.observe, func(o *ads.Options) { o.MaxReceive = 1 << 20 })
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			v.heard()
			big := cluster("a", 2)
			big.AltStatName = strings.Repeat("x", 2<<20)
			s.Set(big)
			in(5 * time.Minute)
			e := v.one(t)
			is(t, "reported", errors.Is(e.Disconnected, ads.ErrTooLarge), true)
			is(t, "clearly", strings.Contains(e.Disconnected.Error(), "1048576 bytes: raise the receive limit"), true)
			equal(t, "held", v.names(), "a")
			is(t, "slowly", len(w.failures()) < 15, true)
		},
		"a request above the server's limit is reported as such, retried slowly, and the last resources stay": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(load("a", "10.0.0.1"))
			w := &witness{}
			c := connect(t, n, w.observe, speaking(ads.StateOfTheWorld))
			v, sub := watch(c, endpoints(), "a")
			synctest.Wait()
			v.heard()
			var names []string
			for i := range 12_000 { // 4.8 MB
				names = append(names, fmt.Sprintf("outbound|80||%0387d", i))
			}
			sub.Watch(names...)
			in(2 * time.Minute)
			e := v.one(t)
			is(t, "reported", errors.Is(e.Disconnected, ads.ErrRequestTooLarge), true)
			is(t, "reported as ours", errors.Is(e.Disconnected, ads.ErrTooLarge), false)
			is(t, "with the setting", strings.Contains(e.Disconnected.Error(), "ISTIO_GPRC_MAXRECVMSGSIZE"), true)
			equal(t, "held", v.names(), "a")
			is(t, "slowly", len(w.failures()) < 8, true)
			sub.Unwatch(names...)
			in(31 * time.Second)
			is(t, "connected", c.State().Connected, true)
		},
		"a response of 41 MiB fits the default": func(t *testing.T) {
			s, n := istiod(t)
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			var all []proto.Message
			for i := range 41 {
				big := cluster(fmt.Sprintf("c%02d", i), 1)
				big.AltStatName = strings.Repeat("x", 1<<20)
				all = append(all, big)
			}
			s.Set(all...)
			in(time.Second)
			is(t, "held", len(v.names()), 41)
			is(t, "streams", s.Streams(), 1)
		},
		"a connection that the server ends for its age is replaced silently": func(t *testing.T) {
			s := istiodfake.NewServer()
			s.Set(cluster("a", 1))
			n := serve(t, func(g *grpc.Server) { s.Register(g) }, append(istiodfake.ServerOptions(),
				grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 10 * time.Minute, MaxConnectionAgeGrace: time.Second}))...)
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			v.heard()
			in(time.Hour)
			is(t, "streams", s.Streams() >= 5, true)
			for _, e := range v.heard() {
				is(t, "news", len(e.Changed)+len(e.Removed)+len(e.Unknown), 0)
				is(t, "error", e.Disconnected, nil)
			}
			_, open := n.counts()
			is(t, "connections open", open, 1)
		},
		"bytes with random mutations cost neither another resource nor the stream": func(t *testing.T) {
			for name, m := range variants() {
				s, n := istiod(t)
				s.Set(cluster("a", 1), cluster("good", 1))
				random := rand.New(rand.NewPCG(1, 1))
				s.Alter(func(a *istiodfake.Answer) {
					body := proto.CloneOf(a.Resources[0].GetResource())
					for range 1 + random.IntN(3) {
						body.Value[random.IntN(len(body.GetValue()))] = byte(random.IntN(256))
					}
					a.Resources[0] = &discoveryv3.Resource{Name: a.Resources[0].GetName(), Resource: body}
				})
				c := connect(t, n, speaking(m))
				v, _ := watch(c, clusters(nil), ads.Wildcard)
				for range 300 {
					s.Push()
					synctest.Wait()
					is(t, name, slices.Contains(v.names(), "good"), true)
				}
				is(t, "streams", s.Streams(), 1)
				s.Alter(nil)
				s.Push()
				synctest.Wait()
				equal(t, "held", v.names(), "a", "good")
				is(t, "error shown", c.State().Types[cds].Err, nil)
				obedient(t, s)
			}
		},
		"a resource removed while the stream was down is reported": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1), cluster("b", 1))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			v.heard()
			n.cut(errors.New("no route to host"))
			s.Drop(istiodfake.ErrNotReady)
			in(time.Minute)
			s.Remove(cds, "b")
			n.heal()
			in(31 * time.Second)
			events := v.heard()
			last := events[len(events)-1]
			equal(t, "removed", last.Removed, "b")
			equal(t, "confirmed", last.Confirmed, "a")
		},
		"resources that a restarted istiod has not read yet are removed and return": func(t *testing.T) {
			s, n := istiod(t)
			s.Set(cluster("a", 1), cluster("b", 1))
			c := connect(t, n)
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			synctest.Wait()
			v.heard()
			s.Withhold(cds, "b")
			s.Drop(istiodfake.ErrNotReady)
			in(2 * time.Second)
			e := v.one(t)
			equal(t, "removed", e.Removed, "b")
			s.Withhold(cds)
			s.Push()
			synctest.Wait()
			equal(t, "changed", changed(v.one(t)), "b")
		},
	})
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConnect_BackoffCap(t *testing.T) {
	const most = 30 * time.Second
	spread := map[time.Duration]struct{}{}
	for range 1000 {
		wait := ads.Backoff(100)
		if wait > most || wait < most*8/10 {
			t.Fatalf("wait %s", wait)
		}
		spread[wait] = struct{}{}
	}
	is(t, "waits differ", len(spread) > 100, true)
}

// TestConnect_ServerRestart: each at a moment of its own,
// however long they were connected.
func TestConnect_ServerRestart(t *testing.T) {
	for name, connected := range map[string]time.Duration{"after an hour": time.Hour, "after a moment": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const clients = 100
				s, n := istiod(t)
				s.Set(cluster("a", 1))
				var mu sync.Mutex
				var dialled []time.Time
				for range clients {
					c := connect(t, n, func(o *ads.Options) {
						o.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
							mu.Lock()
							dialled = append(dialled, time.Now())
							mu.Unlock()
							return n.dial(ctx, address)
						}
					})
					watch(c, clusters(nil), ads.Wildcard)
				}
				in(connected)
				ended := time.Now()
				s.Drop(nil)
				in(1200 * time.Millisecond)
				is(t, "came back", len(dialled), 2*clients)
				at := map[time.Duration]int{}
				for _, d := range dialled[clients:] {
					at[d.Sub(ended).Truncate(50*time.Millisecond)]++
				}
				for moment, some := range at {
					is(t, fmt.Sprintf("%d of %d within 50 ms from %s are few", some, clients, moment), some <= clients/2, true)
				}
			})
		})
	}
}

func TestConnect_Lazy(t *testing.T) {
	inBoth(t, func(t *testing.T, m ads.Mode) {
		s, n := istiod(t)
		s.Set(cluster("a", 1), cluster("b", 1), load("a", "10.0.0.1"), load("b", "10.0.0.1"))
		c := connect(t, n, speaking(m))
		in(time.Minute)
		dials, _ := n.counts()
		is(t, "connections before there is a name", dials, 0)
		watch(c, clusters(nil), ads.Wildcard)
		_, sub := watch(c, endpoints(), "a")
		synctest.Wait()
		sub.Set("b")
		synctest.Wait()
		connection := s.Connections()[0]
		equal(t, "requested endpoints", connection.Watches[eds], "b")
		sub.Set()
		synctest.Wait()
		is(t, "requested endpoints", len(s.Connections()[0].Watches[eds]), 0)
		obedient(t, s)
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := istiod(t)
		c := connect(t, n)
		synctest.Wait()
		if err := c.Run(t.Context()); err == nil {
			t.Fatal("second Run() = nil, want an error")
		}
	})
}

func TestSeveralClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var views []*view[int64]
		var group sync.WaitGroup
		var mu sync.Mutex
		for i := range 4 {
			s, n := istiod(t)
			s.Set(cluster(fmt.Sprintf("only-%d", i), 1))
			group.Go(func() {
				c := connect(t, n)
				v, _ := watch(c, clusters(nil), ads.Wildcard)
				mu.Lock()
				defer mu.Unlock()
				views = append(views, v)
			})
		}
		group.Wait()
		synctest.Wait()
		var all []string
		for _, v := range views {
			all = append(all, v.names()...)
		}
		slices.Sort(all)
		equal(t, "held", all, "only-0", "only-1", "only-2", "only-3")
	})
}
