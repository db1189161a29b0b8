package ads

import (
	"context"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// resourceURL is the type URL of the envelope of a resource, which holds the name, the
// version and the time to live.
const resourceURL = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// discoveryRequest is one message to the server, for both variants of the protocol.
type discoveryRequest struct {
	url   string
	node  *corev3.Node // only in the first request of a stream
	nonce string       // of the response that this ACK or NACK answers; empty: neither
	err   error        // NACK: why that response is rejected

	// State of the world. subscribe is not sent: it lists the new names among names.
	version string // last accepted
	names   []string

	// Delta.
	subscribe, unsubscribe []string
	versions               map[string]string // of cached resources; only in the first request of a type
}

// discoveryResponse is one message of the server, for both variants of the protocol.
type discoveryResponse struct {
	url, version, nonce string
	resources           []rawResource
	removed             []string // delta
}

// rawResource is one undecoded resource.
type rawResource struct {
	name      string // in the envelope; the resource itself may have another
	named     bool   // it is in an envelope
	version   string
	data      []byte
	heartbeat bool  // no resource: the envelope only renews the time to live
	err       error // the type is wrong, or the envelope cannot be read
}

// size returns the number of bytes of the resources.
func (r discoveryResponse) size() int {
	n := 0
	for i := range r.resources {
		n += len(r.resources[i].data)
	}
	return n
}

// wireStream is an open gRPC stream of one variant. One goroutine may call send while another
// calls recv.
type wireStream interface {
	send(r discoveryRequest) error
	recv() (discoveryResponse, error)
}

func openWireStream(ctx context.Context, conn *grpc.ClientConn, m Mode) (wireStream, error) {
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if m == StateOfTheWorld {
		s, err := client.StreamAggregatedResources(ctx)
		return sotwWireStream{s}, err
	}
	s, err := client.DeltaAggregatedResources(ctx)
	return deltaWireStream{s}, err
}

type deltaWireStream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (s deltaWireStream) send(r discoveryRequest) error {
	return s.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node:                     r.node,
		TypeUrl:                  r.url,
		ResourceNamesSubscribe:   r.subscribe,
		ResourceNamesUnsubscribe: r.unsubscribe,
		InitialResourceVersions:  r.versions,
		ResponseNonce:            r.nonce,
		ErrorDetail:              errorDetail(r.err),
	})
}

func (s deltaWireStream) recv() (discoveryResponse, error) {
	m, err := s.Recv()
	if err != nil {
		return discoveryResponse{}, err
	}
	r := discoveryResponse{
		url: m.GetTypeUrl(), version: m.GetSystemVersionInfo(), nonce: m.GetNonce(),
		removed: m.GetRemovedResources(), resources: make([]rawResource, 0, len(m.GetResources())),
	}
	for _, res := range m.GetResources() {
		r.resources = append(r.resources, unwrapEnvelope(res, r.url))
	}
	return r, nil
}

type sotwWireStream struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func (s sotwWireStream) send(r discoveryRequest) error {
	return s.Send(&discoveryv3.DiscoveryRequest{
		Node:          r.node,
		TypeUrl:       r.url,
		VersionInfo:   r.version,
		ResourceNames: r.names,
		ResponseNonce: r.nonce,
		ErrorDetail:   errorDetail(r.err),
	})
}

func (s sotwWireStream) recv() (discoveryResponse, error) {
	m, err := s.Recv()
	if err != nil {
		return discoveryResponse{}, err
	}
	r := discoveryResponse{
		url: m.GetTypeUrl(), version: m.GetVersionInfo(), nonce: m.GetNonce(),
		resources: make([]rawResource, 0, len(m.GetResources())),
	}
	for _, body := range m.GetResources() {
		r.resources = append(r.resources, readResource(body, r.url))
	}
	return r, nil
}

// unwrapEnvelope reads the resource in an envelope. url is its expected type.
func unwrapEnvelope(r *discoveryv3.Resource, url string) rawResource {
	if r.GetResource() == nil {
		return rawResource{name: r.GetName(), named: true, version: r.GetVersion(), heartbeat: true}
	}
	inner := readResource(r.GetResource(), url)
	inner.name, inner.named = r.GetName(), true
	if r.GetVersion() != "" {
		inner.version = r.GetVersion()
	}
	return inner
}

// readResource reads a resource, with or without an envelope. url is its expected type.
func readResource(body *anypb.Any, url string) rawResource {
	switch body.GetTypeUrl() {
	case url:
		return rawResource{data: body.GetValue()}
	case resourceURL:
		var r discoveryv3.Resource
		if err := proto.Unmarshal(body.GetValue(), &r); err != nil {
			return rawResource{err: fmt.Errorf("unmarshal envelope: %w", err)}
		}
		if r.GetResource().GetTypeUrl() == resourceURL {
			return rawResource{name: r.GetName(), named: true, err: errors.New("envelope in an envelope")}
		}
		return unwrapEnvelope(&r, url)
	default:
		return rawResource{err: fmt.Errorf("resource of type %q in a response of type %q", body.GetTypeUrl(), url)}
	}
}

// errorDetail returns the error of a NACK as the server expects it; nil: an ACK.
func errorDetail(err error) *statuspb.Status {
	if err == nil {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
}
