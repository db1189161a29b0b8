package mcp_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

func TestTarget_ConcurrentChange(t *testing.T) {
	g := registry.Group{Kind: serviceentry.Kind, Namespace: "xds-bridge", Name: "a.zk1.bridge.internal", Exclusive: true}
	header := registry.Entry{Group: g, Key: serviceentry.HeaderKey, Value: `{"host":"a.zk1.bridge.internal","port":{"number":80,"name":"tcp","protocol":"TCP"}}`}
	was := registry.Entry{Group: g, Key: "10.0.0.1:80", Value: `{"address":"10.0.0.1","port":80}`}
	now, other := was, was
	now.Value, other.Value = `{"address":"10.0.0.1","port":80,"weight":2}`, `{"address":"10.0.0.1","port":80,"weight":3}`
	held := func(e registry.Entry) *registry.Stored { return &registry.Stored{Entry: e} }
	for name, test := range map[string]struct {
		change registry.Change
		want   []registry.Entry // nil: it is a conflict, and all stays
	}{
		"delete a stored entry":       {change: registry.Change{Delete: []registry.Stored{*held(now)}}, want: []registry.Entry{header}},
		"delete what changed since":   {change: registry.Change{Delete: []registry.Stored{*held(was)}}},
		"delete a missing entry":      {change: registry.Change{Delete: []registry.Stored{{Entry: registry.Entry{Group: g, Key: "10.0.0.2:80"}}}}, want: []registry.Entry{header, now}},
		"replace a stored entry":      {change: registry.Change{Put: []registry.Write{{New: other, Old: held(now)}}}, want: []registry.Entry{header, other}},
		"replace what changed since":  {change: registry.Change{Put: []registry.Write{{New: other, Old: held(was)}}}},
		"replace by the stored value": {change: registry.Change{Put: []registry.Write{{New: now, Old: held(was)}}}, want: []registry.Entry{header, now}},
		"add another stored value":    {change: registry.Change{Put: []registry.Write{{New: other}}}},
	} {
		t.Run(name, func(t *testing.T) {
			target := mcp.NewTarget(mcp.Options{})
			if err := target.Write(t.Context(), registry.Change{Group: g, Put: []registry.Write{{New: header}, {New: now}}}); err != nil {
				t.Fatal(err)
			}
			test.change.Group = g
			err := target.Write(t.Context(), test.change)
			if want := test.want == nil; errors.Is(err, registry.ErrConflict) != want || (err != nil) != want {
				t.Errorf("a conflict is %v, want %v", err, want)
			}
			if test.want == nil {
				test.want = []registry.Entry{header, now}
			}
			var got []registry.Entry
			all, err := target.Read(t.Context(), g)
			for _, h := range all {
				got = append(got, h.Entry)
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("held are %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

// TestTarget_RefusedEndpointCostsNoOther also shows that a group without
// its header is refused as a whole.
func TestTarget_RefusedEndpointCostsNoOther(t *testing.T) {
	bubble(t, "one of three endpoints", func(t *testing.T) {
		r := start(t, mcp.Options{})
		entries, err := r.codec.Encode(greeter("api.A", "10.0.0.1", "10.0.0.2"))
		if err != nil || len(entries) != 3 {
			t.Fatalf("encoded %v, %v, want three entries", entries, err)
		}
		g := entries[0].Group
		bad := registry.Entry{Group: g, Key: "z", Value: "no JSON"}
		puts := func(entries ...registry.Entry) registry.Change {
			c := registry.Change{Group: g, Want: entries}
			for _, e := range entries {
				c.Put = append(c.Put, registry.Write{New: e})
			}
			return c
		}
		var refused registry.Refused
		if err := r.target.Write(t.Context(), puts(entries[1:]...)); !errors.Is(err, registry.ErrRefused) || errors.As(err, &refused) {
			t.Errorf("Write() without a header = %v, want a refusal of all", err)
		}
		if err := r.target.Write(t.Context(), puts(append(entries, bad)...)); !errors.As(err, &refused) || len(refused) != 1 || !refused.Has("z") {
			t.Errorf("Write() with a bad endpoint = %v, want only z refused", err)
		}
		held, err := r.target.Read(t.Context(), g)
		if err != nil || len(held) != 3 {
			t.Errorf("Read() = %v, %v, want three entries", held, err)
		}
	})
}

func TestTarget_ConfirmsKeysOfServedHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var confirmed map[naming.ServiceKey]naming.HostAddress
		r := start(t, mcp.Options{Confirmed: func(keys map[naming.ServiceKey]naming.HostAddress) {
			mu.Lock()
			defer mu.Unlock()
			confirmed = keys
		}})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		time.Sleep(time.Minute)
		mu.Lock()
		if confirmed != nil {
			t.Errorf("Confirmed(%v) before any istiod had the host, want no call", confirmed)
		}
		mu.Unlock()
		r.connect(newType)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		key, err := naming.ParseServiceKey("providers:api.a::")
		if err != nil {
			t.Fatal(err)
		}
		if got := confirmed[key].String(); got != "api.a.k0-0-tri.zk1.bridge.internal:50051" {
			t.Errorf("Confirmed(%v), want the host address of %v", confirmed, key)
		}
	})
}

func TestEndpoints_WireFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, mcp.Options{})
		s := greeter("api.a", "10.0.0.1", "::1")
		s.Endpoints[0].Zone, s.Endpoints[0].Attributes = "eu-1/eu-1a", registry.Attributes{"version": "v1", "app": "a"}
		s.Endpoints[1].Weight = 0
		r.put(s)
		r.target.SourcesComplete()
		got := decode(t, r.connect(newType).answers(newType)[0])[0].spec.GetEndpoints()
		port := map[string]uint32{"grpc-tri": 20001}
		want := []*networking.WorkloadEntry{
			{Address: "10.0.0.1", Ports: port, Weight: 100, Locality: "eu-1/eu-1a", Labels: map[string]string{"version": "v1", "app": "a"}},
			{Address: "::1", Ports: port},
		}
		if !slices.EqualFunc(got, want, func(a, b *networking.WorkloadEntry) bool { return proto.Equal(a, b) }) {
			t.Errorf("istiod reads %v, want %v", got, want)
		}
	})
}

