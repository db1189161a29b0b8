package mcp_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/naming"
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
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{Node: istiodNode(r.t, ""), TypeUrl: typeURL}); err != nil {
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

func TestAPeerThatDoesNotReadCostsItself(t *testing.T) {
	bubble(t, "the target, the other istiods and its own end within a minute", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.large", "10.0.0.1"))
		r.target.SourcesComplete()
		other := r.connect("", newType)
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
			t.Errorf("the other istiod has %d hosts", len(got))
		}
		if n := len(r.server.Readers()); n != 2 {
			t.Errorf("%d peers after %v", n, time.Since(began))
		}
		time.Sleep(time.Minute)
		if left := r.server.Readers(); len(left) != 1 || left[0].Types != 1 {
			t.Errorf("%v later there are %+v", time.Since(began), left)
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
	bubble(t, "what is begun to be read in time stays", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.large", many(20000)...))
		r.target.SourcesComplete()
		slow, resume := r.connectStalled(oldType, newType)
		time.Sleep(50 * time.Second)
		resume()
		time.Sleep(time.Hour)
		if err := slow.failed(); err != nil || len(slow.answers(newType)) != 1 {
			t.Errorf("%v after %d answers", err, len(slow.answers(newType)))
		}
	})
}

// What is not one of istio's versions is no ServiceEntry.
func TestOnlyIstiosVersionsAreServed(t *testing.T) {
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
			all := r.connect("", typeURL).answers(typeURL)
			if len(all) != 1 || len(all[0].GetResources()) != want {
				t.Errorf("%s was answered %v, want once with %d", typeURL, all, want)
			}
		}
	})
}

// An istiod that takes 200 ms to confirm a set while something changes
// every 100 ms.
func TestKeysOfAnyConfirmedSetAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []int
		r := start(t, mcp.Options{Confirmed: func(keys map[naming.ServiceKey]naming.HostAddress) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, len(keys))
		}})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		r.open(&istiod{takes: 200 * time.Millisecond}, "", newType)
		for n := range 600 {
			r.put(greeter("api.b", fmt.Sprintf("10.0.%d.%d", n>>8, n&255)))
			time.Sleep(100 * time.Millisecond)
		}
		r.put(greeter("api.c", "10.0.0.1"))
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(told) < 100 || told[0] != 1 || told[1] != 2 || told[len(told)-1] != 3 {
			t.Errorf("keys were told %d times: %v", len(told), told)
		}
	})
}

func TestAnOlderConfirmationDoesNotTakeKeysBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := 0
		r := start(t, mcp.Options{Confirmed: func(keys map[naming.ServiceKey]naming.HostAddress) {
			mu.Lock()
			defer mu.Unlock()
			told = len(keys)
		}})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		r.open(&istiod{takes: time.Minute}, "", newType)
		synctest.Wait()
		r.put(greeter("api.b", "10.0.0.1"))
		time.Sleep(time.Second)
		r.connect("", newType)
		time.Sleep(2 * time.Minute) // the slow one confirms what it was sent first, long after
		mu.Lock()
		defer mu.Unlock()
		if told != 2 {
			t.Errorf("%d keys are told, want both", told)
		}
	})
}
