package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Options tune a Client. Only Servers is required.
type Options struct {
	Servers        []string                    // each host:port, or host for port 2181; a chroot may follow the last, as in host:2181/app
	SessionTimeout time.Duration               // asked for; 0: 30 s
	Timeout        time.Duration               // of one call, the wait for a session included; 0: 10 s
	DialTimeout    time.Duration               // of a connection and of the answer to its first packet; 0: 5 s
	ReceiveLimit   int                         // of an answer, in bytes; 0: 32 MiB
	TLS            func() (*tls.Config, error) // called for every connection; nil: plaintext
	User           string                      // of digest authentication, with PasswordFile; empty: none
	PasswordFile   string                      // read again for every connection
	Log            *slog.Logger                // nil: none

	// Dial replaces the network's own dialer; nil: that one.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Observe is called with every change of the state. It must not block; it may be nil.
	Observe func(State)
}

// State is the state of a client's session.
type State struct {
	Connected  bool
	Server     string        // the last one tried
	Session    int64         // the last one's id; 0 before the first
	Timeout    time.Duration // granted by the server for the session
	Sessions   int           // how many there were
	Reconnects int           // how often a session continued over another connection
	Since      time.Time     // of the last change of Connected or Session
	LastError  string        // of the last connection that failed; empty while connected
}

// Client is a connection to a ZooKeeper ensemble that connects again. Every
// call has a context; a call without a session waits for one. It is safe
// for concurrent use.
type Client struct {
	opts   Options
	conn   *zk.Conn
	root   string            // the chroot; empty: none
	single *singleConnection // nil: any number of connections
	ended  <-chan zk.Event   // closed when the connection's goroutines have ended
	stop   context.CancelFunc
	calls  sync.WaitGroup
	pace   pace // only the library's goroutine touches it

	// For the targets of the client, of which one at a time writes.
	replaced <-chan struct{} // ready after a session was replaced by another
	watches  *groupWatches

	mu      sync.Mutex
	state   State
	wire    *wire
	ready   chan struct{} // closed while there is a session
	lost    map[chan struct{}]struct{}
	closing bool

	notConnected chan struct{} // closed while there is no connection
	follower     *follower     // over a connection that is shared; nil: there is none
}

// Dial returns a client that connects in the background and continues trying.
// It fails if the options cannot be used: no server, or a file that cannot
// be read.
func Dial(opts Options) (*Client, error) { return dial(opts, nil) }

