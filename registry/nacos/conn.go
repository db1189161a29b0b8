package nacos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// A conn is one connection to one server. Instances that are published on it exist as long
// as the connection.
type conn struct {
	// Immutable once open has returned.
	client   *Client
	server   server
	cc       *grpc.ClientConn
	requests nacosgrpc.RequestClient
	stream   nacosgrpc.BiRequestStream_RequestBiStreamClient
	cancel   context.CancelFunc

	reset chan struct{} // closed once the server wants another connection
	dead  chan struct{} // closed once the stream has ended
	err   error         // why the stream ended; written before dead is closed

	mu        sync.Mutex
	clientIP  string
	published map[serviceKey]batch // as the server accepted it
	onPush    pushFunc             // may be nil
}

// A pushFunc handles the push of a service, on the goroutine that receives it. The key has no
// namespace, because servers leave it out.
type pushFunc func(serviceKey, *model.Service)

// serviceKey names a service on a server.
type serviceKey struct{ namespace, group, name string }

// open connects to a server, and waits until the server has registered the connection.
func (c *Client) open(ctx context.Context, s server) (*conn, error) {
	cn := &conn{
		client: c, server: s, published: make(map[serviceKey]batch),
		reset: make(chan struct{}), dead: make(chan struct{}),
	}
	if err := cn.dial(); err != nil {
		return nil, err
	}
	setup, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	if err := cn.setUp(setup); err != nil {
		cn.close()
		return nil, fmt.Errorf("connect to %s: %w", s.grpc, err)
	}
	return cn, nil
}

func (cn *conn) dial() error {
	o := cn.client.opts
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		cfg, err := o.TLS()
		if err != nil {
			return fmt.Errorf("tls of %s: %w", cn.server.grpc, err)
		}
		creds = credentials.NewTLS(cfg)
	}
	dialer := func(ctx context.Context, address string) (net.Conn, error) {
		nc, err := o.Dialer(ctx, "tcp", address)
		if err == nil {
			cn.mu.Lock()
			cn.clientIP, _, _ = net.SplitHostPort(nc.LocalAddr().String())
			cn.mu.Unlock()
		}
		return nc, err
	}
	cc, err := grpc.NewClient("passthrough:///"+cn.server.grpc, grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(dialer), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxReceive)))
	if err != nil {
		return fmt.Errorf("dial %s: %w", cn.server.grpc, err)
	}
	cn.cc, cn.requests = cc, nacosgrpc.NewRequestClient(cc)
	return nil
}

// setUp opens the stream of pushes, and registers the connection.
func (cn *conn) setUp(ctx context.Context) error {
	if err := cn.call(ctx, rpc_request.NewServerCheckRequest(), &response{}); err != nil {
		return err
	}
	// The stream outlives the time limit of the setup.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cn.cancel = cancel
	// A push of the size of an answer must not end the connection.
	limit := grpc.MaxCallRecvMsgSize(2 * cn.client.opts.MaxReceive)
	stream, err := nacosgrpc.NewBiRequestStreamClient(cn.cc).RequestBiStream(streamCtx, limit)
	if err != nil {
		cancel()
		return fmt.Errorf("open stream: %w", err)
	}
	cn.stream = stream
	setup := rpc_request.NewConnectionSetupRequest()
	setup.ClientVersion = clientVersion
	setup.Tenant = onWire(cn.client.opts.Namespace)
	setup.Labels = map[string]string{"source": "sdk", "module": "naming", "AppName": "xds-bridge"}
	payload, err := encode(setup, cn.client.headers(), cn.localIP())
	if err != nil {
		return err
	}
	if err := stream.Send(payload); err != nil {
		return fmt.Errorf("send setup: %w", err)
	}
	cn.client.goroutines.Go(cn.receive)
	return cn.waitRegistered(ctx)
}

// waitRegistered waits until the server has registered the connection. Until then the server,
// which handles the setup concurrently, answers requests with "unregistered".
func (cn *conn) waitRegistered(ctx context.Context) error {
	const pause = 10 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for registration: %w", ctx.Err())
		case <-cn.dead:
			return cn.err
		case <-timer.C:
		}
		err := cn.call(ctx, rpc_request.NewHealthCheckRequest(), &response{})
		if !errors.Is(err, ErrNotReady) {
			return err
		}
		timer.Reset(pause)
	}
}

