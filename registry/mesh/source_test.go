package mesh_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

func TestSource_EndpointChanges(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.set(loadOf("outbound|1||a.b", "10.0.0.2"))
		b.expect("a.b:1 10.0.0.2", "c.d:1 10.0.1.1")
		b.expectDrain("a.b:1") // reported as it happened
		b.set(loadOf("outbound|1||a.b"))
		b.expect("a.b:1", "c.d:1 10.0.1.1")
		b.set(loadOf("outbound|1||a.b", "10.0.0.3"))
		b.expect("a.b:1 10.0.0.3", "c.d:1 10.0.1.1")
		b.expectKnown()
	})
}

func TestSource_RemovedCluster(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.remove("outbound|1||a.b")
		b.expect("c.d:1 10.0.1.1")
		b.expectDrain("-a.b:1")
		b.expectKnown()
		if n := b.source.Status().Requested; n != 1 {
			b.t.Errorf("Requested = %d, want 1", n)
		}
		if subscribed := b.subscribed(); slices.Contains(subscribed, "outbound|1||a.b") {
			b.t.Errorf("subscribed to %v, want all but a.b", subscribed)
		}
		b.serve("outbound|1||a.b", "10.0.0.9")
		b.expect("a.b:1 10.0.0.9", "c.d:1 10.0.1.1")
	})
}

func TestSource_NewSubset(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.serve("outbound|1|v1|a.b", "10.0.0.1")
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		b.expectDrain()
	})
}

func TestSource_Subsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *mesh.Options) { o.Naming.Subsets = true })
		b.running()
		b.serve("outbound|1|v1|a.b", "10.0.0.1")
		endpoints := b.table.Get("a.b:1").Endpoints
		if len(endpoints) != 2 || endpoints[0].Attributes[mesh.AttributeSubset] != "v1" || endpoints[1].Attributes != nil {
			t.Errorf("endpoints = %+v, want 2, the first in subset v1", endpoints)
		}
		b.expectKnown()
		b.remove("outbound|1|v1|a.b")
		if got := b.table.Get("a.b:1").Endpoints[0].Attributes; got != nil {
			t.Errorf("attributes = %v, want none", got)
		}
	})
}

func TestSource_SharedHost(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1", "providers:K::", "a.b:1")))
		b.set(loadOf("outbound|1||a.b", "10.0.0.9"))
		s := b.table.Get("a.b:1")
		if want := []registry.Interface{{Name: "I"}, {Name: "K"}}; !slices.Equal(s.Interfaces, want) {
			b.t.Errorf("interfaces = %v, want %v", s.Interfaces, want)
		}
		expectAddresses(b.t, s, "10.0.0.9:1")
	})
}

func TestSource_LateKey(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "c.d:1", "providers:K::", "e.f:1")))
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1", "e.f:1 10.0.2.1")
		b.expectKnown()
	})
}

func TestSource_MovedKey(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "e.f:1", "providers:J::", "c.d:1")))
		b.expect("c.d:1 10.0.1.1", "e.f:1 10.0.2.1")
		b.expectDrain("-a.b:1", "e.f:1")
	})
}

func TestSource_SharedKey(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1", "providers:I::", "c.d:1")))
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		if conflicts := b.source.Status().Mapping.Mapping.Conflicts(); len(conflicts) != 1 {
			b.t.Errorf("conflicts = %v, want one", conflicts)
		}
		if want := `level=INFO msg="service keys are published for several hosts`; strings.Count(b.log.String(), want) != 1 {
			b.t.Errorf("log lacks %s, which each migration has:\n%s", want, b.log.String())
		}
	})
}

func TestSource_RequiredEndpoints(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		for _, r := range b.istiod.Requests(eds) {
			for _, name := range r.Subscribe {
				if name == "outbound|1||e.f" || name == "" || name == "*" {
					b.t.Errorf("requested %q", name)
				}
			}
		}
	})
}

func TestSource_OtherClusters(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		for _, name := range []string{"BlackHoleCluster", "PassthroughCluster", "inbound|80||", "x", "outbound|80||a b"} {
			b.set(edsCluster(name))
		}
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		b.expectKnown()
		for _, r := range b.istiod.Requests(cds) {
			if r.Error != nil {
				b.t.Errorf("rejected %v, want no rejection", r.Error)
			}
		}
		if skipped := b.table.Skipped(); skipped["outbound|80||a b"] == "" || skipped["x"] != "" {
			b.t.Errorf("skipped %v", skipped)
		}
		b.remove("outbound|80||a b")
		if skipped := b.table.Skipped(); skipped["outbound|80||a b"] != "" {
			b.t.Errorf("skipped %v", skipped)
		}
	})
}

