package ads

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
)

// adsStream is one xDS stream, on a connection of its own.
type adsStream struct {
	// Immutable.
	conn    *grpc.ClientConn
	number  int // of the connection, from 1
	mode    Mode
	started time.Time

	// Safe for concurrent use.
	dialer   *dialer
	requests chan discoveryRequest // unbuffered, to the sending goroutine

	// Owned by Run's goroutine.
	cancel      context.CancelFunc
	epoch       int // see setEpoch; 0: the stream has not reported anything
	open        bool
	received    bool // at least one response
	nodeSent    bool
	typeStreams []*typeStream // in the order of the subscriptions

	// Owned by Run's goroutine: the request that is offered to the sending goroutine.
	nextRequest     *discoveryRequest // nil: none
	nextRequestType *typeStream
}

// streamEvent is what a stream's goroutine reports to Run's. Exactly one of opened, response
// and err is set.
type streamEvent struct {
	stream   *adsStream
	opened   bool
	response *discoveryResponse
	err      error // why the stream ended
}

// receiveAll opens the stream and receives until the stream or ctx ends.
func (s *adsStream) receiveAll(ctx context.Context, report func(context.Context, streamEvent) bool) {
	wire, err := openWireStream(ctx, s.conn, s.mode)
	if err != nil {
		report(ctx, streamEvent{stream: s, err: err})
		return
	}
	senderDone := make(chan struct{})
	go func() {
		defer close(senderDone)
		s.sendAll(ctx, wire)
	}()
	defer func() { <-senderDone }()
	if !report(ctx, streamEvent{stream: s, opened: true}) {
		return
	}
	for {
		r, err := wire.recv()
		if err != nil {
			report(ctx, streamEvent{stream: s, err: err})
			return
		}
		if !report(ctx, streamEvent{stream: s, response: &r}) {
			return
		}
	}
}

// sendAll sends requests until the stream or ctx ends. The receiver reports the reason.
func (s *adsStream) sendAll(ctx context.Context, wire wireStream) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.requests:
			if wire.send(r) != nil {
				return
			}
		}
	}
}

// typeStream returns the state of a resource type on this stream, or nil.
func (s *adsStream) typeStream(url string) *typeStream {
	for _, ts := range s.typeStreams {
		if ts.resourceType.url == url {
			return ts
		}
	}
	return nil
}

// prepareRequest sets the next request, unless one is waiting or no type needs one.
func (s *adsStream) prepareRequest(node *corev3.Node) {
	if s.nextRequest != nil {
		return
	}
	for _, ts := range s.typeStreams {
		r, ok := ts.nextRequest()
		if !ok {
			continue
		}
		if !s.nodeSent {
			s.nodeSent, r.node = true, node
		}
		s.nextRequest, s.nextRequestType = &r, ts
		return
	}
}

// offerRequest returns the channel and the next request for a select statement. The channel
// is nil if there is no stream or no request.
func (s *adsStream) offerRequest() (chan<- discoveryRequest, discoveryRequest) {
	if s == nil || s.nextRequest == nil {
		return nil, discoveryRequest{}
	}
	return s.requests, *s.nextRequest
}
