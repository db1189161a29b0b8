package mcp_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// many returns so many addresses.
func many(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("10.1.%d.%d", i>>8, i&255)
	}
	return all
}

// unread is a client of the incremental form that asks for types, confirms the
// first answers and reads nothing more.
func (r *rig) unread(types ...string) discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	r.t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(r.dial()).DeltaAggregatedResources(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, typeURL := range types {
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{Node: istiodNode(r.t), TypeUrl: typeURL}); err != nil {
			r.t.Fatal(err)
		}
		res, err := stream.Recv()
		if err != nil {
			r.t.Fatal(err)
		}
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: res.GetNonce()}); err != nil {
			r.t.Fatal(err)
		}
	}
	return stream
}

func TestServer_SlowClientDelaysNoOther(t *testing.T) {
	bubble(t, "the target, the other istiods and its own end within a minute", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.large", "10.0.0.1"))
		r.target.SourcesComplete()
		other := r.connect(newType)
		types := []string{newType, oldType, "networking.istio.io/v1beta1/ServiceEntry"}
		for n := range 30 {
			types = append(types, fmt.Sprintf("networking.istio.io/v%d/ServiceEntry", n+2))
		}
		deaf := r.unread(types...)
		began := time.Now()
		r.put(greeter("api.large", many(20000)...))
		time.Sleep(time.Second)
		r.put(greeter("api.other", "10.0.0.9"))
		time.Sleep(time.Second)
		if got := other.entries(newType); len(got) != 2 {
			t.Errorf("the other istiod has %d hosts, want 2", len(got))
		}
		if n := len(r.server.Readers()); n != 2 {
			t.Errorf("%d readers after %v, want 2", n, time.Since(began))
		}
		time.Sleep(time.Minute)
		if left := r.server.Readers(); len(left) != 1 || left[0].Types != 1 {
			t.Errorf("readers %+v after %v, want the other one", left, time.Since(began))
		}
		for {
			if _, err := deaf.Recv(); err != nil {
				if status.Code(err) != codes.DeadlineExceeded {
					t.Error(err)
				}
				break
			}
		}
	})
	bubble(t, "a client that begins to read in time stays connected", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.large", many(20000)...))
		r.target.SourcesComplete()
		slow, resume := r.connectStalled(oldType, newType)
		time.Sleep(50 * time.Second)
		resume()
		time.Sleep(time.Hour)
		if err := slow.failed(); err != nil || len(slow.answers(newType)) != 1 {
			t.Errorf("stream ended with %v after %d answers, want none and 1", err, len(slow.answers(newType)))
		}
	})
}

// Only ServiceEntries of Istio's versions are served.
func TestServer_SupportedVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		types := map[string]int{
			newType: 1, oldType: 1, "networking.istio.io/v1beta1/ServiceEntry": 1,
			"networking.istio.io/v2/ServiceEntry": 0, "networking.istio.io//ServiceEntry": 0, "networking.istio.io/ServiceEntry": 0,
			"networking.istio.io/v1/x/ServiceEntry": 0, "networking.istio.io/v1/ServiceEntry/": 0, "networking.istio.io/v1/WorkloadEntry": 0,
		}
		for typeURL, want := range types {
			all := r.connect(typeURL).answers(typeURL)
			if len(all) != 1 || len(all[0].GetResources()) != want {
				t.Errorf("%s was answered %v, want once with %d", typeURL, all, want)
			}
		}
	})
}

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

// next returns the names that the next answer adds and removes, nothing
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

func TestServer_Delta(t *testing.T) {
	bubble(t, "a client that asks for differences gets what changed and no more", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.put(greeter("api.b", "10.0.0.2"))
		c := r.incremental()
		c.ask(t, newType, "")
		if changed, _ := c.next(t); len(changed) != 0 {
			t.Errorf("answer %v before the sources are complete, want none", changed)
		}
		r.target.SourcesComplete()
		if changed, removed := c.next(t); !slices.Equal(changed, []string{"api.a", "api.b"}) || len(removed) != 0 {
			t.Errorf("first answer %v, removed %v, want api.a and api.b", changed, removed)
		}
		r.put(greeter("api.b", "10.0.0.3"))
		if changed, removed := c.next(t); !slices.Equal(changed, []string{"api.b"}) || len(removed) != 0 {
			t.Errorf("after a change %v, removed %v, want api.b", changed, removed)
		}
		r.put(greeter("api.b", "10.0.0.3"))
		if changed, removed := c.next(t); len(changed)+len(removed) != 0 {
			t.Errorf("after no change %v, removed %v, want nothing", changed, removed)
		}
		groups, err := r.target.Groups(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.write(groups[0], nil)
		if changed, removed := c.next(t); len(changed) != 0 || !slices.Equal(removed, []string{"api.a"}) {
			t.Errorf("after a removal %v, removed %v, want api.a removed", changed, removed)
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
