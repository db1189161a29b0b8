package dataplane_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

const (
	one = "outbound|80||one.internal"
	two = "outbound|80||two.internal"
)

func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStream(t *testing.T) {
	bubble(t, "nothing is answered before there is anything", func(t *testing.T) {
		r := start(t)
		w := r.world(node("shop"))
		expect(t, w.drain())
		r.put()
		expect(t, w.drain(), "Cluster: ")
	})
	bubble(t, "clusters come whole, endpoints as they change", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"), entry("two.internal", "HTTP", 80, "10.0.0.2"))
		w := r.world(node("shop"))
		w.ask(endpointType, one, two)
		expect(t, w.drain(), "Cluster: "+one+" "+two, "ClusterLoadAssignment: "+one+" "+two)
		r.put(entry("two.internal", "HTTP", 80, "10.0.0.3"))
		expect(t, w.drain(), "ClusterLoadAssignment: "+two)
		r.put(entry("two.internal", "HTTP", 80, "10.0.0.3"))
		expect(t, w.drain())
	})
	bubble(t, "names that are added are answered, those of others are not", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"), entry("two.internal", "HTTP", 80, "10.0.0.2"))
		w := r.world(node("shop"))
		w.ask(endpointType, one)
		w.drain()
		w.ask(endpointType, one, two)
		expect(t, w.drain(), "ClusterLoadAssignment: "+two)
		w.ask(endpointType, two)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.4"))
		expect(t, w.drain())
	})
	bubble(t, "a wildcard does not include what gRPC requests by name", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		w := r.world(node("shop"))
		w.ask(endpointType, one)
		w.drain()
		w.ask(listenerType)
		expect(t, w.drain(), "Listener: 0.0.0.0_80")
		w.ask(listenerType, "one.internal:80", "nobody:80")
		expect(t, w.drain(), "Listener: one.internal:80")
	})
	bubble(t, "a node without an id is refused", func(t *testing.T) {
		r := start(t)
		w := r.world(nil)
		if status.Code(w.err) != codes.InvalidArgument {
			t.Errorf("stream ended with %v, want InvalidArgument", w.err)
		}
	})
	bubble(t, "a type of which nothing is served is answered with nothing", func(t *testing.T) {
		r := start(t)
		w := r.world(node("shop"))
		w.ask("type.googleapis.com/envoy.service.runtime.v3.Runtime", "layer")
		expect(t, w.drain(), "Runtime: ")
		r.put()
		expect(t, w.drain(), "Cluster: ")
	})
	bubble(t, "a stream asks for no more types than it has room for", func(t *testing.T) {
		r := start(t)
		w := r.world(node("shop"))
		for i := range 10 {
			w.ask(fmt.Sprintf("type.googleapis.com/envoy.Type%d", i))
		}
		if status.Code(w.err) != codes.ResourceExhausted {
			t.Errorf("stream ended with %v, want ResourceExhausted", w.err)
		}
	})
	bubble(t, "nor for more names", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		d := r.differences(node("shop"), subscribe(endpointType, one))
		for n := range 3 {
			names := make([]string, 90_000)
			for i := range names {
				names[i] = strconv.Itoa(n*len(names) + i)
			}
			if err := d.stream.Send(subscribe(endpointType, names...)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if status.Code(d.failed()) != codes.ResourceExhausted {
			t.Errorf("stream ended with %v, want ResourceExhausted", d.failed())
		}
	})
	bubble(t, "a rejection is reported once, and nothing is sent again because of it", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		w := r.world(node("shop"))
		w.refuse[endpointType] = "no such locality"
		w.ask(endpointType, one)
		expect(t, w.drain(), "Cluster: "+one, "ClusterLoadAssignment: "+one)
		nacks := r.seen(dataplane.EventNack)
		if len(nacks) != 1 || nacks[0].Message != "no such locality" || nacks[0].TypeURL != endpointType || nacks[0].Node != node("shop").GetId() {
			t.Errorf("refusals %+v, want one of the endpoints", nacks)
		}
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.2"))
		expect(t, w.drain(), "ClusterLoadAssignment: "+one)
	})
}