func TestSource_Unhealthy(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.set(load("outbound|1||a.b", endpoint("10.0.0.1", 1, health(corev3.HealthStatus_DRAINING)), endpoint("10.0.0.2", 1)))
		s := b.table.Get("a.b:1")
		if len(s.Endpoints) != 2 || s.Endpoints[0].Health.Offered() || !s.Endpoints[1].Health.Offered() {
			b.t.Errorf("endpoints = %+v, want 2, the second offered", s.Endpoints)
		}
	})
}

// asSidecar has the source connect as a node that istiod does not show the
// endpoints of headless services.
func asSidecar(o *mesh.Options) {
	o.ADS.Node.Id = strings.Replace(o.ADS.Node.GetId(), "router~", "sidecar~", 1)
}

func originalDst(name string) *clusterv3.Cluster {
	c := edsCluster(name)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	return c
}

func TestSource_Headless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, asSidecar)
		b.istiod.Set(originalDst("outbound|1||a.b"))
		b.start()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1")))
		b.expect("a.b:1")
		k := b.certainty()
		if !k.Synced || k.Of("a.b:1") == nil || !strings.Contains(b.table.Skipped()["a.b:1"], "node.type: router") {
			b.t.Errorf("certainty %v, skipped %v", k, b.table.Skipped())
		}
	})
}

// TestSource_ResolutionNone: to a router istiod reports headless
// services by EDS, so that it hides nothing from us.
func TestSource_ResolutionNone(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.serve("outbound|1||a.b", "10.0.0.1")
		b.set(originalDst("outbound|443||old.example.com"))
		b.start()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "old.example.com:443")))
		b.in(time.Minute)
		b.expect("a.b:1 10.0.0.1", "old.example.com:443")
		b.expectKnown()
		if reason := b.table.Skipped()["old.example.com:443"]; !strings.Contains(reason, "NONE") {
			b.t.Errorf("skipped: %q", reason)
		}
	})
}

// TestSource_TwoSpellings: host names have no case, so that two clusters may
// are one service.
func TestSource_TwoSpellings(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.serve("outbound|1||A.b", "10.0.0.1")
		b.serve("outbound|1||a.b", "10.0.0.1")
		b.start()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1")))
		b.expect("a.b:1 10.0.0.1")
		b.reader.Drain()
		b.remove("outbound|1||A.b")
		b.in(time.Minute)
		b.expect("a.b:1 10.0.0.1")
		b.expectKnown()
		b.serve("outbound|1||A.b", "10.0.0.1")
		b.remove("outbound|1||a.b")
		b.in(time.Minute)
		b.expect("a.b:1 10.0.0.1")
		b.remove("outbound|1||A.b")
		b.expect()
	})
}

// reluctant is a connection that closes slowly.
type reluctant struct {
	net.Conn
	once sync.Once
}

func (c *reluctant) Close() error {
	c.once.Do(func() { <-time.NewTimer(50 * time.Millisecond).C })
	return c.Conn.Close()
}

// TestSource_LostStream: though the connection is slow to
// close, and the next one hangs.
func TestSource_LostStream(t *testing.T) {
	for name, mode := range map[string]ads.Mode{"delta": ads.Delta, "state of the world": ads.StateOfTheWorld} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bed
				dials := 0
				b = newBed(t, func(o *mesh.Options) {
					o.ADS.Mode = mode
					o.ADS.Dialer = func(ctx context.Context, a string) (net.Conn, error) {
						if dials++; dials > 1 { // unreachable
							<-ctx.Done()
							return nil, ctx.Err()
						}
						c, err := b.net.dial(ctx, a)
						return &reluctant{Conn: c}, err
					}
				})
				b.running()
				b.istiod.Drop(nil)
				b.in(0)
				b.expectStale()
				b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
			})
		})
	}
}

