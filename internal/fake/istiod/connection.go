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
	"google.golang.org/grpc/status"
)

// connection is one stream. The server's mu guards all of it.
type connection struct {
	server    *Server
	transport transport

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

// watch is the subscription of a client to a type.
type watch struct {
	names  map[string]struct{}
	nonce  string // last sent
	always bool   // answer the next request even if it requests nothing new
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

// receive passes requests on until the stream breaks.
func (c *connection) receive(requests chan<- Request) {
	for {
		r, err := c.transport.receive()
		if err != nil {
			return
		}
		select {
		case requests <- r:
		case <-c.transport.Context().Done():
			return
		}
	}
}

// handle answers one request.
func (c *connection) handle(r Request) error {
	if c.node == nil {
		if err := c.introduce(r.Node); err != nil {
			return err
		}
	}
	if r.Type == DebugType {
		r.Verdict = Debug
		c.server.change(func() { c.record(r) })
		return c.answerDebug(r)
	}
	for _, a := range c.decide(r) {
		if err := c.transport.send(a); err != nil {
			return err
		}
	}
	return nil
}

// introduce reads the node as istiod does.
func (c *connection) introduce(n *corev3.Node) error {
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
	c.server.change(func() { c.node, c.id = n, fmt.Sprintf("%s-%d", parts[2], c.number) })
	return nil
}

// answerDebug answers a debug request with JSON. It answers every request, even acknowledgements.
// An error ends the stream.
func (c *connection) answerDebug(r Request) error {
	if len(r.Subscribe) != 1 {
		return status.Errorf(codes.InvalidArgument, "invalid debug request: want one resource name, have %d", len(r.Subscribe))
	}
	c.server.mu.Lock()
	debug, nonce := c.server.debug, c.server.nonce()
	c.server.mu.Unlock()
	if debug == nil {
		return status.Errorf(codes.Unauthenticated, "debug requests need an authenticated identity")
	}
	body, err := debug(c.transport.Context(), r.Subscribe[0])
	if err != nil {
		return err
	}
	return c.transport.send(Answer{Type: DebugType, Nonce: nonce, Resources: []*discoveryv3.Resource{debugResource(r.Subscribe[0], body)}})
}
