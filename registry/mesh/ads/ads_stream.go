package ads

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
)

// adsStream is one stream on a connection of its own. Its goroutines touch conn, mode
// and out only; Run's goroutine owns the rest.
type adsStream struct {
	conn     *grpc.ClientConn
	dialer   *dialer
	number   int // of the connection, from 1
	mode     Mode
	requests chan discoveryRequest // received by the sender once it has sent the one before
	cancel   context.CancelFunc

	epoch           int // 0 until something is known by it
	open            bool
	received        bool // it has delivered a message
	started         time.Time
	nodeSent        bool
	typeStreams     []*typeStream     // in the order of the first subscriptions
	nextRequest     *discoveryRequest // to be passed to the sender
	nextRequestType *typeStream       // of ready
}

// streamEvent is what a session's goroutines report to Run's.
type streamEvent struct {
	stream   *adsStream
	opened   bool
	response *discoveryResponse
	err      error // why it ended
}

// receiveAll opens the stream and receives until it ends. It ends at once when ctx
// does.
func (s *adsStream) receiveAll(ctx context.Context, report func(context.Context, streamEvent) bool) {
	stream, err := openWireStream(ctx, s.conn, s.mode)
	if err != nil {
		report(ctx, streamEvent{stream: s, err: err})
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.sendAll(ctx, stream)
	}()
	defer func() { <-sent }()
	if !report(ctx, streamEvent{stream: s, opened: true}) {
		return
	}
	for {
		r, err := stream.recv()
		if err != nil {
			report(ctx, streamEvent{stream: s, err: err})
			return
		}
		if !report(ctx, streamEvent{stream: s, response: &r}) {
			return
		}
	}
}

// sendAll sends until the stream breaks; the receiver gets the reason.
func (s *adsStream) sendAll(ctx context.Context, to wireStream) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.requests:
			if to.send(r) != nil {
				return
			}
		}
	}
}

// typeStream returns the session's part for a type, or nil.
func (s *adsStream) typeStream(url string) *typeStream {
	for _, ts := range s.typeStreams {
		if ts.resourceType.url == url {
			return ts
		}
	}
	return nil
}

// prepare makes the next request ready, if there is one.
func (s *adsStream) prepare(node *corev3.Node) {
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

// offer returns the channel and the request for the loop's select; the channel is
// nil if there is nothing to send.
func (s *adsStream) offer() (chan<- discoveryRequest, discoveryRequest) {
	if s == nil || s.nextRequest == nil {
		return nil, discoveryRequest{}
	}
	return s.requests, *s.nextRequest
}