// TestTarget_HostNames: proxies have to resolve the endpoints of a service if one of
// them has a name, and of no other.
func TestTarget_HostNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1", "a.example.com"))
		r.put(greeter("api.b", "10.0.0.1"))
		r.target.SourcesComplete()
		got := make(map[string]networking.ServiceEntry_Resolution)
		for _, m := range decode(t, r.connect(newType).answers(newType)[0]) {
			got[m.spec.GetEndpoints()[len(m.spec.GetEndpoints())-1].GetAddress()] = m.spec.GetResolution()
		}
		if len(got) != 2 || got["a.example.com"] != networking.ServiceEntry_DNS || got["10.0.0.1"] != networking.ServiceEntry_STATIC {
			t.Errorf("istiod reads %v", got)
		}
	})
}

// An istiod that confirms a set after 200 ms while something changes
// every 100 ms.
func TestTarget_ConfirmsKeysOfEachSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var confirmed []int
		r := start(t, mcp.Options{Confirmed: func(keys map[naming.ServiceKey]naming.HostAddress) {
			mu.Lock()
			defer mu.Unlock()
			confirmed = append(confirmed, len(keys))
		}})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		r.open(&istiod{delay: 200 * time.Millisecond}, newType)
		synctest.Wait() // the first set has only api.a
		for n := range 600 {
			r.put(greeter("api.b", fmt.Sprintf("10.0.%d.%d", n>>8, n&255)))
			time.Sleep(100 * time.Millisecond)
		}
		r.put(greeter("api.c", "10.0.0.1"))
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(confirmed) < 100 || confirmed[0] != 1 || confirmed[1] != 2 || confirmed[len(confirmed)-1] != 3 {
			t.Errorf("Confirmed() with %v keys, want 1, 2 and in the end 3", confirmed)
		}
	})
}

func TestTarget_OlderConfirmationKeepsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		confirmed := 0
		r := start(t, mcp.Options{Confirmed: func(keys map[naming.ServiceKey]naming.HostAddress) {
			mu.Lock()
			defer mu.Unlock()
			confirmed = len(keys)
		}})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		r.open(&istiod{delay: time.Minute}, newType)
		synctest.Wait()
		r.put(greeter("api.b", "10.0.0.1"))
		time.Sleep(time.Second)
		r.connect(newType)
		time.Sleep(2 * time.Minute) // the slow one confirms what it was sent first, long after
		mu.Lock()
		defer mu.Unlock()
		if confirmed != 2 {
			t.Errorf("Confirmed() with %d keys, want 2", confirmed)
		}
	})
}

// BenchmarkTarget_Write is one endpoint of many that changes, from the service to
// what is served.
func BenchmarkTarget_Write(b *testing.B) {
	codec, err := serviceentry.New(serviceentry.Options{
		Namespace: "imported", Hosts: naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}, Mark: metadata.NewMark("shop", "zk-to-mesh"),
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			target := mcp.NewTarget(mcp.Options{Owner: "me"})
			services := make([][]registry.Entry, 2)
			for i := range services {
				s := greeter("api.Greeter")
				first := netip.MustParseAddr("10.0.0.1")
				for range n {
					s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: first.String(), Port: 20001, Weight: 100, Zone: "eu-1/eu-1a"})
					first = first.Next()
				}
				s.Endpoints[n/2].Weight = uint32(100 + i)
				if services[i], err = codec.Encode(s); err != nil {
					b.Fatal(err)
				}
			}
			c := registry.Change{Group: services[0][0].Group, Want: services[0]}
			for _, e := range services[0] {
				c.Put = append(c.Put, registry.Write{New: e})
			}
			if err := target.Write(b.Context(), c); err != nil {
				b.Fatal(err)
			}
			at := 0
			for i := range services[0] {
				if services[0][i] != services[1][i] {
					at = i
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				old, next := services[i%2], services[(i+1)%2]
				c := registry.Change{Group: next[0].Group, Want: next, Put: []registry.Write{{New: next[at], Old: &registry.Stored{Entry: old[at]}}}}
				if err := target.Write(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
