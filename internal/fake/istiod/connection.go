package istiod

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// connection is one stream. The server's mu guards all of it.
type connection struct {
	number  int
	id      string
	node    *corev3.Node
	address string
	since   time.Time
	delta   bool
	watches map[string]*watch
	changed map[string]map[string]struct{} // not yet pushed
	full    bool                           // push everything
	woken   chan struct{}
	ended   chan error // what to end the stream with
}

// watch is what a client has of a type.
type watch struct {
	names  map[string]struct{}
	nonce  string // last sent
	always bool   // answer the next request even if it asks for nothing new
}

func (c *connection) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// transport is a stream of either variant.
type transport interface {
	Context() context.Context
	receive() (Request, error)
	send(a Answer) error
}

// serve runs one stream: like istiod it handles requests and pushes in one
// goroutine and receives in another.
func (s *Server) serve(t transport, delta bool) error {
	if err := s.admit(t.Context()); err != nil {
		return err
	}
	c := s.connect(t.Context(), delta)
	defer s.disconnect(c)
	requests := make(chan Request)
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		receive(t, requests)
	}()
	for {
		var err error
		select {
		case <-broken:
			return nil
		case err := <-c.ended:
			return err
		case r := <-requests:
			err = s.handle(c, t, r)
		case <-c.woken:
			err = s.push(c, t)
		}
		if err != nil {
			return err
		}
	}
}

// receive hands on requests until the stream breaks.
func receive(t transport, requests chan<- Request) {
	for {
		r, err := t.receive()
		if err != nil {
			return
		}
		select {
		case requests <- r:
		case <-t.Context().Done():
			return
		}
	}
}

// admit refuses what istiod refuses before it reads anything.
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

func (s *Server) connect(ctx context.Context, delta bool) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	c := &connection{
		number: s.opened, since: time.Now(), delta: delta,
		watches: map[string]*watch{}, changed: map[string]map[string]struct{}{},
		woken: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	if p, ok := peer.FromContext(ctx); ok {
		c.address = p.Addr.String()
	}
	s.connections[c] = struct{}{}
	return c
}

func (s *Server) disconnect(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
}

// handle answers one request.
func (s *Server) handle(c *connection, t transport, r Request) error {
	if c.node == nil {
		if err := s.introduce(c, r.Node); err != nil {
			return err
		}
	}
	if r.Type == DebugType {
		s.receive(c, r)
		return s.answerDebug(t, r)
	}
	for _, a := range s.decide(c, r) {
		if err := t.send(a); err != nil {
			return err
		}
	}
	return nil
}

// introduce reads the node as istiod does.
func (s *Server) introduce(c *connection, n *corev3.Node) error {
	if n.GetId() == "" {
		return status.Errorf(codes.InvalidArgument, "missing node information")
	}
	parts := strings.Split(n.GetId(), "~")
	if len(parts) != 4 {
		return status.Errorf(codes.InvalidArgument, "missing parts in the service node %q", n.GetId())
	}
	switch parts[0] {
	case "sidecar", "router", "waypoint", "ztunnel", "agentgateway":
	default:
		return status.Errorf(codes.InvalidArgument, "invalid node type (valid types: sidecar, router, waypoint, ztunnel, agentgateway) in the service node %q", n.GetId())
	}
	if _, err := netip.ParseAddr(parts[1]); err != nil {
		return status.Errorf(codes.InvalidArgument, "no valid IP address in the service node id or metadata")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.node = n
	c.id = fmt.Sprintf("%s-%d", parts[2], c.number)
	return nil
}

// answerDebug answers with JSON. Whatever asks is answered, an acknowledgement
// too; a refusal ends the stream.
func (s *Server) answerDebug(t transport, r Request) error {
	if len(r.Subscribe) != 1 {
		return status.Errorf(codes.InvalidArgument, "invalid debug request: want one resource name, have %d", len(r.Subscribe))
	}
	s.mu.Lock()
	debug, nonce := s.debug, s.nonce()
	s.mu.Unlock()
	if debug == nil {
		return status.Errorf(codes.Unauthenticated, "debug requests need an authenticated identity")
	}
	body, err := debug(t.Context(), r.Subscribe[0])
	if err != nil {
		return err
	}
	return t.send(Answer{Type: DebugType, Nonce: nonce, Resources: []*discoveryv3.Resource{debugResource(r.Subscribe[0], body)}})
}
