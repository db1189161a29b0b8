package mcp_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// otherType is one that is not served.
const otherType = "networking.istio.io/v1/Gateway"

// fifty connects peers that ask for types from an address, ten to a connection.
func (g *accessRig) fifty(address string, types ...string) []*istiod {
	g.t.Helper()
	var all []*istiod
	for range 5 {
		conn := g.conn(address, nil)
		for range 10 {
			all = append(all, g.over(conn, &istiod{}, types...))
			synctest.Wait() // so that they are in this order at the server
		}
	}
	return all
}

// ended returns how many of some peers were ended with a code.
func ended(all []*istiod, code codes.Code) int {
	n := 0
	for _, i := range all {
		if err := i.failed(); err != nil && status.Code(err) == code {
			n++
		}
	}
	return n
}

func TestServer_BoundsStreams(t *testing.T) {
	bubble(t, "one address leaves room for others", func(t *testing.T) {
		g := startAccess(t, mcp.Access{})
		used := g.fifty("10.0.0.1", newType)
		if err := g.istiod("10.0.0.1", nil).failed(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one stream more of the address ended with %v, want ResourceExhausted", err)
		}
		g.says(0, "reason=streams", "address=10.0.0.1:", "setting=registries.mesh.istiod.import.clients.networks", "50 streams are open")
		g.counted(map[mcp.Refusal]int{mcp.RefusedStreams: 1})
		g.served(g.istiod("10.0.0.2", nil), 1)
		if n := ended(used, codes.ResourceExhausted); n != 0 {
			t.Errorf("%d streams of istiods ended, want none", n)
		}
		used[0].cancel()
		synctest.Wait() // the server has seen that
		g.served(g.istiod("10.0.0.1", nil), 1)
	})
	bubble(t, "there are a hundred over all", func(t *testing.T) {
		g := startAccess(t, mcp.Access{})
		g.fifty("10.0.0.1", newType)
		used := g.fifty("10.0.0.2", newType)
		if err := g.istiod("10.0.0.3", nil).failed(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one stream more than the limit ended with %v, want ResourceExhausted", err)
		}
		used[0].cancel()
		synctest.Wait() // the server has seen that
		g.served(g.istiod("10.0.0.3", nil), 1)
	})
	bubble(t, "one connection has ten", func(t *testing.T) {
		g := startAccess(t, mcp.Access{})
		conn := g.conn("10.0.0.1", nil)
		for range 10 {
			g.served(g.over(conn, &istiod{}, newType), 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx); err == nil {
			t.Error("an eleventh stream of the connection opened, want an error")
		}
	})
	bubble(t, "what asks for nothing ends in seconds", func(t *testing.T) {
		g := startAccess(t, mcp.Access{})
		silent := g.fifty("10.0.0.1")
		asking := g.over(g.conn("10.0.0.2", nil), &istiod{}, otherType)
		time.Sleep(4 * time.Second)
		if n := len(g.server.Readers()); n != 51 {
			t.Errorf("%d streams open after four seconds, want 51", n)
		}
		time.Sleep(2 * time.Second)
		if n := ended(silent, codes.DeadlineExceeded); n != 50 || len(g.server.Readers()) != 1 || asking.failed() != nil {
			t.Errorf("%d streams ended, %d open, the one that asks with %v, want 50, 1 and nil", n, len(g.server.Readers()), asking.failed())
		}
		g.says(0, "reason=silent", "nothing was requested within 5s")
		g.counted(map[mcp.Refusal]int{mcp.RefusedSilent: 50})
	})
	for name, from := range map[string][]string{
		"the oldest of an address that reads nothing is closed": {"10.0.0.1"},
		"the oldest of all that reads nothing is closed":        {"10.0.0.2", "10.0.0.1"},
	} {
		bubble(t, name, func(t *testing.T) {
			g := startAccess(t, mcp.Access{})
			var others []*istiod
			for _, address := range from {
				others = append(others, g.fifty(address, otherType)...)
			}
			next := "10.0.0.1"
			if len(from) > 1 {
				next = "10.0.0.3"
			}
			g.served(g.istiod(next, nil), 1)
			if err := others[0].failed(); status.Code(err) != codes.ResourceExhausted || ended(others, codes.ResourceExhausted) != 1 {
				t.Errorf("the oldest ended with %v, %d of all ended, want ResourceExhausted and 1", err, ended(others, codes.ResourceExhausted))
			}
			if n := len(g.server.Readers()); n != len(others) {
				t.Errorf("%d streams are open, want %d", n, len(others))
			}
			g.says(0, "reason=streams", "another stream replaced this one")
		})
	}
}

func TestServer_BoundsRequests(t *testing.T) {
	node := func(bytes int) *corev3.Node { return &corev3.Node{Id: strings.Repeat("n", bytes)} }
	names := func(n int) map[string]string {
		known := make(map[string]string, n)
		for i := range n {
			known[fmt.Sprintf("ns/host%07d", i)] = "version"
		}
		return known
	}
	for name, test := range map[string]struct {
		requests []*discovery.DeltaDiscoveryRequest
		says     string // what refused it; empty: it is answered
	}{
		"type at its bound":        {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: strings.Repeat("t", 300)}}},
		"type beyond":              {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: strings.Repeat("t", 301)}}, says: "type URL of 301 bytes"},
		"node at its bound":        {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: newType, Node: node(64<<10 - 4)}}},
		"node beyond":              {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: newType, Node: node(64 << 10)}}, says: "node of 65540 bytes"},
		"names at their bound":     {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: newType, InitialResourceVersions: names(12000)}}},
		"names beyond":             {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: newType, InitialResourceVersions: names(13000)}}, says: "initial resource versions of"},
		"names of two types":       {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: newType, InitialResourceVersions: names(7000)}, {TypeUrl: oldType, InitialResourceVersions: names(7000)}}, says: "initial resource versions of"},
		"names of types not ours":  {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: otherType, InitialResourceVersions: names(13000)}}},
		"request beyond a message": {requests: []*discovery.DeltaDiscoveryRequest{{TypeUrl: newType, ResourceNamesSubscribe: []string{strings.Repeat("x", 1<<20)}}}, says: "larger than max"},
	} {
		bubble(t, name, func(t *testing.T) {
			g := startAccess(t, mcp.Access{})
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(g.conn("10.0.0.1", nil)).DeltaAggregatedResources(t.Context())
			for _, r := range test.requests {
				if err == nil {
					err = stream.Send(r)
				}
			}
			for range test.requests {
				if err == nil {
					_, err = stream.Recv()
				}
			}
			if test.says == "" && err == nil {
				return
			}
			if test.says == "" || status.Code(err) != codes.ResourceExhausted {
				t.Fatalf("stream ended with %v, want a request that is refused: %q", err, test.says)
			}
			g.says(0, "reason=request", test.says)
			g.counted(map[mcp.Refusal]int{mcp.RefusedRequest: 1})
		})
	}
	for name, test := range map[string]struct{ bytes, hosts int }{
		"headers within their bound": {bytes: 8 << 10, hosts: 1},
		"headers beyond":             {bytes: 20 << 10, hosts: 0},
	} {
		bubble(t, name, func(t *testing.T) {
			g := startAccess(t, mcp.Access{})
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", test.bytes))
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(g.conn("10.0.0.1", nil)).StreamAggregatedResources(ctx)
			if err == nil {
				err = stream.Send(&discovery.DiscoveryRequest{TypeUrl: newType})
			}
			var res *discovery.DiscoveryResponse
			if err == nil {
				res, err = stream.Recv()
			}
			if n := len(res.GetResources()); n != test.hosts || (err == nil) != (n > 0) {
				t.Errorf("%d hosts, %v, want %d", n, err, test.hosts)
			}
		})
	}
}

