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

// Client connects an application to one registry. It implements Registry, and all of
// its methods may be called from any goroutine.
type Client struct {
	// Immutable after New.
	backend Backend
	o       Options
	table   *registry.Table
	index   *index
	routes  Routes
	state   *state

	ctx    context.Context //nolint:containedctx // of everything that runs until Close
	cancel context.CancelCauseFunc

	running   sync.WaitGroup // the parts of the client
	following sync.WaitGroup // the callbacks of Watch.Follow

	mu            sync.Mutex
	instances     map[string]Instance   // registered, by name
	drainDeadline time.Time             // end of the wait that successive calls of Deregister share
	lingering     map[Query]*time.Timer // queries that Resolve keeps up to date
	partErr       error                 // why a part ended before Close
	withdrawErr   error                 // why something was not withdrawn at the end

	handling sync.Mutex       // guards panicked; may be locked while mu is held
	panicked map[*Watch]error // panics of callbacks
}

// New starts a client. It returns at once, whether or not the registry is reachable.
// The error says what is wrong with the backend or the options.
func New(b Backend, o Options) (*Client, error) {
	if b.Source == nil && b.Publisher == nil {
		return nil, errors.New("client: the backend has neither a source nor a publisher")
	}
	if o.StateAge < 0 {
		return nil, fmt.Errorf("client: StateAge must not be negative (got %s); leave StateFile empty for no state file",
			o.StateAge)
	}
	if b.used != nil && b.used.Swap(true) {
		return nil, fmt.Errorf("client: %s: the backend already has a client; make another backend", b.Kind)
	}
	if b.Shows == nil {
		b.Shows = byKeys
	}
	o = o.withDefaults()
	o.Log = o.Log.With("registry", b.Kind)
	c := &Client{
		backend: b, o: o, table: registry.NewTable(), instances: make(map[string]Instance),
		lingering: make(map[Query]*time.Timer), panicked: make(map[*Watch]error),
	}
	c.table.Limit(registry.Limits{Services: 100_000, Endpoints: 1_000_000, Bytes: 128 << 20}, b.Recheck)
	c.index = newIndex(c.table, o.ForgetAfter)
	c.index.anyScopeHides = b.Interest == nil
	c.state = openState(o, b.Place)
	if b.Routes != nil {
		var err error
		if c.routes, err = b.Routes(func(a naming.HostAddress) { c.routesChanged(a) }); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	if b.WatchWith != nil && b.Source != nil {
		b.WatchWith(c)
	}
	c.start()
	return c, nil
}

func (c *Client) start() {
	c.run("index", c.followTable)
	if c.backend.Source != nil {
		c.run("source", func(ctx context.Context) error { return c.backend.Source.Run(ctx, c.table) })
	}
	if c.backend.Publisher != nil {
		c.run("publisher", c.publish)
	}
	if c.routes != nil {
		c.run("routes", c.routes.Run)
	}
	c.run("state", func(ctx context.Context) error { return c.state.run(ctx, c.renewState) })
}

func (c *Client) publish(ctx context.Context) error {
	err := c.backend.Publisher.Run(ctx, c.o.Grace)
	if ctx.Err() != nil {
		c.mu.Lock()
		c.withdrawErr = err
		c.mu.Unlock()
	}
	return err
}

// run starts a part of the client. If a part fails before Close, or panics, run logs it
// and Status reports it. The application and the other parts continue.
func (c *Client) run(name string, part func(context.Context) error) {
	c.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.o.Log.Error("client part panicked, keeping the last known state",
					"part", name, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
				c.partFailed(fmt.Errorf("%s: panic: %v", name, p))
			}
		}()
		if err := part(c.ctx); err != nil && c.ctx.Err() == nil {
			c.o.Log.Error("client part failed, keeping the last known state", "part", name, "err", err)
			c.partFailed(fmt.Errorf("%s: %w", name, err))
		}
	})
}

// startFollower runs the callbacks of a watch in a goroutine that Close waits for.
// It returns false, and does not start it, if the client is closed.
func (c *Client) startFollower(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.following.Go(do)
	return true
}

// partFailed records the first failure of a part, and marks the table as stale.
func (c *Client) partFailed(err error) {
	c.mu.Lock()
	c.partErr = firstError(c.partErr, err)
	c.mu.Unlock()
	c.table.Stale(err)
}

// followTable keeps the index in sync with the table.
func (c *Client) followTable(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.index.reader.Wake():
			c.index.drain()
		case <-c.index.doubts.timer.C:
			c.index.endDoubts()
		}
	}
}

// routesChanged wakes the watches of the services at a host.
func (c *Client) routesChanged(a naming.HostAddress) {
	if s := c.table.Get(registry.Name(a.String())); s != nil {
		for _, q := range queries(s) {
			c.index.wake(q)
		}
	}
}

// Close withdraws everything that is published, within Options.Grace, and ends everything
// that the client started. It returns at most one second after Grace. The error says what
// was not withdrawn; the registry removes that when the session ends. Watches end with
// ErrClosed. Close also waits for running callbacks of Watch.Follow, within Options.Grace.
func (c *Client) Close() error {
	c.mu.Lock()
	c.cancel(ErrClosed) // callbacks that start later are not waited for
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
		c.o.Log.Error("closed while a callback of Follow is still running", "after", c.o.Grace)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withdrawErr
}

// Shutdown deregisters everything as Deregister does, until ctx ends, and then closes the
// client. It returns the first error of the two.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.instances))
	c.mu.Unlock()
	return firstError(c.Deregister(ctx, all...), c.Close())
}
