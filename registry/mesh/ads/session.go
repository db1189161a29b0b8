package ads

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
)

// connection is a connection that one or two streams use. Only Run's goroutine
// touches it.
type connection struct {
	conn   *grpc.ClientConn
	dialer *dialer
	number int // of the connection, from 1
	users  int
}

func (l *connection) acquire() *connection {
	l.users++
	return l
}

func (l *connection) release() {
	l.users--
	if l.users == 0 {
		_ = l.conn.Close() // only says that it was closed before
	}
}

// session is one stream with all that dies with it. Its goroutines touch link,
// mode and out only; Run's goroutine owns the rest.
type session struct {
	link   *connection
	mode   Mode
	out    chan request // taken by the sender when it has sent the one before
	cancel context.CancelFunc

	epoch       int // 0 until something is known by it
	opened      bool
	received    bool // it has delivered a message
	started     time.Time
	node        *corev3.Node  // to announce; nil until something is sent
	greeted     bool          // the node was sent
	typeStreams []*typeStream // in the order in which types were first subscribed to
	ready       *request      // to be handed to the sender
	of          *typeStream   // whose it is
}

// sessionEvent is what a session's goroutines tell Run's.
type sessionEvent struct {
	session  *session
	opened   bool
	response *response
	err      error // why it ended
}

// receiveAll opens the stream and receives until it ends. It ends at once when ctx
// does, whatever the server does.
func (s *session) receiveAll(ctx context.Context, send func(context.Context, sessionEvent) bool) {
	stream, err := open(ctx, s.link.conn, s.mode)
	if err != nil {
		send(ctx, sessionEvent{session: s, err: err})
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.sendAll(ctx, stream)
	}()
	defer func() { <-sent }()
	if !send(ctx, sessionEvent{session: s, opened: true}) {
		return
	}
	for {
		r, err := stream.recv()
		if err != nil {
			send(ctx, sessionEvent{session: s, err: err})
			return
		}
		if !send(ctx, sessionEvent{session: s, response: &r}) {
			return
		}
	}
}

// sendAll sends until the stream breaks, whose reason the receiver learns.
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

// typeStream returns the conversation about a type, or nil.
func (s *session) typeStream(url string) *typeStream {
	for _, x := range s.typeStreams {
		if x.state.interest.url == url {
			return x
		}
	}
	return nil
}

// prepare makes the next message ready, if there is one to send.
func (s *session) prepare(node *corev3.Node) {
	if s.ready != nil {
		return
	}
	for _, x := range s.typeStreams {
		r, ok := s.next(x)
		if !ok {
			continue
		}
		if !s.greeted {
			s.node, s.greeted = node, true
			r.node = node
		}
		s.ready, s.of = &r, x
		return
	}
}

func (s *session) next(x *typeStream) (request, bool) {
	if s.mode == StateOfTheWorld {
		return x.nextWorld()
	}
	return x.nextDelta()
}

// offer returns the channel and the message for the loop's select; the channel
// is nil if there is nothing to send.
func (s *session) offer() (chan<- request, request) {
	if s == nil || s.ready == nil {
		return nil, request{}
	}
	return s.out, *s.ready
}
