package bench_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// watcher is a data plane that watches all endpoints in the incremental form,
// without a network: what is sent to it is confirmed at once.
type watcher struct {
	grpc.ServerStream

	ctx      context.Context //nolint:containedctx // as streams of grpc have it
	requests chan *discovery.DeltaDiscoveryRequest
	got      *sync.WaitGroup
}

func (w *watcher) Context() context.Context { return w.ctx }

func (w *watcher) Recv() (*discovery.DeltaDiscoveryRequest, error) {
	select {
	case r := <-w.requests:
		return r, nil
	case <-w.ctx.Done():
		return nil, io.EOF
	}
}

func (w *watcher) Send(r *discovery.DeltaDiscoveryResponse) error {
	w.requests <- &discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	w.got.Done()
	return nil
}

// fanOut returns how much processor time one change costs until as many
// watchers got it.
func fanOut(t *testing.T, watchers, changes int, serve func(stream.DeltaStream) error, change func(i int)) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running, got sync.WaitGroup
	defer running.Wait()
	defer cancel()
	got.Add(watchers)
	for range watchers {
		w := &watcher{ctx: ctx, requests: make(chan *discovery.DeltaDiscoveryRequest, 4), got: &got}
		w.requests <- &discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "envoy"}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"*"}}
		running.Go(func() { _ = serve(w) })
	}
	got.Wait()
	before := cpu(t)
	for i := range changes {
		got.Add(watchers)
		change(i)
		got.Wait()
	}
	return (cpu(t) - before) / time.Duration(changes)
}

// TestDataPlanes measures what a change of one endpoint costs while data planes
// watch all, next to go-control-plane's cache behind the same server.
func TestDataPlanes(t *testing.T) {
	const services = 10_000
	host := func(i int) string { return fmt.Sprintf("s%d.bridge.internal", i) }
	for _, watchers := range []int{1, 10, 100} {
		s := dataplane.NewServer(dataplane.Options{})
		entry := func(i, version int) dataplane.Entry {
			spec := &networking.ServiceEntry{Hosts: []string{host(i)}, Ports: []*networking.ServicePort{{Number: 20880, Name: "tcp", Protocol: "TCP"}}}
			for n := range perService {
				spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, n+1), Weight: uint32(version)})
			}
			return dataplane.Entry{Name: "xds-bridge/" + host(i), Spec: spec}
		}
		var all []dataplane.Entry
		for i := range services {
			all = append(all, entry(i, 1))
		}
		s.Update(all, nil)
		next := []dataplane.Entry{entry(17, 2), entry(17, 3)}
		ours := fanOut(t, watchers, 10_000/watchers, func(st stream.DeltaStream) error { return s.Delta(st.Context(), st, func(dataplane.Event) {}) },
			func(i int) { s.Update(next[i%2:i%2+1], nil) })

		linear := cache.NewLinearCache(resource.EndpointType, cache.WithLogger(log.NewDefaultLogger()))
		resources := make(map[string]types.Resource)
		for i := range services {
			resources[host(i)] = assignment(host(i), i, 1)
		}
		linear.SetResources(resources)
		server := delta.NewServer(t.Context(), linear, nil)
		following := []*endpointv3.ClusterLoadAssignment{assignment(host(17), 17, 2), assignment(host(17), 17, 3)}
		theirs := fanOut(t, watchers, 10, func(st stream.DeltaStream) error { return server.DeltaStreamHandler(st, resource.AnyType) },
			func(i int) { must(t, linear.UpdateResource(host(17), following[i%2])) })

		allowed := 20*time.Microsecond + time.Duration(watchers)*5*time.Microsecond
		results.add(t, row{
			what: fmt.Sprintf("one changed service of %d to %d data planes, CPU; LinearCache uses %s", services, watchers, short(theirs)),
			ours: short(ours), floor: short(allowed), ratio: float64(ours) / float64(allowed), limit: 1,
		})
	}
}

// assignment is the endpoints of a service as LinearCache is given them.
func assignment(name string, i, version int) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.LocalityLbEndpoints{}
	for n := range perService {
		out.LbEndpoints = append(out.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, n+1), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 20880}},
			}}}},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(version)),
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{out}}
}