func dial(opts Options, single *singleConnection) (*Client, error) {
	opts = opts.withDefaults()
	servers, root, err := addresses(opts.Servers)
	if err != nil {
		return nil, err
	}
	if opts.TLS != nil {
		if _, err := opts.TLS(); err != nil {
			return nil, fmt.Errorf("zookeeper: %w", err)
		}
	}
	if _, err := opts.credentials(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{opts: opts, root: root, single: single, stop: stop, ready: make(chan struct{}), lost: make(map[chan struct{}]struct{}), notConnected: make(chan struct{})}
	close(c.notConnected)
	c.replaced, _ = c.onLost()
	c.watches = newGroupWatches(c)
	// The library calls back from its own goroutine, which may be before
	// Connect has returned.
	c.mu.Lock()
	defer c.mu.Unlock()
	connection, ended, err := zk.Connect(servers, opts.SessionTimeout,
		zk.WithHostProvider(&hosts{}),
		zk.WithDialer(func(network, address string, _ time.Duration) (net.Conn, error) {
			c.pace.next(ctx)
			made, err := c.single.dial(func() (net.Conn, error) { return c.dial(ctx, network, address) })
			if err == nil {
				c.pace.connected()
			}
			return made, err
		}),
		zk.WithEventCallback(c.event),
		zk.WithLogger(printer{opts.Log}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(opts.ReceiveLimit))
	if err != nil {
		stop()
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	c.conn, c.ended = connection, ended
	return c, nil
}

func (o Options) withDefaults() Options {
	defaultTo(&o.SessionTimeout, 30*time.Second)
	defaultTo(&o.Timeout, 10*time.Second)
	defaultTo(&o.DialTimeout, 5*time.Second)
	defaultTo(&o.ReceiveLimit, 32<<20)
	defaultTo(&o.Log, slog.New(slog.DiscardHandler))
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Observe == nil {
		o.Observe = func(State) {}
	}
	return o
}

func defaultTo[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// State returns the state of the session.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Close ends the session and waits for everything the client started. Calls
// in flight fail.
func (c *Client) Close() {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return
	}
	c.closing = true
	connected := c.state.Connected
	c.mu.Unlock()
	c.watches.close()
	if !connected {
		c.stop() // without a session to end, a dial or a handshake in progress is cut short
		c.closeWire()
	}
	c.conn.Close()
	c.stop()
	c.closeWire()
	for range c.ended { // until the library has closed it
	}
	c.calls.Wait()
}

func (c *Client) closeWire() {
	c.mu.Lock()
	w := c.wire
	c.mu.Unlock()
	if w != nil {
		_ = w.Close() // there is nowhere to report it
	}
}

// event is the library's callback. It must not block.
func (c *Client) event(e zk.Event) {
	if e.Type != zk.EventSession {
		e.Path = conn{root: c.root}.above(e.Path)
		c.single.notify(func(events *watchEvents) { events.changed(e) })
		c.notify(func(f *follower) { f.events.changed(e) })
		return
	}
	c.mu.Lock()
	before := c.state
	switch e.State {
	case zk.StateHasSession:
		c.connected(e.Server)
	case zk.StateDisconnected, zk.StateExpired:
		c.disconnected(e.Server)
	default: // one of these follows
	}
	after, closing := c.state, c.closing
	c.mu.Unlock()
	if before == after {
		return
	}
	if before.Connected && !after.Connected {
		c.single.notify((*watchEvents).disconnected)
		c.notify(func(f *follower) {
			f.events.disconnected()
			f.end(errLost)
		})
	}
	if !closing {
		c.log(before, after)
	}
	c.observe(after)
}

func (c *Client) connected(server string) {
	w := c.wire
	session := w.session.Load()
	if c.state.Session == session {
		c.state.Reconnects++
	} else {
		if c.state.Session != 0 {
			c.signalLost()
		}
		c.state.Sessions++
	}
	c.state.Connected, c.state.Server, c.state.Session = true, server, session
	c.state.Timeout = time.Duration(w.timeout.Load()) * time.Millisecond
	c.state.Since, c.state.LastError = time.Now(), ""
	select {
	case <-c.notConnected:
		c.notConnected = make(chan struct{})
	default:
	}
	select {
	case <-c.ready: // already
	default:
		close(c.ready)
	}
}

func (c *Client) disconnected(server string) {
	if c.wire != nil && c.wire.failure() != nil {
		c.state.LastError = c.wire.failure().Error()
		if c.state.Server == "" {
			c.state.Server = server
		}
	}
	if c.state.Connected {
		c.state.Connected, c.state.Server, c.state.Since = false, server, time.Now()
		c.ready = make(chan struct{})
		close(c.notConnected)
	}
}

// onLost returns a channel that is ready after a session was replaced by
// another, until stop is called.
func (c *Client) onLost() (lost <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost[ch] = struct{}{}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.lost, ch)
	}
}

func (c *Client) signalLost() {
	for ch := range c.lost {
		wake(ch)
	}
}

func (c *Client) log(before, after State) {
	switch {
	case after.Connected && before.Session != 0 && before.Session != after.Session:
		c.opts.Log.Warn("zookeeper session was lost, a new one begun", "server", after.Server, "session_id", hexID(after.Session))
	case after.Connected && !before.Connected:
		c.opts.Log.Info("zookeeper connected", "server", after.Server, "session_id", hexID(after.Session), "session_timeout", after.Timeout)
	case before.Connected && !after.Connected:
		c.opts.Log.Warn("zookeeper connection was lost", "server", after.Server, "err", after.LastError)
	}
}

func hexID(id int64) string { return fmt.Sprintf("%#x", id) }

// printer logs the library's messages for debugging. All of them are about
// connections, which event logs.
type printer struct{ log *slog.Logger }

// Printf implements zk.Logger.
func (p printer) Printf(format string, args ...any) {
	p.log.Debug("zookeeper client", "text", fmt.Sprintf(format, args...))
}

var errClosed = errors.New("the client is closed")

// errOversized is wrapped if an answer is larger than ReceiveLimit.
var errOversized = fmt.Errorf("%w: the answer is larger than limits.maxReceive allows", registry.ErrRefused)

// call makes one request. If ctx ends first, it fails at once; what the
// request does then is unknown, but it happens before any request made later.
func call[T any](ctx context.Context, c *Client, request func(conn) (T, error)) (T, error) {
	var zero T
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	if err := c.begin(ctx); err != nil {
		return zero, err
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer c.calls.Done()
		value, err := request(conn{c.conn, c.root})
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, c.translate(r.err)
	case <-ctx.Done():
		return zero, fmt.Errorf("zookeeper: no answer: %w", ctx.Err())
	}
}

// begin waits for a session and counts a call. The caller calls c.calls.Done at its end.
func (c *Client) begin(ctx context.Context) error {
	for {
		c.mu.Lock()
		ready := c.ready
		if c.closing {
			c.mu.Unlock()
			return fmt.Errorf("zookeeper: %w", errClosed)
		}
		if err := ctx.Err(); err != nil && c.state.Connected {
			c.mu.Unlock()
			return fmt.Errorf("zookeeper: %w", err)
		}
		if c.state.Connected {
			c.calls.Add(1)
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return c.unreachable(ctx)
		}
	}
}

func (c *Client) unreachable(ctx context.Context) error {
	last := c.State().LastError
	if last == "" {
		last = "no server has answered yet"
	}
	return fmt.Errorf("zookeeper: no session with %s: %s: %w", c.opts.Servers, last, ctx.Err())
}

// translate turns the library's errors into those of package registry.
func (c *Client) translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing), errors.Is(err, zk.ErrNoServer):
		if last := c.State().LastError; last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
		return err
	case errors.Is(err, zk.ErrNoAuth):
		c.reauthenticate()
		return fmt.Errorf("%w: %w; the node's ACL does not let us: check user, passwordFile and the ACL", registry.ErrRefused, err)
	case errors.Is(err, zk.ErrNothing):
		return fmt.Errorf("%w, %d bytes: raise it", errOversized, c.opts.ReceiveLimit)
	case errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrInvalidACL),
		errors.Is(err, zk.ErrNoChildrenForEphemerals), errors.Is(err, zk.ErrShortBuffer):
		return fmt.Errorf("%w: %w", registry.ErrRefused, err)
	default:
		return cmp.Or(serverError(err, c.opts.User), err)
	}
}
