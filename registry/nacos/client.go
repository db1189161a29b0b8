package nacos

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Options tune a Client.
type Options struct {
	// Servers are base URLs such as http://127.0.0.1:8848/nacos. Without a path, /nacos and
	// then / are tried.
	Servers []string

	Namespace  string                      // of the connection; empty: public
	Username   string                      // empty: no login
	Password   func() (string, error)      // called for every login
	TLS        func() (*tls.Config, error) // called for every connection; nil: plaintext
	GRPCPort   uint16                      // of all servers; 0: 1000 above the HTTP port
	Timeout    time.Duration               // of one request; 0: 5 s
	Health     time.Duration               // between health checks; 0: 5 s
	MaxReceive int                         // bytes of one message; 0: 64 MiB
	Backoff    registry.Backoff            // between attempts to connect; 0: 500 ms to 5 s
	Log        *slog.Logger                // nil: none
	Observe    func(Observation)           // receives every request and connection; may be nil

	// Dialer opens the connections; nil: by TCP.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	maxInFlight = 64 // requests at a time

	// overlap is how long a connection that the server wanted to be replaced stays open next
	// to its successor.
	overlap = 10 * time.Second
)

// Observation is a request, connection or login of a Client, for metrics.
type Observation struct {
	Op    string // a request type or one of the constants
	Took  time.Duration
	Sent  int  // bytes
	Got   int  // bytes
	Again bool // for OpConnect: not the first connection
	Err   error
}

