package mcp_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// otherType is one that is not served.
const otherType = "networking.istio.io/v1/Gateway"

// fifty connects peers that ask for types from an address, ten to a connection.
func (g *guarded) fifty(address string, types ...string) []*istiod {
	g.t.Helper()
	var all []*istiod
	for range 5 {
		conn := g.conn(address, nil)
		for range 10 {
			all = append(all, g.over(conn, &istiod{}, "", types...))
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
		g := guard(t, mcp.Access{})
		taken := g.fifty("10.0.0.1", newType)
		if err := g.istiod("10.0.0.1", nil).failed(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more of the address: %v", err)
		}
		g.says(0, "reason=streams", "address=10.0.0.1:", "setting=registries.mesh.istiod.import.clients.networks", "50 streams are open")
		g.counted(map[mcp.Refusal]int{mcp.RefusedStreams: 1})
		g.served(g.istiod("10.0.0.2", nil), 1)
		if n := ended(taken, codes.ResourceExhausted); n != 0 {
			t.Errorf("%d that read what is served were ended", n)
		}
		taken[0].cancel()
		g.served(g.istiod("10.0.0.1", nil), 1)
	})
	bubble(t, "there are a hundred over all", func(t *testing.T) {
		g := guard(t, mcp.Access{})
		g.fifty("10.0.0.1", newType)
		taken := g.fifty("10.0.0.2", newType)
		if err := g.istiod("10.0.0.3", nil).failed(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more than there is room for: %v", err)
		}
		taken[0].cancel()
		g.served(g.istiod("10.0.0.3", nil), 1)
	})
	bubble(t, "one connection has ten", func(t *testing.T) {
		g := guard(t, mcp.Access{})
		conn := g.conn("10.0.0.1", nil)
		for range 10 {
			g.served(g.over(conn, &istiod{}, "", newType), 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx); err == nil {
			t.Error("an eleventh was opened")
		}
	})
	bubble(t, "what asks for nothing ends in seconds", func(t *testing.T) {
		g := guard(t, mcp.Access{})
		silent := g.fifty("10.0.0.1")
		asking := g.over(g.conn("10.0.0.2", nil), &istiod{}, "", otherType)
		time.Sleep(4 * time.Second)
		if n := len(g.server.Peers()); n != 51 {
			t.Errorf("%d streams are open after four seconds", n)
		}
		time.Sleep(2 * time.Second)
		if n := ended(silent, codes.DeadlineExceeded); n != 50 || len(g.server.Peers()) != 1 || asking.failed() != nil {
			t.Errorf("%d were ended, %d are open, and who asks: %v", n, len(g.server.Peers()), asking.failed())
		}
		g.says(0, "reason=silent", "nothing was asked for within 5s")
		g.counted(map[mcp.Refusal]int{mcp.RefusedSilent: 50})
	})
	for name, from := range map[string][]string{
		"the oldest of an address that reads nothing gives way": {"10.0.0.1"},
		"the oldest of all that reads nothing gives way":        {"10.0.0.2", "10.0.0.1"},
	} {
		bubble(t, name, func(t *testing.T) {
			g := guard(t, mcp.Access{})
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
				t.Errorf("the oldest ended with %v, of all %d", err, ended(others, codes.ResourceExhausted))
			}
			if n := len(g.server.Peers()); n != len(others) {
				t.Errorf("%d streams are open, want %d", n, len(others))
			}
			g.says(0, "reason=streams", "another stream took the place")
		})
	}
}
