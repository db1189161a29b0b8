package mcp_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// incremental is a client that asks for differences.
type incremental struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	got    chan *discovery.DeltaDiscoveryResponse
}

func (r *rig) incremental() *incremental {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(r.dial()).DeltaAggregatedResources(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &incremental{stream: stream, got: make(chan *discovery.DeltaDiscoveryResponse, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			res, err := stream.Recv()
			if err != nil {
				return
			}
			c.got <- res
		}
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	return c
}

// ask sends a request for a type: the first without, a confirmation with a
// nonce.
func (c *incremental) ask(t *testing.T, typeURL, nonce string) {
	t.Helper()
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: nonce}
	if nonce == "" {
		req.ResourceNamesSubscribe = []string{"*"}
	}
	if err := c.stream.Send(req); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// next returns the names that the next answer brings and takes away, nothing
// where there is none, and confirms it.
func (c *incremental) next(t *testing.T) (changed, removed []string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	select {
	case res := <-c.got:
		for _, r := range res.GetResources() {
			changed = append(changed, short(r.GetName()))
		}
		for _, name := range res.GetRemovedResources() {
			removed = append(removed, short(name))
		}
		slices.Sort(changed)
		c.ask(t, res.GetTypeUrl(), res.GetNonce())
	default:
	}
	return changed, removed
}

func short(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, "xds-bridge/"), ".k0-0-tri.zk1.bridge.internal")
}

func TestDelta(t *testing.T) {
	bubble(t, "a client that asks for differences gets what changed and no more", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.put(greeter("api.b", "10.0.0.2"))
		c := r.incremental()
		c.ask(t, newType, "")
		if changed, _ := c.next(t); len(changed) != 0 {
			t.Errorf("%v before the target settled", changed)
		}
		r.target.SourcesComplete()
		if changed, removed := c.next(t); !slices.Equal(changed, []string{"api.a", "api.b"}) || len(removed) != 0 {
			t.Errorf("first %v, %v", changed, removed)
		}
		r.put(greeter("api.b", "10.0.0.3"))
		if changed, removed := c.next(t); !slices.Equal(changed, []string{"api.b"}) || len(removed) != 0 {
			t.Errorf("after a change %v, %v", changed, removed)
		}
		r.put(greeter("api.b", "10.0.0.3"))
		if changed, removed := c.next(t); len(changed)+len(removed) != 0 {
			t.Errorf("after none %v, %v", changed, removed)
		}
		groups, err := r.target.Groups(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.write(groups[0], nil)
		if changed, removed := c.next(t); len(changed) != 0 || !slices.Equal(removed, []string{"api.a"}) {
			t.Errorf("after a removal %v, %v", changed, removed)
		}
	})
	bubble(t, "types that are not ours are answered once with nothing", func(t *testing.T) {
		r := start(t, mcp.Options{})
		c := r.incremental()
		c.ask(t, "networking.istio.io/v1/Gateway", "")
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(c.got); n != 1 {
			t.Errorf("%d answers, want one", n)
		}
	})
}
