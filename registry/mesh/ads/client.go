package ads

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
)

// Client keeps one stream to a management server. Clients share nothing.
type Client struct {
	tasks *taskQueue
	state *sharedState
	loop  *clientLoop
	used  atomic.Bool // Run was called
}

// New returns a client that does nothing until Run. The error names the invalid
// field.
func New(o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Node != nil {
		o.Node = proto.CloneOf(o.Node)
	}
	s := &sharedState{state: State{Types: map[string]TypeState{}}}
	return &Client{tasks: newTaskQueue(), state: s, loop: newClientLoop(o.withDefaults(), s)}, nil
}

// Run connects once there is a subscription, and again whenever the stream ends.
// It returns nil once ctx and every goroutine of the client ended. It may be
// called once.
func (c *Client) Run(ctx context.Context) error {
	if c.used.Swap(true) {
		return errors.New("ads: Run was called before")
	}
	defer c.tasks.close()
	c.loop.run(ctx, c.tasks)
	return nil
}

// State returns the state of the client; it may be called at any time.
func (c *Client) State() State { return c.state.get() }

// Redial replaces the connection: the host is resolved again, and any other
// address is preferred to the present one, those given (host:port) before all. The
// old stream continues until the new one has delivered. Redial is repeated until it
// succeeds.
func (c *Client) Redial(first ...string) {
	first = slices.Clone(first)
	c.tasks.add(func(l *clientLoop) { l.connector.replaceConnection(first) })
}
