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

// A protocolVariant is a gRPC stream in one of the two variants of xDS. Its client may be an
// istiod or a data plane.
type protocolVariant interface {
	istiodStream

	// peekType returns the type of the first request. receive and serve return that
	// request again.
	peekType() (typeURL string, err error)

	// serve serves a data plane until the stream ends.
	serve(ctx context.Context, by *dataplane.Server, observe func(dataplane.Event)) error

	// slow is ready once the client took too long to read a response.
	slow() <-chan struct{}
}

// An istiodStream is a stream whose client is an istiod.
type istiodStream interface {
	receive() (xdsRequest, error)

	// response returns a function that sends a set as a response, or nil if the client
	// already has everything in the set.
	response(to *typeSubscription, next *servedSnapshot, nonce string) (send func() error)
}

// A grpcStream is a gRPC stream whose first request can be peeked at. It reports a client
// that takes too long to read a response.
type grpcStream[Request xdsRequest, Response any] struct {
	rpc[Request, Response]

	peeked    Request
	hasPeeked bool
	late      chan struct{}
}

type rpc[Request, Response any] interface {
	grpc.ServerStream
	Recv() (Request, error)
	Send(response Response) error
}

// An xdsRequest is a request of either variant: it requests a type, or confirms or rejects a
// response.
type xdsRequest interface {
	GetNode() *corev3.Node
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *statuspb.Status
}

func newGRPCStream[Request xdsRequest, Response any](over rpc[Request, Response]) grpcStream[Request, Response] {
	return grpcStream[Request, Response]{rpc: over, late: make(chan struct{}, 1)}
}

func (s *grpcStream[Request, Response]) peekType() (string, error) {
	r, err := s.rpc.Recv()
	s.peeked, s.hasPeeked = r, err == nil
	return r.GetTypeUrl(), err
}

// Recv returns the peeked request if there is one, and else receives the next.
func (s *grpcStream[Request, Response]) Recv() (Request, error) {
	if s.hasPeeked {
		s.hasPeeked = false
		return s.peeked, nil
	}
	return s.rpc.Recv()
}

// Send sends a response. Once the client has not read it within readAnswerWithin, slow is
// ready.
func (s *grpcStream[Request, Response]) Send(r Response) error {
	timer := time.AfterFunc(readResponseWithin, func() {
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

// sotwStream is the state-of-the-world variant, which istiod uses: each response is the
// whole set.
type sotwStream struct {
	grpcStream[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]
}

func (s *sotwStream) serve(ctx context.Context, by *dataplane.Server, observe func(dataplane.Event)) error {
	return by.Stream(ctx, s, observe)
}

func (s *sotwStream) response(to *typeSubscription, next *servedSnapshot, nonce string) func() error {
	res := &discovery.DiscoveryResponse{TypeUrl: to.typeURL, VersionInfo: next.version, Nonce: nonce}
	res.Resources = make([]*anypb.Any, len(next.resources))
	for i, r := range next.resources {
		res.Resources[i] = r.wire
	}
	return func() error { return s.Send(res) }
}

// deltaStream is the incremental variant: each response has the changes since the last one.
type deltaStream struct {
	grpcStream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]
}

func (d *deltaStream) serve(ctx context.Context, by *dataplane.Server, observe func(dataplane.Event)) error {
	return by.Delta(ctx, d, observe)
}

func (d *deltaStream) response(to *typeSubscription, next *servedSnapshot, nonce string) func() error {
	changed, removed := next.changesSince(to.lastSent)
	if to.lastSent == nil {
		changed, removed = next.changesSinceVersions(to.initialVersions)
	} else if len(changed)+len(removed) == 0 {
		return nil
	}
	res := &discovery.DeltaDiscoveryResponse{
		TypeUrl: to.typeURL, SystemVersionInfo: next.version, Nonce: nonce, RemovedResources: removed,
	}
	for _, r := range changed {
		res.Resources = append(res.Resources, &discovery.Resource{Name: r.name, Version: r.version, Resource: r.wire})
	}
	return func() error { return d.Send(res) }
}