// TestSource_AdditionalAddresses: nor is their coming and going a change.
func TestSource_AdditionalAddresses(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		with := func(more ...string) *endpointv3.ClusterLoadAssignment {
			e := endpoint("10.0.0.1", 1)
			for _, host := range more {
				e.GetEndpoint().AdditionalAddresses = append(e.GetEndpoint().AdditionalAddresses,
					&endpointv3.Endpoint_AdditionalAddress{Address: socket(host, 1)})
			}
			return load("outbound|1||a.b", e)
		}
		b.set(with("2001:db8::1", "10.0.0.9"))
		b.expect("a.b:1 10.0.0.1", "c.d:1 10.0.1.1")
		b.expectDrain("a.b:1")
		b.set(with("2001:db8::2"))
		b.set(with())
		b.expect("a.b:1 10.0.0.1", "c.d:1 10.0.1.1")
		b.expectDrain()
		b.expectKnown()
	})
}

// TestSource_ChangeCost: however many other services there are.
func TestSource_ChangeCost(t *testing.T) {
	cost := func(services int) (allocations uint64) {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			var all []proto.Message
			var keys []string
			for i := range services {
				name := fmt.Sprintf("h%d.ns", i)
				all = append(all, edsCluster("outbound|1||"+name), loadOf("outbound|1||"+name, "10.0.0.1"))
				keys = append(keys, fmt.Sprintf("providers:I%d::", i), name+":1")
			}
			b.set(all...)
			b.start()
			b.mapping.say(complete(mapping(t, keys...)))
			b.expectKnown()
			next := complete(mapping(t, append(keys, "providers:Another::", "h0.ns:1")...))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.mapping.say(next)
			runtime.ReadMemStats(&after)
			allocations = after.Mallocs - before.Mallocs
			if n := len(b.table.Get("h0.ns:1").Interfaces); n != 2 {
				t.Fatalf("%d interfaces, want 2", n)
			}
		})
		return allocations
	}
	if few, many := cost(10), cost(1000); many > few+1000 {
		t.Errorf("a change is %d allocations among 10 services and %d among 1,000, want about the same", few, many)
	}
}

func TestSource_UnchangedPush(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.istiod.Push()
		synctest.Wait()
		b.expectDrain()
		b.expectKnown()
	})
}

func TestSource_IncompleteMapping(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.serve("outbound|1||a.b", "10.0.0.1")
		b.start()
		if b.certainty().Synced {
			b.t.Error("Synced = true without a mapping, want false")
		}
		b.mapping.say(debug.Snapshot{Mapping: mapping(b.t, "providers:I::", "a.b:1"), Err: errors.New("403")})
		b.expect("a.b:1 10.0.0.1") // a known key is still synced
		if b.certainty().Synced {
			b.t.Error("Synced = true with a part of the mapping, want false")
		}
		b.mapping.say(debug.Snapshot{Mapping: mapping(b.t, "providers:I::", "a.b:1"), Complete: true, Restarting: time.Now().Add(time.Minute)})
		if k := b.certainty(); !k.Synced || len(k.Unknown) != 1 || k.Of("a.b:1") != nil {
			b.t.Errorf("while clients have not come back: %+v, want known services, and one scope for services that were never reported", k)
		}
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1")))
		b.expectKnown()
		if k := b.certainty(); len(k.Unknown) != 0 {
			b.t.Errorf("certainty = %+v, want nothing unknown", k)
		}
	})
}

// TestSource_UnreadableClient: nothing may be concluded from a key
// that is missing, and known services stay current.
func TestSource_UnreadableClient(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		keys := mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "c.d:1")
		unread := func(why string) debug.Snapshot {
			return debug.Snapshot{Mapping: keys, Complete: true, Unread: errors.New(why)}
		}
		expectScope := func(want string) {
			b.t.Helper()
			k := b.certainty()
			if why := k.Unknown["service keys"]; len(k.Unknown) != 1 || why == nil || !strings.Contains(why.Error(), want) {
				b.t.Errorf("unknown %v, want service keys because of %q", k.Unknown, want)
			}
			if !k.Synced || k.Stale != nil || k.Of("a.b:1") != nil || k.Of("c.d:1") != nil {
				b.t.Errorf("synced %v, stale %v, %v and %v, want both services known", k.Synced, k.Stale, k.Of("a.b:1"), k.Of("c.d:1"))
			}
		}
		b.mapping.say(unread("one is too large"))
		expectScope("one is too large")
		b.set(loadOf("outbound|1||a.b", "10.0.0.2"))
		b.expect("a.b:1 10.0.0.2", "c.d:1 10.0.1.1")
		expectScope("one is too large")
		b.mapping.say(unread("another does not answer"))
		expectScope("another does not answer")
		b.mapping.say(debug.Snapshot{Mapping: keys, Complete: true, Unread: errors.New("another does not answer"), Restarting: time.Now().Add(time.Minute)})
		expectScope("restarted recently")
		b.mapping.say(unread("another does not answer"))
		expectScope("another does not answer")
		b.mapping.say(complete(keys))
		b.expectKnown()
		b.expectDrain("a.b:1")
	})
}