// The operations of a Client in addition to requests.
const (
	OpConnect = "connect"
	OpLost    = "lost"
	OpLogin   = "login"
)

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.Health = cmp.Or(o.Health, 5*time.Second)
	o.MaxReceive = cmp.Or(o.MaxReceive, 64<<20)
	o.Backoff.Min = cmp.Or(o.Backoff.Min, 500*time.Millisecond)
	// Instances that a server lost in a restart have to be published again 10 s later.
	o.Backoff.Max = cmp.Or(o.Backoff.Max, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dialer == nil {
		o.Dialer = new(net.Dialer).DialContext
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	return o
}

// A Client keeps one connection to one of the servers, and a login if a user is
// configured. Its calls succeed only while Run runs.
type Client struct {
	opts       Options
	servers    []server
	login      *login
	slots      chan struct{}
	goroutines sync.WaitGroup
	lost       chan struct{}

	mu      sync.Mutex
	onPush  pushFunc // for the next connections; may be nil
	current *conn
	changed chan struct{} // closed and replaced when current changes
	state   State
}

// State describes the connection of a Client.
type State struct {
	Connected bool
	Server    string // host:port of the connection
	Since     time.Time
	Lost      int    // number of lost connections
	Again     int    // number of connections after the first
	LastError string // why there is no connection; ErrNoNamespace if there is one
	Login     LoginState
}

// New returns a client that does not connect before Run. The error names the invalid option.
func New(o Options) (*Client, error) {
	o = o.withDefaults()
	servers, err := parseServers(o)
	if err != nil {
		return nil, err
	}
	if o.Username != "" && o.Password == nil {
		return nil, errors.New("passwordFile: required with username")
	}
	c := &Client{
		opts: o, servers: servers, slots: make(chan struct{}, maxInFlight),
		lost: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	c.login = newLogin(c)
	return c, nil
}

// Run connects, and reconnects whenever the connection ends, until ctx ends. It returns nil
// after everything that it started has ended. Published instances are deleted with their
// connection.
func (c *Client) Run(ctx context.Context) error {
	c.run(ctx, func(ctx context.Context, cn *conn, _ error) bool {
		if cn == nil {
			return false
		}
		c.keepCurrent(ctx, cn)
		return true
	})
	return nil
}

// run connects to the servers in turn until ctx ends. It passes each connection, or the
// error, to a function that handles it and reports whether the connection was good. It waits
// after each round of the servers without a good connection.
func (c *Client) run(ctx context.Context, handle func(context.Context, *conn, error) (good bool)) {
	ctx, cancel := context.WithCancel(ctx)
	defer c.goroutines.Wait()
	defer cancel()
	if c.opts.Username != "" {
		c.goroutines.Go(func() { c.login.keep(ctx) })
	}
	next := rand.IntN(len(c.servers)) //nolint:gosec // spreads load, keeps no secret
	for attempt := 0; ctx.Err() == nil; next++ {
		cn, err := c.connect(ctx, c.servers[next%len(c.servers)])
		if err != nil {
			c.failed(attempt+1, err)
		}
		if handle(ctx, cn, err) {
			attempt = 0
			continue
		}
		if attempt++; attempt%len(c.servers) == 0 { // otherwise another server may answer
			registry.Sleep(ctx, c.opts.Backoff.Spread(attempt/len(c.servers)))
		}
	}
}

func (c *Client) connect(ctx context.Context, s server) (*conn, error) {
	if err := c.login.first(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	c.mu.Lock()
	again := !c.state.Since.IsZero()
	c.mu.Unlock()
	cn, err := c.open(ctx, s)
	c.opts.Observe(Observation{Op: OpConnect, Took: time.Since(began), Again: again, Err: err})
	return cn, err
}

// keepCurrent makes a connection the current one until it ends. If the server wants another
// connection, the old one stays open next to it, until its instances are published on the
// new one.
func (c *Client) keepCurrent(ctx context.Context, cn *conn) {
	c.opts.Log.Info("nacos connected", "server", cn.server.grpc)
	c.use(cn)
	c.goroutines.Go(func() { c.awaitNamespace(ctx, cn) })
	err := cn.watch(ctx)
	if errors.Is(err, errReset) {
		c.goroutines.Go(func() { c.retire(ctx, cn) })
		return // it is current until there is another connection
	}
	c.drop(cn, err)
	cn.close()
	<-cn.dead
}

// retire ends a connection that the server wanted to be replaced: some time after another
// connection is the current one, or as soon as it has ended.
func (c *Client) retire(ctx context.Context, cn *conn) {
	for {
		c.mu.Lock()
		current, changed := c.current, c.changed
		c.mu.Unlock()
		if current != cn {
			registry.Sleep(ctx, overlap)
			break
		}
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			c.drop(cn, ctx.Err())
		case <-cn.dead:
			c.drop(cn, cn.err)
		}
		break
	}
	cn.close()
	<-cn.dead
}

// use replaces the current connection. What an earlier connection published counts as lost.
func (c *Client) use(cn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.state.Lost > 0 || c.current != nil
	c.current = cn
	if c.onPush != nil {
		cn.listen(c.onPush)
	}
	c.state = State{Connected: true, Server: cn.server.grpc, Since: time.Now(), Lost: c.state.Lost, Again: c.state.Again}
	close(c.changed)
	c.changed = make(chan struct{})
	if again {
		c.state.Again++
		select {
		case c.lost <- struct{}{}:
		default:
		}
	}
}

// drop handles the end of a connection, unless the connection was replaced before.
func (c *Client) drop(cn *conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != cn {
		return
	}
	c.current = nil
	c.state = State{Since: time.Now(), Lost: c.state.Lost + 1, Again: c.state.Again, LastError: err.Error()}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, errRecheck) { // otherwise this process ended it
		c.opts.Observe(Observation{Op: OpLost, Err: err})
		c.opts.Log.Warn("nacos connection lost", "server", cn.server.grpc, "err", err)
	}
}

func (c *Client) failed(attempt int, err error) {
	c.mu.Lock()
	c.state.LastError = err.Error()
	c.mu.Unlock()
	if attempt == 1 {
		c.opts.Log.Warn("nacos unreachable, retrying", "err", err)
	}
}

// State returns the state of the connection and of the login.
func (c *Client) State() State {
	login := c.login.state()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Login = login
	return s
}

// listen sets the function that handles the pushes of the current connection and the next
// ones.
func (c *Client) listen(onPush pushFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onPush = onPush
	if c.current != nil {
		c.current.listen(onPush)
	}
}

// Lost is ready after the connection was replaced, when everything has to be published again.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// call sends a request over the current connection, which it returns. It waits for a
// connection as long as for an answer.
func (c *Client) call(ctx context.Context, r rpc_request.IRequest, out answer) (*conn, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil { // select may have chosen the slot
		return nil, fmt.Errorf("nacos %s: %w", r.GetRequestType(), err)
	}
	cn, err := c.connection(ctx)
	if err != nil {
		return nil, fmt.Errorf("nacos %s: %w", r.GetRequestType(), err)
	}
	return cn, cn.ask(ctx, r, out)
}

// ask implements asker.
func (c *Client) ask(ctx context.Context, r rpc_request.IRequest, out answer) error {
	_, err := c.call(ctx, r, out)
	return err
}

// publish replaces what the connection publishes for a service by a batch. An empty batch
// withdraws the publication.
func (c *Client) publish(ctx context.Context, k serviceKey, b batch) error {
	cn, err := c.call(ctx, b.request(k), &response{})
	if cn != nil {
		cn.mu.Lock()
		defer cn.mu.Unlock()
		delete(cn.published, k) // unknown after an error
		if err == nil && len(b) > 0 {
			cn.published[k] = b
		}
	}
	return err
}

// publication returns what the current connection published for a service.
func (c *Client) publication(k serviceKey) batch {
	c.mu.Lock()
	cn := c.current
	c.mu.Unlock()
	if cn == nil {
		return nil
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.published[k]
}

// connection returns the current connection. It waits for one as long as for an answer.
func (c *Client) connection(ctx context.Context) (*conn, error) {
	timer := time.NewTimer(c.opts.Timeout)
	defer timer.Stop()
	for {
		c.mu.Lock()
		cn, changed := c.current, c.changed
		c.mu.Unlock()
		if cn != nil {
			return cn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, fmt.Errorf("%w: %s", ErrNotConnected, c.State().LastError)
		}
	}
}

func (c *Client) headers() map[string]string {
	h := map[string]string{"charset": "UTF-8", "app": "xds-bridge"}
	if token := c.login.token(); token != "" {
		h["accessToken"] = token
	}
	return h
}

// requestBackoff returns the wait before a failed request is repeated. It is longer than that
// of connections, because there may be thousands of requests.
func (o Options) requestBackoff(failures int) time.Duration {
	return registry.Backoff{Min: o.Backoff.Min, Max: 6 * o.Backoff.Max}.Spread(failures)
}
