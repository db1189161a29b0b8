package istiod

import (
	"context"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// StreamAggregatedResources serves the state of the world.
func (s *Server) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(world{stream}, false)
}

// DeltaAggregatedResources serves delta.
func (s *Server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s.mu.Lock()
	lacking := s.faults.withoutDelta
	s.mu.Unlock()
	if lacking {
		return status.Errorf(codes.Unimplemented, "unknown method DeltaAggregatedResources")
	}
	return s.serve(delta{stream}, true)
}

// serve runs one stream. Like istiod, it handles requests and pushes in one goroutine, and receives
// in another.
func (s *Server) serve(t transport, delta bool) error {
	if err := s.admit(t.Context()); err != nil {
		return err
	}
	c := s.connect(t, delta)
	defer s.change(func() { delete(s.connections, c) })
	requests := make(chan Request)
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		c.receive(requests)
	}()
	for {
		var err error
		select {
		case <-broken:
			return nil
		case err := <-c.ended:
			return err
		case r := <-requests:
			err = c.handle(r)
		case <-c.woken:
			err = c.push()
		}
		if err != nil {
			return err
		}
	}
}

// admit rejects streams that istiod rejects before it reads a request.
func (s *Server) admit(ctx context.Context) error {
	s.mu.Lock()
	refuse, authorize := s.faults.refuse, s.authorize
	s.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	if authorize != nil {
		return authorize(ctx)
	}
	return nil
}

func (s *Server) connect(t transport, delta bool) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	c := &connection{
		server: s, transport: t, number: s.opened, since: time.Now(), delta: delta,
		watches: map[string]*watch{}, changed: map[string]map[string]struct{}{},
		woken: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	if p, ok := peer.FromContext(t.Context()); ok {
		c.address = p.Addr.String()
	}
	s.connections[c] = struct{}{}
	return c
}

type world struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
}

func (w world) receive() (Request, error) {
	r, err := w.Recv()
	if err != nil {
		return Request{}, err
	}
	return Request{
		Type: r.GetTypeUrl(), Node: r.GetNode(), Nonce: r.GetResponseNonce(), Error: r.GetErrorDetail(),
		Subscribe: r.GetResourceNames(), Version: r.GetVersionInfo(),
	}, nil
}

func (w world) send(a Answer) error {
	r := &discoveryv3.DiscoveryResponse{TypeUrl: a.Type, VersionInfo: a.Version, Nonce: a.Nonce}
	for _, res := range a.Resources {
		r.Resources = append(r.Resources, res.GetResource())
	}
	return w.Send(r)
}

type delta struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
}

func (d delta) receive() (Request, error) {
	r, err := d.Recv()
	if err != nil {
		return Request{}, err
	}
	return Request{
		Type: r.GetTypeUrl(), Node: r.GetNode(), Nonce: r.GetResponseNonce(), Error: r.GetErrorDetail(),
		Subscribe: r.GetResourceNamesSubscribe(), Unsubscribe: r.GetResourceNamesUnsubscribe(),
		Versions: r.GetInitialResourceVersions(),
	}, nil
}

func (d delta) send(a Answer) error {
	return d.Send(&discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: a.Type, SystemVersionInfo: a.Version, Nonce: a.Nonce,
		Resources: a.Resources, RemovedResources: a.Removed,
	})
}

// debugResource holds JSON as istiod sends it: raw bytes under the type URL.
func debugResource(name string, body []byte) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Resource: &anypb.Any{TypeUrl: DebugType, Value: body}}
}