func TestSource_UnreadableMapping(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		last := mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "c.d:1")
		b.mapping.say(debug.Snapshot{Mapping: last, Complete: true, Err: errors.New("403")})
		b.set(loadOf("outbound|1||a.b", "10.0.0.2"))
		b.expect("a.b:1 10.0.0.2", "c.d:1 10.0.1.1")
		b.expectKnown() // so that the endpoint is removed
		b.expectDrain("a.b:1")
		if b.source.Status().Mapping.Err == nil {
			b.t.Error("Status().Mapping.Err = nil, want an error")
		}
	})
}

func TestSource_RulesWithoutMapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *mesh.Options) {
			o.Mapping = nil
			o.Naming.Rules = []mesh.Rule{{Host: pattern(t, "a.*"), Interfaces: []registry.Interface{{Name: "I"}}}}
		})
		b.serve("outbound|1||a.b", "10.0.0.1")
		b.serve("outbound|1||c.d", "10.0.0.1")
		b.start()
		b.expect("a.b:1 10.0.0.1")
		b.expectKnown()
	})
}

func TestSource_StreamReset(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		for range 3 {
			b.istiod.Drop(nil)
			b.in(time.Minute)
			b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
			b.expectKnown()
			b.expectDrain()
		}
		if n := b.istiod.Streams(); n != 4 {
			b.t.Errorf("%d streams, want 4", n)
		}
	})
}

func TestSource_IstiodOutage(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.net.cut()
		b.in(10 * time.Minute)
		b.expectStale()
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		b.net.heal()
		b.in(2 * time.Minute)
		b.expectKnown()
		b.expectDrain()
	})
}

func TestSource_MissedRemovals(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.net.cut()
		b.in(time.Second)
		b.remove("outbound|1||a.b")
		b.set(loadOf("outbound|1||c.d", "10.0.1.7"))
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		b.net.heal()
		b.in(2 * time.Minute)
		b.expect("c.d:1 10.0.1.7")
		b.expectDrain("!-a.b:1", "!c.d:1")
		b.expectKnown()
	})
}

func TestSource_PartialRestart(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.istiod.Withhold(cds, "outbound|1||a.b")
		b.istiod.Drop(nil)
		b.in(time.Minute)
		b.expect("c.d:1 10.0.1.1")
		b.expectDrain("!-a.b:1") // found missing, which the guard makes wait
		b.istiod.Withhold(cds)
		b.istiod.Push()
		b.in(time.Second)
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		b.expectKnown()
	})
}

func TestSource_Emptied(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.istiod.Replace([]string{cds})
		synctest.Wait()
		b.expect()
		b.expectDrain("!-a.b:1", "!-c.d:1") // not believed as a single removal is
	})
}

func TestSource_Resync(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.istiod.Mute(eds)
		b.istiod.Drop(nil)
		b.remove("outbound|1||a.b")
		b.in(2 * time.Second)
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		b.expectStale()
		b.istiod.Unmute()
		b.in(time.Minute)
		b.expect("c.d:1 10.0.1.1")
		b.expectKnown()
	})
}

func TestSource_MissingEndpoints(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.istiod.Mute(eds)
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "c.d:1", "providers:K::", "e.f:1")))
		if b.certainty().Of("e.f:1") == nil {
			b.t.Error("Of(e.f:1) = nil before it was reported, want an error")
		}
		b.in(20 * time.Second)
		k := b.certainty()
		if k.Of("e.f:1") == nil || k.Of("a.b:1") != nil || k.Stale != nil {
			b.t.Errorf("unknown %v, stale %v", k.Unknown, k.Stale)
		}
		b.istiod.Unmute()
		b.in(time.Second)
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1", "e.f:1 10.0.2.1")
		b.expectKnown()
	})
}