// receive acknowledges and handles pushes until the stream ends. After the setup only receive
// sends on the stream.
func (cn *conn) receive() {
	defer close(cn.dead)
	reset := sync.OnceFunc(func() { close(cn.reset) })
	for {
		p, err := cn.stream.Recv()
		if err != nil {
			cn.err = fmt.Errorf("stream of %s: %w", cn.server.grpc, err)
			return
		}
		pushed, err := decodePush(p)
		if err != nil {
			cn.client.opts.Log.Warn("push skipped", "server", cn.server.grpc, "err", err)
			continue
		}
		if err := cn.stream.Send(pushed.ack()); err != nil {
			cn.err = fmt.Errorf("stream of %s: %w", cn.server.grpc, err)
			return
		}
		switch pushed.kind {
		case "ConnectResetRequest":
			reset()
		case "NotifySubscriberRequest":
			cn.notify(pushed)
		}
	}
}

// notify passes a push of instances to onPush.
func (cn *conn) notify(p push) {
	cn.mu.Lock()
	onPush := cn.onPush
	cn.mu.Unlock()
	if onPush == nil {
		return
	}
	k, info, err := p.service()
	if err != nil {
		cn.client.opts.Log.Warn("push skipped", "server", cn.server.grpc, "err", err) // the service is read later
		return
	}
	onPush(k, info)
}

// call sends a request and decodes the answer into out.
func (cn *conn) call(ctx context.Context, r rpc_request.IRequest, out answer) error {
	op := r.GetRequestType()
	payload, err := encode(r, cn.client.headers(), cn.localIP())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cn.client.opts.Timeout)
	defer cancel()
	began := time.Now()
	got, err := cn.requests.Request(ctx, payload)
	switch ended := ctx.Err(); {
	case err == nil:
		err = decode(op, got, out)
	case ended != nil: // instead of a status of gRPC
		err = fmt.Errorf("nacos %s to %s: %w", op, cn.server.grpc, ended)
	default:
		err = fmt.Errorf("nacos %s to %s: %w", op, cn.server.grpc, err)
	}
	cn.client.opts.Observe(Observation{
		Op: op, Took: time.Since(began), Err: err,
		Sent: len(payload.GetBody().GetValue()), Got: len(got.GetBody().GetValue()),
	})
	return err
}

// ask sends a request. If the token has expired or was revoked, it logs in and sends the
// request again.
func (cn *conn) ask(ctx context.Context, r rpc_request.IRequest, out answer) error {
	login := cn.client.login
	token := login.token()
	err := cn.call(ctx, r, out)
	if errors.Is(err, ErrDenied) && login.renew(ctx, token) {
		token = login.token()
		err = cn.call(ctx, r, out)
		login.repeated(token, err)
	}
	return err
}

func (cn *conn) localIP() string {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.clientIP
}

// watch checks the connection until it ends, the server wants another one, or ctx ends. It
// returns which.
func (cn *conn) watch(ctx context.Context) error {
	const misses = 2
	ticker := time.NewTicker(cn.client.opts.Health)
	defer ticker.Stop()
	for missed := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-cn.dead:
			return cn.err
		case <-cn.reset:
			return errReset
		case <-ticker.C:
		}
		err := cn.call(ctx, rpc_request.NewHealthCheckRequest(), &response{})
		switch {
		case err == nil:
			missed = 0
		case errors.Is(err, ErrNotReady):
			return err // the server forgot the connection
		default:
			if missed++; missed >= misses {
				return fmt.Errorf("health check: %w", err)
			}
		}
	}
}

// errReset means that a server wants another connection.
var errReset = errors.New("the server requested a new connection")

// close ends the connection, which deletes the instances that are published on it.
func (cn *conn) close() {
	if cn.cancel != nil {
		cn.cancel()
	}
	if err := cn.cc.Close(); err != nil {
		cn.client.opts.Log.Debug("connection closed", "server", cn.server.grpc, "err", err)
	}
}

// listen sets the function that handles pushes.
func (cn *conn) listen(onPush pushFunc) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.onPush = onPush
}
