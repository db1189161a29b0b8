package mcp

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// A variant is a stream in one of the two variants of the protocol. The client may
// be an istiod or a data plane.
type variant interface {
	istiodStream
	dataPlaneStream
}

// An istiodStream is the stream of an istiod. Each of its methods is used by one
// goroutine.
type istiodStream interface {
	receive() (request, error)
	send(a answer) (nothing bool, err error)
}

// A dataPlaneStream is the stream of a data plane.
type dataPlaneStream interface {
	firstType() (typeURL string, err error) // reads the first request, which receive and serve read again
	serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error
	slow() <-chan struct{} // ready once a client is too slow to read
}

// A grpcStream is a stream of gRPC whose first request may be read ahead. It limits
// the time in which the client reads an answer.
type grpcStream[Request protocolRequest, Response any] struct {
	rpc[Request, Response]

	ahead   Request
	isAhead bool
	late    chan struct{}
}

type rpc[Request, Response any] interface {
	grpc.ServerStream
	Recv() (Request, error)
	Send(response Response) error
}

// A protocolRequest is what both variants have of a request.
type protocolRequest interface {
	GetNode() *corev3.Node
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *statuspb.Status
}

func newGRPCStream[Request protocolRequest, Response any](over rpc[Request, Response]) grpcStream[Request, Response] {
	return grpcStream[Request, Response]{rpc: over, late: make(chan struct{}, 1)}
}

func (s *grpcStream[Request, Response]) firstType() (string, error) {
	r, err := s.rpc.Recv()
	s.ahead, s.isAhead = r, err == nil
	return r.GetTypeUrl(), err
}

// Recv implements the stream of grpc.
func (s *grpcStream[Request, Response]) Recv() (Request, error) {
	if s.isAhead {
		s.isAhead = false
		return s.ahead, nil
	}
	return s.rpc.Recv() //nolint:wrapcheck // a status of grpc, or io.EOF
}

// Send implements the stream of grpc.
func (s *grpcStream[Request, Response]) Send(r Response) error {
	timer := time.AfterFunc(readWithin, func() {
		select {
		case s.late <- struct{}{}:
		default:
		}
	})
	defer timer.Stop()
	return s.rpc.Send(r) //nolint:wrapcheck // a status of grpc
}

func (s *grpcStream[Request, Response]) slow() <-chan struct{} { return s.late }

func (s *grpcStream[Request, Response]) receive() (request, error) {
	r, err := s.Recv()
	if err != nil {
		return request{}, err
	}
	out := request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(),
		isNack: r.GetErrorDetail() != nil, refused: r.GetErrorDetail().GetMessage(),
	}
	if incremental, ok := any(r).(*discovery.DeltaDiscoveryRequest); ok {
		out.known = incremental.GetInitialResourceVersions()
	}
	return out, nil
}

// sotw is the state-of-the-world variant, which istiod speaks: each answer is the
// whole set.
type sotw struct {
	grpcStream[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]
}

func (s *sotw) serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error {
	return to.Stream(ctx, s, observe) //nolint:wrapcheck // a status of grpc
}

func (s *sotw) send(a answer) (nothing bool, err error) {
	res := &discovery.DiscoveryResponse{TypeUrl: a.to.typeURL, VersionInfo: a.set.version, Nonce: a.nonce}
	res.Resources = make([]*anypb.Any, 0, len(a.set.content))
	for _, r := range a.set.content {
		if a.has(r) {
			res.Resources = append(res.Resources, r.wire)
		}
	}
	return false, s.Send(res)
}

// delta is the incremental variant: each answer is what changed.
type delta struct {
	grpcStream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]
}

func (d *delta) serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error {
	return to.Delta(ctx, d, observe) //nolint:wrapcheck // a status of grpc
}

func (d *delta) send(a answer) (nothing bool, err error) {
	res := &discovery.DeltaDiscoveryResponse{TypeUrl: a.to.typeURL, SystemVersionInfo: a.set.version, Nonce: a.nonce}
	first := a.before.set == nil
	had, next := a.to.known, a.versions()
	if !first {
		had = a.before.versions()
	}
	a.to.known = nil // the set that was sent, which all clients share, replaces it
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
	return false, d.Send(res)
}