func TestSource_InvalidResource(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.istiod.Alter(func(a *istiodfake.Answer) {
			for _, r := range a.Resources {
				if r.GetName() == "outbound|1||a.b" && a.Type == eds {
					r.Resource = &anypb.Any{TypeUrl: eds, Value: []byte{0xff}}
				}
			}
		})
		b.istiod.Set(loadOf("outbound|1||a.b", "10.0.0.7"), loadOf("outbound|1||c.d", "10.0.1.7"))
		b.in(time.Second)
		rows, k := b.table.Snapshot()
		if got := rows["c.d:1"].Endpoints[0].Host; got != "10.0.1.7" {
			b.t.Errorf("c.d:1 has %s, want 10.0.1.7", got)
		}
		if len(rows["a.b:1"].Endpoints) != 2 {
			b.t.Errorf("row = %v, want 2 endpoints", rows["a.b:1"])
		}
		if named := b.source.Status().Stream.Mode == ads.Delta; named && k.Of("a.b:1") == nil {
			b.t.Error("Of(a.b:1) = nil, want why its newest version is rejected")
		}
		b.istiod.Alter(nil)
		b.istiod.Push()
		b.in(time.Second)
		b.expect("a.b:1 10.0.0.7", "c.d:1 10.0.1.7")
		b.expectKnown()
	})
}

func TestSource_WrappedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *mesh.Options) { o.ADS.Mode = ads.StateOfTheWorld })
		b.istiod.Alter(func(a *istiodfake.Answer) {
			for _, r := range a.Resources {
				wrapped, err := anypb.New(&discoveryv3.Resource{Name: r.GetName(), Resource: r.GetResource()})
				if err != nil {
					t.Error(err)
				}
				r.Resource = wrapped
			}
		})
		b.running()
	})
}

func TestSource_InvalidCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *mesh.Options) { o.ADS.Mode = ads.Delta })
		b.running()
		b.istiod.Alter(func(a *istiodfake.Answer) {
			for _, r := range a.Resources {
				if a.Type == cds && (r.GetName() == "outbound|1||a.b" || r.GetName() == "outbound|1||g.h") {
					r.Resource = &anypb.Any{TypeUrl: cds, Value: []byte{0xff}}
				}
			}
		})
		b.mapping.say(complete(mapping(t, "providers:I::", "a.b:1", "providers:J::", "c.d:1", "providers:K::", "g.h:1")))
		b.serve("outbound|1||g.h", "10.0.3.1")
		b.istiod.Push()
		b.in(time.Second)
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		k := b.certainty()
		if k.Of("a.b:1") == nil || k.Of("g.h:1") == nil || k.Of("c.d:1") != nil {
			t.Errorf("unknown %v", k.Unknown)
		}
		if b.table.Skipped()["g.h:1"] == "" {
			t.Errorf("skipped %v", b.table.Skipped())
		}
		b.istiod.Alter(nil)
		b.istiod.Push()
		b.in(time.Second)
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1", "g.h:1 10.0.3.1")
		b.expectKnown()
	})
}

func TestSource_UnreportedEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, asSidecar)
		b.running()
		b.set(originalDst("outbound|1||a.b"))
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		if b.certainty().Of("a.b:1") == nil {
			b.t.Error("Of(a.b:1) = nil, want an error")
		}
	})
}

func TestSource_Recheck(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		for i := range 3 {
			before := b.certainty()
			b.source.Recheck()
			b.in(time.Minute)
			b.expectKnown()
			after := b.certainty()
			if after.Epoch != before.Epoch+1 || after.Dials != before.Dials+1 {
				b.t.Errorf("epoch %d and connection %d, want one more than %d and %d", after.Epoch, after.Dials, before.Epoch, before.Dials)
			}
			if open := len(b.istiod.Connections()); b.istiod.Streams() != i+2 || open != 1 {
				b.t.Errorf("%d streams, %d of them open, want %d and 1", b.istiod.Streams(), open, i+2)
			}
			b.expectDrain()
		}
	})
}

// TestSource_ResyncStale: nothing may be concluded from
// half of its report, although the old stream never broke.
func TestSource_ResyncStale(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		b.istiod.Withhold(eds, "outbound|1||a.b")
		b.source.Recheck()
		b.in(2 * time.Second)
		b.expectStale()
		b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
		b.istiod.Withhold(eds)
		b.istiod.Push()
		b.in(time.Second)
		b.expectKnown()
		b.expectDrain()
	})
}