// largeStream is a stream of requests for types that are not served, each of which
// says that the client has what is very large. It reads no answer before the end.
type largeStream struct {
	saidDelta

	left int
	held func()
}

func (s *largeStream) Send(*discovery.DeltaDiscoveryResponse) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

func (s *largeStream) Recv() (*discovery.DeltaDiscoveryRequest, error) {
	if s.left--; s.left < 0 {
		s.held()
		return nil, io.EOF
	}
	return &discovery.DeltaDiscoveryRequest{
		TypeUrl: fmt.Sprintf("a.b/v%d/Foo", s.left), InitialResourceVersions: map[string]string{"a": strings.Repeat("x", 4<<20)},
	}, nil
}

func TestServer_KeepsNothingOfOtherTypes(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var before, after uint64
	st := &largeStream{saidDelta: saidDelta{&said[*discovery.DeltaDiscoveryRequest]{ctx: ctx}}, left: 99, held: func() { after = heap() }}
	before = heap()
	if err := serving(t, mcp.ServerOptions{}).DeltaAggregatedResources(st); err != nil {
		t.Fatal(err)
	}
	if grew := int64(after-before) >> 20; grew > 32 {
		t.Errorf("one stream holds %d MiB, want at most 32", grew)
	}
}

func TestServer_DeltaInitialVersions(t *testing.T) {
	bubble(t, "and names no more of it once it is answered", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.put(greeter("api.b", "10.0.0.1"))
		r.target.SourcesComplete()
		a := decode(t, r.connect(newType).answers(newType)[0])[0].meta
		c := r.incremental()
		if err := c.stream.Send(&discovery.DeltaDiscoveryRequest{
			TypeUrl: newType, InitialResourceVersions: map[string]string{a.GetName(): a.GetVersion(), "xds-bridge/gone": "1"},
		}); err != nil {
			t.Fatal(err)
		}
		if changed, removed := c.next(t); !slices.Equal(changed, []string{"api.b"}) || !slices.Equal(removed, []string{"gone"}) {
			t.Errorf("first answer %v, removed %v, want api.b and gone", changed, removed)
		}
		r.put(greeter("api.b", "10.0.0.2"))
		if changed, removed := c.next(t); !slices.Equal(changed, []string{"api.b"}) || len(removed) != 0 {
			t.Errorf("after a change %v, removed %v, want api.b and none", changed, removed)
		}
	})
}
