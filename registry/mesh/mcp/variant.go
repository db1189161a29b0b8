package mcp

import (
	"context"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// sotw is the state of the world, which istiod speaks: each answer is the
// whole set.
type sotw struct {
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	target *Target
}

func (w sotw) receive() (request, error) {
	r, err := w.stream.Recv()
	if err != nil {
		return request{}, err //nolint:wrapcheck // a status of grpc, or io.EOF
	}
	return request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(),
		isNack: r.GetErrorDetail() != nil, refused: r.GetErrorDetail().GetMessage(),
	}, nil
}

func (w sotw) send(a answer) (nothing bool, err error) {
	res := &discovery.DiscoveryResponse{TypeUrl: a.to.typeURL, VersionInfo: a.set.version, Nonce: a.nonce}
	res.Resources = make([]*anypb.Any, 0, len(a.set.content))
	for _, r := range a.set.content {
		if w.target.isFor(r, a.revision) {
			res.Resources = append(res.Resources, r.wire)
		}
	}
	return false, w.stream.Send(res) //nolint:wrapcheck // a status of grpc
}

// delta is the incremental variant: each answer is what changed.
type delta struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	target *Target
}

func (d delta) receive() (request, error) {
	r, err := d.stream.Recv()
	if err != nil {
		return request{}, err //nolint:wrapcheck // a status of grpc, or io.EOF
	}
	return request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(), known: r.GetInitialResourceVersions(),
		isNack: r.GetErrorDetail() != nil, refused: r.GetErrorDetail().GetMessage(),
	}, nil
}

func (d delta) send(a answer) (nothing bool, err error) {
	res := &discovery.DeltaDiscoveryResponse{TypeUrl: a.to.typeURL, SystemVersionInfo: a.set.version, Nonce: a.nonce}
	first := a.before.set == nil
	had, next := a.to.known, d.versions(a.view)
	if !first {
		had = d.versions(a.before)
	}
	a.to.known = nil // from now on it is in the set that was sent, which all clients share
	for _, r := range a.set.content {
		if version, meant := next[r.name]; meant && had[r.name] != version {
			res.Resources = append(res.Resources, &discovery.Resource{Name: r.name, Version: r.version, Resource: r.wire})
		}
	}
	for name := range had {
		if _, still := next[name]; !still {
			res.RemovedResources = append(res.RemovedResources, name)
		}
	}
	if len(res.GetResources())+len(res.GetRemovedResources()) == 0 && !first {
		return true, nil
	}
	return false, d.stream.Send(res) //nolint:wrapcheck // a status of grpc
}

// versions returns the versions of what an istiod is sent, by resource.
func (d delta) versions(v view) map[string]string {
	versions := make(map[string]string, len(v.set.content))
	for _, r := range v.set.content {
		if d.target.isFor(r, v.revision) {
			versions[r.name] = r.version
		}
	}
	return versions
}

// isFor reports whether a resource is for an istiod of a revision.
func (t *Target) isFor(r *resource, revision string) bool {
	return !t.o.RevisionFilter || r.revision == "" || revision == "" || revision == r.revision
}

// An openedStream is a stream before its first request was read, in one of the two
// variants of the protocol: an istiod or a data plane may be asking.
type openedStream interface {
	istiod() istiodStream
	firstType() (typeURL string, err error) // reads the first request, which the others read again
	serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error
	slow() <-chan struct{} // ready once a client takes too long to read
}

// sotwStream is a stream of the state of the world whose first request may be
// read ahead.
type sotwStream struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	readTimer

	target *Target
	ahead  *discovery.DiscoveryRequest
}

func (s *sotwStream) istiod() istiodStream { return sotw{s, s.target} }

func (s *sotwStream) firstType() (string, error) {
	r, err := s.Recv()
	s.ahead = r
	return r.GetTypeUrl(), err
}

func (s *sotwStream) serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error {
	return to.Stream(ctx, s, observe) //nolint:wrapcheck // a status of grpc
}

// Recv implements the stream of grpc.
func (s *sotwStream) Recv() (*discovery.DiscoveryRequest, error) {
	if r := s.ahead; r != nil {
		s.ahead = nil
		return r, nil
	}
	return s.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Recv() //nolint:wrapcheck // a status of grpc, or io.EOF
}

// Send implements the stream of grpc.
func (s *sotwStream) Send(r *discovery.DiscoveryResponse) error {
	defer s.sending()()
	return s.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Send(r) //nolint:wrapcheck // a status of grpc
}

// deltaStream is a stream of the incremental variant whose first request may
// be read ahead.
type deltaStream struct {
	discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	readTimer

	target *Target
	ahead  *discovery.DeltaDiscoveryRequest
}

func (d *deltaStream) istiod() istiodStream { return delta{d, d.target} }

func (d *deltaStream) firstType() (string, error) {
	r, err := d.Recv()
	d.ahead = r
	return r.GetTypeUrl(), err
}

func (d *deltaStream) serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error {
	return to.Delta(ctx, d, observe) //nolint:wrapcheck // a status of grpc
}

// Recv implements the stream of grpc.
func (d *deltaStream) Recv() (*discovery.DeltaDiscoveryRequest, error) {
	if r := d.ahead; r != nil {
		d.ahead = nil
		return r, nil
	}
	return d.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Recv() //nolint:wrapcheck // a status of grpc, or io.EOF
}

// Send implements the stream of grpc.
func (d *deltaStream) Send(r *discovery.DeltaDiscoveryResponse) error {
	defer d.sending()()
	return d.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Send(r) //nolint:wrapcheck // a status of grpc
}

// readTimer times how long a client takes to read.
type readTimer struct{ late chan struct{} }

func newReadTimer() readTimer { return readTimer{make(chan struct{}, 1)} }

func (t readTimer) slow() <-chan struct{} { return t.late }

// sending is called before an answer is sent, and what it returns afterwards.
func (t readTimer) sending() func() bool {
	return time.AfterFunc(readWithin, func() {
		select {
		case t.late <- struct{}{}:
		default:
		}
	}).Stop
}