// TestSource_UnreachableRecheck: the connection that there is
// continues, and another one is tried until it can be had.
func TestSource_UnreachableRecheck(t *testing.T) {
	inBoth(t, func(b *bed) {
		b.running()
		before := b.certainty()
		b.net.mu.Lock()
		b.net.down = errors.New("network is unreachable")
		b.net.mu.Unlock()
		b.source.Recheck()
		b.in(10 * time.Minute)
		b.expectKnown()
		if k := b.certainty(); k.Dials != before.Dials || k.Epoch != before.Epoch {
			b.t.Errorf("epoch %d and connection %d, want %d and %d", k.Epoch, k.Dials, before.Epoch, before.Dials)
		}
		b.serve("outbound|1||a.b", "10.0.0.7") // the old stream continues
		b.expect("a.b:1 10.0.0.7", "c.d:1 10.0.1.1")
		b.net.heal()
		b.in(time.Minute)
		if k := b.certainty(); k.Dials != before.Dials+1 {
			b.t.Errorf("%d connections, want one more than %d", k.Dials, before.Dials)
		}
	})
}

// twoReplicas is a mesh of two istiods, by address, behind a Service whose own
// address leads to the first.
func twoReplicas(t *testing.T, change ...func(*mesh.Options)) (b *bed, istiods map[string]*istiodfake.Server) {
	t.Helper()
	var networks map[string]*network
	b = newBed(t, append([]func(*mesh.Options){func(o *mesh.Options) {
		o.ADS.Address = "istiod.istio-system.svc:15010"
		o.ADS.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil || networks[host] == nil {
				return nil, errors.New("no route to " + address)
			}
			return networks[host].dial(ctx, address)
		}
		o.Istiod = address(t, "istiod.istio-system.svc.cluster.local:15014")
		o.Replicas = func([]string) {}
	}}, change...)...)
	other := istiodfake.NewServer()
	for _, s := range []*istiodfake.Server{b.istiod, other} {
		for _, name := range []string{"outbound|1||a.b", "outbound|1||c.d"} {
			s.Set(edsCluster(name), loadOf(name, "10.0.0.1"))
		}
		const replicas = "outbound|15014||istiod.istio-system.svc.cluster.local"
		s.Set(edsCluster(replicas), load(replicas, endpoint("10.9.0.1", 15014), endpoint("10.9.0.2", 15014)))
	}
	networks = map[string]*network{"10.9.0.1": b.net, "10.96.0.1": b.net, "10.9.0.2": reach(t, other)}
	return b, map[string]*istiodfake.Server{"10.9.0.1": b.istiod, "10.9.0.2": other}
}

// TestSource_OtherReplica: services that it lost sight of are there again
// once another replica was read.
func TestSource_OtherReplica(t *testing.T) {
	lookup := func(addresses ...string) func(context.Context, string) ([]string, error) {
		return func(_ context.Context, host string) ([]string, error) {
			if host != "istiod.istio-system.svc" {
				return nil, errors.New("no such host")
			}
			return slices.Clone(addresses), nil
		}
	}
	mapped := func(b *bed, at string) {
		s := complete(mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "c.d:1"))
		s.Replicas = []debug.ReplicaStatus{{Replica: "10.9.0.1:15014", Own: at == "10.9.0.1"}, {Replica: "10.9.0.2:15014", Own: at == "10.9.0.2"}}
		b.mapping.say(s)
	}
	for name, tt := range map[string]struct {
		addresses []string
		shown     string // where the debug API shows our stream
	}{
		"the name has the addresses of both":         {addresses: []string{"10.9.0.1", "10.9.0.2"}},
		"the name has the address of a Service":      {addresses: []string{"10.96.0.1"}, shown: "10.9.0.1"},
		"the address of a Service, and an unreached": {addresses: []string{"10.96.0.1", "10.66.6.6"}, shown: "10.9.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, istiods := twoReplicas(t, func(o *mesh.Options) { o.ADS.Lookup = lookup(tt.addresses...) })
				b.start()
				mapped(b, tt.shown)
				b.expect("a.b:1 10.0.0.1", "c.d:1 10.0.0.1")
				wrong, right := "10.9.0.1", "10.9.0.2"
				if b.source.Status().Stream.Address == "10.9.0.2:15010" { // either may come first
					wrong, right = right, wrong
				}
				istiods[wrong].Remove(cds, "outbound|1||a.b")
				b.in(time.Second)
				b.expect("c.d:1 10.0.0.1")
				before := b.certainty().Dials
				b.source.Recheck()
				b.in(time.Minute)
				if got := b.source.Status().Stream.Address; got != right+":15010" {
					t.Fatalf("connected to %s, want %s", got, right)
				}
				b.expect("a.b:1 10.0.0.1", "c.d:1 10.0.0.1")
				if got := b.certainty().Dials; got != before+1 {
					t.Errorf("%d connections, want one more than %d", got, before)
				}
			})
		})
	}
}