func TestMakeBeforeBreak(t *testing.T) {
	bubble(t, "routes wait for the endpoints of new clusters", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		w := r.world(node("shop"))
		w.ask(endpointType, one)
		w.ask(listenerType)
		w.ask(routeType, "80")
		w.drain()
		r.put(entry("two.internal", "HTTP", 80, "10.0.0.2"))
		expect(t, w.drain(), "Cluster: "+one+" "+two)
		w.ask(endpointType, one, two)
		expect(t, w.drain(), "ClusterLoadAssignment: "+two, "RouteConfiguration: 80")
	})
	bubble(t, "but not for ever", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		w := r.world(node("shop"))
		w.ask(routeType, "80")
		expect(t, w.drain(), "Cluster: "+one)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		expect(t, w.drain(), "RouteConfiguration: 80")
	})
	bubble(t, "clusters outlive the routes to them", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"), entry("two.internal", "HTTP", 80, "10.0.0.2"))
		w := r.world(node("shop"))
		w.ask(endpointType, one, two)
		w.ask(routeType, "80")
		w.drain()
		r.remove("imported/two.internal")
		expect(t, w.drain(), "RouteConfiguration: 80")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		expect(t, w.drain(), "Cluster: "+one)
	})
	bubble(t, "one that comes back meanwhile stays", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		d := r.differences(node("shop"), subscribe(clusterType, "*"))
		r.remove("imported/one.internal")
		time.Sleep(5 * time.Second)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, d.drain(), "Cluster: "+one)
	})
}

func TestDelta(t *testing.T) {
	bubble(t, "what changed is all that is sent", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"), entry("two.internal", "HTTP", 80, "10.0.0.2"))
		d := r.differences(node("shop"), subscribe(endpointType, "*"))
		expect(t, d.drain(), "ClusterLoadAssignment: "+one+" "+two)
		r.put(entry("two.internal", "HTTP", 80, "10.0.0.3"))
		expect(t, d.drain(), "ClusterLoadAssignment: "+two)
		r.remove("imported/one.internal")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		expect(t, d.drain(), "ClusterLoadAssignment: -"+one)
	})
	bubble(t, "an unknown name is reported as removed, and sent once it exists", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		d := r.differences(node("shop"), subscribe(endpointType, one, two))
		expect(t, d.drain(), "ClusterLoadAssignment: -"+two+" "+one)
		r.put(entry("two.internal", "HTTP", 80, "10.0.0.3"))
		expect(t, d.drain(), "ClusterLoadAssignment: "+two)
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: endpointType, ResourceNamesUnsubscribe: []string{one}})
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.5"))
		expect(t, d.drain())
	})
	bubble(t, "a client that reconnects gets what it does not have", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"), entry("two.internal", "HTTP", 80, "10.0.0.2"))
		d := r.differences(node("shop"), subscribe(endpointType, "*"))
		d.cancel()
		synctest.Wait() // else it may receive what follows
		r.put(entry("two.internal", "HTTP", 80, "10.0.0.3"))
		again := subscribe(endpointType, "*")
		again.InitialResourceVersions = map[string]string{"outbound|80||gone.internal": "1", one: d.versions[one], two: d.versions[two]}
		expect(t, r.differences(node("shop"), again).drain(), "ClusterLoadAssignment: -outbound|80||gone.internal "+two)
		named := subscribe(endpointType, one, two)
		named.InitialResourceVersions = map[string]string{one: d.versions[one], two: d.versions[two]}
		expect(t, r.differences(node("shop"), named).drain(), "ClusterLoadAssignment: "+two)
	})
	bubble(t, "changes gather while a client confirms nothing", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		d := r.differences(node("shop"), subscribe(endpointType, one))
		d.mu.Lock()
		d.mute = true
		d.mu.Unlock()
		d.drain()
		for n := range 5 {
			r.put(entry("one.internal", "HTTP", 80, fmt.Sprintf("10.0.1.%d", n)))
		}
		expect(t, d.drain(), "ClusterLoadAssignment: "+one)
		d.mu.Lock()
		d.mute = false
		d.mu.Unlock()
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: endpointType, ResponseNonce: "2"})
		expect(t, d.drain(), "ClusterLoadAssignment: "+one)
	})
	bubble(t, "one that missed too much has to start again", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"))
		d := r.differences(node("shop"), subscribe(endpointType, "*"))
		d.mu.Lock()
		d.mute = true
		d.mu.Unlock()
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.2"))
		entries, names := others(10_001)
		r.put(entries...)
		r.server.Update(nil, names)
		time.Sleep(11 * time.Second)
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: endpointType, ResponseNonce: "2"})
		if status.Code(d.failed()) != codes.Aborted {
			t.Errorf("stream ended with %v, want Aborted", d.failed())
		}
	})
}

