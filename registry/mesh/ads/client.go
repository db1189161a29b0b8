package ads

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
)

// Client keeps one stream open to a management server. Its methods may be called from any
// goroutine. Clients share nothing.
type Client struct {
	tasks     *taskQueue
	state     *sharedState
	loop      *clientLoop // owned by Run's goroutine
	runCalled atomic.Bool
}

// New returns a client that does nothing until Run. The error names the invalid option.
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

// Run connects once there is a subscription, and reconnects whenever the stream ends. It
// returns nil once ctx and every goroutine of the client have ended. A second call returns an
// error.
func (c *Client) Run(ctx context.Context) error {
	if c.runCalled.Swap(true) {
		return errors.New("ads: Run must be called only once")
	}
	defer c.tasks.close()
	c.loop.run(ctx, c.tasks)
	return nil
}

// State returns the state of the client.
func (c *Client) State() State { return c.state.get() }

// Redial replaces the connection, and retries until a new one is established. It resolves
// the host again and avoids the current address. The preferred addresses (host:port) are
// tried first. The old stream continues until the new one receives its first response.
func (c *Client) Redial(preferred ...string) {
	preferred = slices.Clone(preferred)
	c.tasks.add(func(l *clientLoop) { l.connector.replaceConnection(preferred) })
}