func TestReplicasOfIstiod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported [][]string
		b := newBed(t, func(o *mesh.Options) {
			o.Istiod = address(t, "istiod.istio-system.svc.cluster.local:15014")
			o.Replicas = func(r []string) { reported = append(reported, r) }
		})
		const name = "outbound|15014||istiod.istio-system.svc.cluster.local"
		b.serve(name, "10.9.0.1", "10.9.0.2") // Two in one update
		b.running()
		b.set(loadOf(name, "10.9.0.2", "10.9.0.3"))
		b.set(loadOf(name))
		want := [][]string{{"10.9.0.1:1", "10.9.0.2:1"}, {"10.9.0.2:1", "10.9.0.3:1"}}
		if !slices.EqualFunc(reported, want, slices.Equal[[]string]) {
			t.Errorf("reported %v, want %v", reported, want)
		}
	})
}

func TestSource_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.running()
		b.stop()
	})
	t.Run("before anything was reported", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.net.cut()
			b.start()
			b.in(time.Minute)
			b.expectStale()
			b.stop()
		})
	})
	t.Run("with what the mapping cannot mend", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, func(o *mesh.Options) { o.Mapping = broken{} })
			if err := b.source.Run(t.Context(), b.table); err == nil || !strings.Contains(err.Error(), "mapping") {
				t.Errorf("error %v", err)
			}
		})
	})
}

type broken struct{}

func (broken) Run(context.Context, func(debug.Snapshot)) error { return errors.New("broken") }

func TestOptions_Invalid(t *testing.T) {
	if _, err := mesh.New(mesh.Options{}); err == nil || !strings.Contains(err.Error(), "Address") {
		t.Errorf("error %v", err)
	}
	o := mesh.Options{ADS: ads.Options{Address: "a:1"}, Istiod: address(t, "a.b:1")}
	if _, err := mesh.New(o); err == nil || !strings.Contains(err.Error(), "Replicas") {
		t.Errorf("error %v", err)
	}
}

func TestSource_UnreportedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wish := registry.NewInterest()
		b := newBed(t, func(o *mesh.Options) { o.Naming.Interest = wish })
		b.serve("outbound|1||a.b", "10.0.0.1")
		b.serve("outbound|1||c.d")
		b.start()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "c.d:1")))
		b.expectKnown()
		b.istiod.Withhold(eds, "outbound|1||c.d")
		wish.Add("c.d", "a.b", "nobody.here")
		synctest.Wait()
		if a := wish.Answer("a.b", "nobody.here"); !a.Reported || a.Err != nil {
			t.Errorf("Answer() = %+v, want reported", a)
		}
		if wish.Answer("c.d").Reported {
			t.Error("Answer(c.d).Reported = true before its endpoints are known, want false")
		}
		b.istiod.Withhold(eds)
		b.serve("outbound|1||c.d", "10.0.0.2")
		if a := wish.Answer("c.d"); !a.Reported || a.Err != nil {
			t.Errorf("Answer(c.d) = %+v, want reported", a)
		}
	})
}

func TestSource_SelectedEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wish := registry.NewInterest()
		b := newBed(t, func(o *mesh.Options) { o.Naming.Interest = wish })
		b.serve("outbound|1||a.b", "10.0.0.1")
		b.serve("outbound|1||c.d", "10.0.1.1")
		b.start()
		b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "c.d:1")))
		b.expect()
		b.expectKnown()
		for _, name := range []string{"providers:I::", "I", "a.b", "a.b:1"} {
			wish.Add(name)
			synctest.Wait()
			b.expect("a.b:1 10.0.0.1")
			if a := wish.Answer(name); !a.Reported || a.Err != nil {
				t.Errorf("Answer(%s) = %+v, want reported", name, a)
			}
			wish.Drop(name)
			synctest.Wait()
			b.expect()
		}
		if got := b.subscribed(); len(got) != 0 {
			t.Errorf("subscribed to %v, want nothing", got)
		}
	})
}