// others makes so many entries, and the names of them.
func others(n int) (entries []dataplane.Entry, names []string) {
	for i := range n {
		e := entry(fmt.Sprintf("h%d.internal", i), "TCP", 80)
		entries, names = append(entries, e), append(names, e.Name)
	}
	return entries, names
}

func TestStream_UnrelatedChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", 80, "10.0.0.1"), entry("two.internal", "HTTP", 80, "10.0.0.2"))
		d := r.differences(node("shop"), subscribe(endpointType, one))
		entries, names := others(10_001)
		r.put(entries...)
		r.server.Update(nil, names)
		time.Sleep(11 * time.Second)
		d.send(subscribe(endpointType, two))
		expect(t, d.drain(), "ClusterLoadAssignment: "+one, "ClusterLoadAssignment: "+two)
		if err := d.failed(); err != nil {
			t.Errorf("stream ended with %v, want it open", err)
		}
	})
}

func TestExportTo(t *testing.T) {
	const port = 80
	restricted := func(namespaces ...string) dataplane.Entry {
		e := entry("two.internal", "HTTP", port, "10.0.0.2")
		e.Spec.ExportTo = namespaces
		return e
	}
	bubble(t, "a namespace sees what is exported to it", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", port, "10.0.0.1"), restricted("shop"))
		inside := r.differences(node("shop"), subscribe(clusterType, "*"))
		outside := r.differences(node("bank"), subscribe(clusterType, "*"))
		expect(t, inside.drain(), "Cluster: "+one+" "+two)
		expect(t, outside.drain(), "Cluster: "+one)
		r.put(restricted("bank"))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		expect(t, inside.drain(), "Cluster: -"+two)
		expect(t, outside.drain(), "Cluster: "+two)
	})
	bubble(t, "and has routes of its own for as long as that differs", func(t *testing.T) {
		r := start(t)
		r.put(entry("one.internal", "HTTP", port, "10.0.0.1"), restricted("shop"))
		inside := r.differences(node("shop"), subscribe(routeType, "80"))
		outside := r.differences(node("bank"), subscribe(routeType, "80"))
		expect(t, inside.drain(), "RouteConfiguration: 80")
		expect(t, outside.drain(), "RouteConfiguration: 80")
		if inside.versions["80"] == outside.versions["80"] {
			t.Errorf("both have routes of version %s, want different ones", inside.versions["80"])
		}
		r.put(restricted())
		expect(t, inside.drain(), "RouteConfiguration: 80")
		expect(t, outside.drain(), "RouteConfiguration: 80")
		if inside.versions["80"] != outside.versions["80"] {
			t.Errorf("routes of versions %s and %s, want the same", inside.versions["80"], outside.versions["80"])
		}
	})
	bubble(t, "what a namespace never saw is not said to be gone", func(t *testing.T) {
		r := start(t)
		r.put(restricted("."))
		outside := r.differences(node("bank"), subscribe(clusterType, "*"))
		inside := r.differences(node("imported"), subscribe(clusterType, "*"))
		expect(t, outside.drain(), "Cluster: ")
		expect(t, inside.drain(), "Cluster: "+two)
		r.remove("imported/two.internal")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		expect(t, outside.drain())
		expect(t, inside.drain(), "Cluster: -"+two)
	})
}
