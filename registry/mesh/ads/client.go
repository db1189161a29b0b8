package ads

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

// Client keeps one stream to a management server. Several may live in one
// process; they share nothing.
type Client struct {
	inbox  *inbox
	board  *board
	engine *engine
	used   atomic.Bool // Run was called
}

// New returns a client that does nothing until Run. The error names the field
// that is wrong.
func New(o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Node != nil {
		o.Node = proto.CloneOf(o.Node)
	}
	b := &board{}
	return &Client{inbox: newInbox(), board: b, engine: newEngine(o.withDefaults(), b)}, nil
}

// Run connects once something is subscribed to, and connects again whenever the
// stream ends, until ctx ends. It returns nil when ctx ended and every goroutine
// of the client ended. It may be called once.
func (c *Client) Run(ctx context.Context) error {
	if c.used.Swap(true) {
		return errors.New("ads: Run was called before")
	}
	defer c.inbox.close()
	c.engine.loop(ctx, c.inbox)
	return nil
}

// State returns how the client stands; it may be called at any time.
func (c *Client) State() State { return c.board.get() }

// Redial replaces the connection by a new one: the name is looked up again, and
// any address other than the present one is preferred, those given before all,
// as host:port. The old stream continues until the new one has delivered, and
// stays where none can be had; that is tried again until it succeeds.
func (c *Client) Redial(first ...string) {
	first = slices.Clone(first)
	c.inbox.post(func(e *engine) { e.redial, e.first = e.links, first })
}

// SetNode announces the client as another node. The server reads the node only
// at the start of a stream, so that a second stream is opened over the same
// connection, and the first is closed once the second has delivered. Changes in
// quick succession are announced as one.
func (c *Client) SetNode(n *corev3.Node) {
	n = proto.CloneOf(n)
	c.inbox.post(func(e *engine) {
		if !proto.Equal(e.node, n) {
			e.node = n
		}
	})
}
