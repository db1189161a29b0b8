package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Client is one registry. It implements Registry.
type Client struct {
	backend Backend
	o       Options
	table   *registry.Table
	index   *index
	routes  Routes
	state   *state

	end     context.CancelCauseFunc
	ctx     context.Context //nolint:containedctx // of everything that runs until Close
	running sync.WaitGroup

	following sync.WaitGroup // functions that answers are handed to

	mu        sync.Mutex
	instances map[string]Instance   // by name
	drained   time.Time             // when Deregister waits no longer
	lingering map[Query]*time.Timer // of what was asked for lately
	fatal     error                 // a part that ended by itself
	left      error                 // what was not withdrawn at the end

	handling sync.Mutex       // guards panicked; it is the last of two that are locked
	panicked map[*Watch]error // of functions that answers are handed to
}

// New starts a client and returns at once, whatever the registry is like. The
// error names what is wrong with the options.
func New(b Backend, o Options) (*Client, error) {
	if b.Source == nil && b.Publisher == nil {
		return nil, errors.New("client: a backend without a source and a publisher")
	}
	if o.StateAge < 0 {
		return nil, fmt.Errorf("client: StateAge must not be negative (got %s); leave StateFile empty to use none", o.StateAge)
	}
	if b.used != nil && b.used.Swap(true) {
		return nil, fmt.Errorf("client: %s: a backend makes one client; make another backend", b.Kind)
	}
	if b.Shows == nil {
		b.Shows = byKeys
	}
	o = o.withDefaults()
	o.Log = o.Log.With("registry", b.Kind)
	c := &Client{backend: b, o: o, table: registry.NewTable(), instances: make(map[string]Instance), lingering: make(map[Query]*time.Timer), panicked: make(map[*Watch]error)}
	c.table.Limit(registry.Limits{Services: 100_000, Endpoints: 1_000_000, Bytes: 128 << 20}, b.Recheck)
	c.index = newIndex(c.table, o.ForgetAfter)
	c.index.hides = b.Interest == nil
	c.state = openState(o, b.Place)
	if b.Routes != nil {
		var err error
		if c.routes, err = b.Routes(func(a naming.HostAddress) { c.routed(a) }); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	if b.WatchWith != nil && b.Source != nil {
		b.WatchWith(c)
	}
	c.start()
	return c, nil
}

func (c *Client) start() {
	c.run("index", c.follow)
	if c.backend.Source != nil {
		c.run("source", func(ctx context.Context) error { return c.backend.Source.Run(ctx, c.table) })
	}
	if c.backend.Publisher != nil {
		c.run("publisher", c.publish)
	}
	if c.routes != nil {
		c.run("routes", c.routes.Run)
	}
	c.run("state", func(ctx context.Context) error { return c.state.run(ctx, c.confirm) })
}

func (c *Client) publish(ctx context.Context) error {
	err := c.backend.Publisher.Run(ctx, c.o.Grace)
	if ctx.Err() != nil {
		c.mu.Lock()
		c.left = err
		c.mu.Unlock()
	}
	return err
}

// run starts a part of the client. A part that ends before Close, or panics, is
// logged and shown by Status; the application and the other parts continue.
func (c *Client) run(name string, part func(context.Context) error) {
	c.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.o.Log.Error("a part of the client panicked, the last known state continues",
					"part", name, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
				c.failed(fmt.Errorf("%s: panic: %v", name, p))
			}
		}()
		if err := part(c.ctx); err != nil && c.ctx.Err() == nil {
			c.o.Log.Error("a part of the client ended, the last known state continues", "part", name, "err", err)
			c.failed(fmt.Errorf("%s: %w", name, err))
		}
	})
}

// goes has Close wait for a follower, which ends with the client; it is not called
// once the client is closed.
func (c *Client) goes(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.following.Go(do)
	return true
}

func (c *Client) failed(err error) {
	c.mu.Lock()
	c.fatal = first(c.fatal, err)
	c.mu.Unlock()
	c.table.Stale(err)
}

// follow keeps the index in sync with the table.
func (c *Client) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.index.reader.Wake():
			c.index.drain()
		case <-c.index.doubts.end.C:
			c.index.endDoubts()
		}
	}
}

// routed wakes those who watch services at a host.
func (c *Client) routed(a naming.HostAddress) {
	if s := c.table.Get(registry.Name(a.String())); s != nil {
		for _, q := range queries(s) {
			c.index.wake(q)
		}
	}
}

// Close takes back what is published, within Options.Grace, and ends everything
// the client started before it returns: at most a second later than Grace. The error says
// what was not withdrawn; it goes with the session. Watches end with ErrClosed. A
// function that an answer is handed to is waited for within Options.Grace too.
func (c *Client) Close() error {
	c.mu.Lock()
	c.end(ErrClosed) // what goes from now on is not waited for
	c.mu.Unlock()
	c.running.Wait()
	handled := make(chan struct{})
	go func() {
		c.following.Wait()
		close(handled)
	}()
	timer := time.NewTimer(c.o.Grace)
	defer timer.Stop()
	select {
	case <-handled:
	case <-timer.C:
		c.o.Log.Error("closed while a function that answers are handed to has not returned", "after", c.o.Grace)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// Shutdown deregisters everything as Deregister does, until ctx ends, and closes the
// client: drain, then end. It returns the first error of both.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.instances))
	c.mu.Unlock()
	return first(c.Deregister(ctx, all...), c.Close())
}
