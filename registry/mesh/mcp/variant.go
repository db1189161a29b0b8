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

// A protocolVariant is a stream in one of the two variants of the protocol. The client may
// be an istiod or a data plane.
type protocolVariant interface {
	istiodStream

	// firstType reads the first request, which receive and serve read again.
	firstType() (typeURL string, err error)

	// serve answers a data plane.
	serve(ctx context.Context, by *dataplane.Server, observe func(dataplane.Event)) error

	slow() <-chan struct{} // ready once a client is too slow to read
}

// An istiodStream is the stream of an istiod. What answer returns sends the next set;
// nil: it does not differ from the last.
type istiodStream interface {
	receive() (xdsRequest, error)
	answer(to *typeSubscription, next *servedSnapshot, nonce string) (send func() error)
}

// A grpcStream is a stream of gRPC whose first request may be read ahead. It limits
// the time in which the client reads an answer.
type grpcStream[Request xdsRequest, Response any] struct {
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

// A xdsRequest asks for a type, and confirms or refuses an answer, in either variant.
type xdsRequest interface {
	GetNode() *corev3.Node
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *statuspb.Status
}

func newGRPCStream[Request xdsRequest, Response any](over rpc[Request, Response]) grpcStream[Request, Response] {
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
	return s.rpc.Recv()
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
	return s.rpc.Send(r)
}

func (s *grpcStream[Request, Response]) slow() <-chan struct{} { return s.late }

func (s *grpcStream[Request, Response]) receive() (xdsRequest, error) { return s.Recv() }

// sotwStream is the state-of-the-world variant, which istiod speaks: each answer is the
// whole set.
type sotwStream struct {
	grpcStream[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]
}

func (s *sotwStream) serve(ctx context.Context, by *dataplane.Server, observe func(dataplane.Event)) error {
	return by.Stream(ctx, s, observe)
}

func (s *sotwStream) answer(to *typeSubscription, next *servedSnapshot, nonce string) func() error {
	res := &discovery.DiscoveryResponse{TypeUrl: to.typeURL, VersionInfo: next.version, Nonce: nonce}
	res.Resources = make([]*anypb.Any, len(next.content))
	for i, r := range next.content {
		res.Resources[i] = r.wire
	}
	return func() error { return s.Send(res) }
}

// deltaStream is the incremental variant: each answer is what changed.
type deltaStream struct {
	grpcStream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]
}

func (d *deltaStream) serve(ctx context.Context, by *dataplane.Server, observe func(dataplane.Event)) error {
	return by.Delta(ctx, d, observe)
}

func (d *deltaStream) answer(to *typeSubscription, next *servedSnapshot, nonce string) func() error {
	changed, removed := next.since(to.last)
	if to.last == nil {
		changed, removed = next.sinceKnown(to.known)
	} else if len(changed)+len(removed) == 0 {
		return nil
	}
	res := &discovery.DeltaDiscoveryResponse{TypeUrl: to.typeURL, SystemVersionInfo: next.version, Nonce: nonce, RemovedResources: removed}
	for _, r := range changed {
		res.Resources = append(res.Resources, &discovery.Resource{Name: r.name, Version: r.version, Resource: r.wire})
	}
	return func() error { return d.Send(res) }
}
