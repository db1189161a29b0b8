package ads

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// session is one stream on a connection of its own. Its goroutines touch conn, mode
// and out only; Run's goroutine owns the rest.
type session struct {
	conn   *grpc.ClientConn
	dialer *dialer
	number int // of the connection, from 1
	mode   Mode
	out    chan request // received by the sender once it has sent the one before
	cancel context.CancelFunc

	epoch       int // 0 until something is known by it
	opened      bool
	received    bool // it has delivered a message
	started     time.Time
	nodeSent    bool
	typeStreams []*typeStream // in the order of the first subscriptions
	ready       *request      // to be passed to the sender
	readyType   *typeStream   // of ready
}

// sessionEvent is what a session's goroutines report to Run's.
type sessionEvent struct {
	session  *session
	opened   bool
	response *response
	err      error // why it ended
}

// receiveAll opens the stream and receives until it ends. It ends at once when ctx
// does.
func (s *session) receiveAll(ctx context.Context, report func(context.Context, sessionEvent) bool) {
	stream, err := open(ctx, s.conn, s.mode)
	if err != nil {
		report(ctx, sessionEvent{session: s, err: err})
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.sendAll(ctx, stream)
	}()
	defer func() { <-sent }()
	if !report(ctx, sessionEvent{session: s, opened: true}) {
		return
	}
	for {
		r, err := stream.recv()
		if err != nil {
			report(ctx, sessionEvent{session: s, err: err})
			return
		}
		if !report(ctx, sessionEvent{session: s, response: &r}) {
			return
		}
	}
}

// sendAll sends until the stream breaks; the receiver gets the reason.
func (s *session) sendAll(ctx context.Context, to stream) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.out:
			if to.send(r) != nil {
				return
			}
		}
	}
}

// typeStream returns the session's part for a type, or nil.
func (s *session) typeStream(url string) *typeStream {
	for _, ts := range s.typeStreams {
		if ts.resourceType.url == url {
			return ts
		}
	}
	return nil
}

// prepare makes the next request ready, if there is one.
func (s *session) prepare(node *corev3.Node) {
	if s.ready != nil {
		return
	}
	for _, ts := range s.typeStreams {
		r, ok := ts.next()
		if !ok {
			continue
		}
		if !s.nodeSent {
			s.nodeSent, r.node = true, node
		}
		s.ready, s.readyType = &r, ts
		return
	}
}

// offer returns the channel and the request for the loop's select; the channel is
// nil if there is nothing to send.
func (s *session) offer() (chan<- request, request) {
	if s == nil || s.ready == nil {
		return nil, request{}
	}
	return s.out, *s.ready
}

// resourceURL is the type of the envelope of a resource, which carries its name,
// version and time to live.
const resourceURL = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// request is one message to the server, for both variants of the protocol.
type request struct {
	url   string
	node  *corev3.Node // only in the first of a stream
	nonce string       // of the response that it acknowledges or rejects; empty: none
	err   error        // why that response is rejected

	version string   // state of the world: last accepted
	names   []string // state of the world: all

	subscribe, unsubscribe []string          // delta
	versions               map[string]string // delta, first of a type: what is held
}

// response is one message of the server, for both variants of the protocol.
type response struct {
	url, version, nonce string
	resources           []raw
	removed             []string // delta
}

// raw is one undecoded resource.
type raw struct {
	name      string // from the envelope; the resource may have another
	named     bool   // there was an envelope
	version   string
	data      []byte
	heartbeat bool  // only renews the time to live
	err       error // neither of the right type nor in a readable envelope
}

func (r response) size() int {
	n := 0
	for i := range r.resources {
		n += len(r.resources[i].data)
	}
	return n
}

// stream is one open stream. send and recv may be called concurrently, each from
// one goroutine.
type stream interface {
	send(r request) error
	recv() (response, error)
}

func open(ctx context.Context, conn *grpc.ClientConn, m Mode) (stream, error) {
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if m == StateOfTheWorld {
		s, err := client.StreamAggregatedResources(ctx)
		return worldStream{s}, err
	}
	s, err := client.DeltaAggregatedResources(ctx)
	return deltaStream{s}, err
}

type deltaStream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (s deltaStream) send(r request) error {

	return s.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node:                     r.node,
		TypeUrl:                  r.url,
		ResourceNamesSubscribe:   r.subscribe,
		ResourceNamesUnsubscribe: r.unsubscribe,
		InitialResourceVersions:  r.versions,
		ResponseNonce:            r.nonce,
		ErrorDetail:              detail(r.err),
	})
}

func (s deltaStream) recv() (response, error) {
	m, err := s.Recv()
	if err != nil {
		return response{}, err
	}
	r := response{
		url: m.GetTypeUrl(), version: m.GetSystemVersionInfo(), nonce: m.GetNonce(),
		removed: m.GetRemovedResources(), resources: make([]raw, 0, len(m.GetResources())),
	}
	for _, res := range m.GetResources() {
		r.resources = append(r.resources, unwrap(res, r.url))
	}
	return r, nil
}

type worldStream struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func (s worldStream) send(r request) error {

	return s.Send(&discoveryv3.DiscoveryRequest{
		Node:          r.node,
		TypeUrl:       r.url,
		VersionInfo:   r.version,
		ResourceNames: r.names,
		ResponseNonce: r.nonce,
		ErrorDetail:   detail(r.err),
	})
}

func (s worldStream) recv() (response, error) {
	m, err := s.Recv()
	if err != nil {
		return response{}, err
	}
	r := response{
		url: m.GetTypeUrl(), version: m.GetVersionInfo(), nonce: m.GetNonce(),
		resources: make([]raw, 0, len(m.GetResources())),
	}
	for _, body := range m.GetResources() {
		r.resources = append(r.resources, read(body, r.url))
	}
	return r, nil
}

func unwrap(r *discoveryv3.Resource, url string) raw {
	if r.GetResource() == nil {
		return raw{name: r.GetName(), named: true, version: r.GetVersion(), heartbeat: true}
	}
	inner := read(r.GetResource(), url)
	inner.name, inner.named = r.GetName(), true
	if r.GetVersion() != "" {
		inner.version = r.GetVersion()
	}
	return inner
}

// read reads a resource, with or without an envelope.
func read(body *anypb.Any, url string) raw {
	switch body.GetTypeUrl() {
	case url:
		return raw{data: body.GetValue()}
	case resourceURL:
		var r discoveryv3.Resource
		if err := proto.Unmarshal(body.GetValue(), &r); err != nil {
			return raw{err: fmt.Errorf("envelope cannot be read: %w", err)}
		}
		if r.GetResource().GetTypeUrl() == resourceURL {
			return raw{name: r.GetName(), named: true, err: errors.New("envelope in an envelope")}
		}
		return unwrap(&r, url)
	default:
		return raw{err: fmt.Errorf("resource of type %q in a response of type %q", body.GetTypeUrl(), url)}
	}
}

// detail is why a response is rejected, for the server.
func detail(err error) *statuspb.Status {
	if err == nil {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
}
