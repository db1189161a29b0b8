package ads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Keepalive of every connection. istiod ends connections that ping more often
// than every 15 s; a half-open one is found after their sum.
const (
	KeepaliveTime    = 20 * time.Second
	KeepaliveTimeout = 10 * time.Second
)

// connectTimeout bounds one attempt to connect to one address.
const connectTimeout = 10 * time.Second

// maxDelay bounds the delays of gRPC so that, spread, they are at most backoffCap.
const maxDelay = time.Duration(float64(backoffCap) / (1 + backoffJitter))

// Dial returns a connection to a management server with the keepalive, receive
// limit and credentials of a Client; the given options override them. It does not
// connect yet.
func Dial(address string, c Credentials, o ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := c.check(address); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(address, append(c.options(), o...)...)
	if err != nil {
		return nil, fmt.Errorf("xds %s: %w", address, err)
	}
	return conn, nil
}

// options are those of every connection, after the credentials were checked.
func (c Credentials) options() []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithUserAgent("xds-bridge"),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: KeepaliveTime, Timeout: KeepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout, Backoff: backoff.Config{
			BaseDelay: backoffBase, Multiplier: backoffFactor, Jitter: backoffJitter, MaxDelay: maxDelay,
		}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(DefaultMaxReceive)),
		grpc.WithDisableServiceConfig(),
	}
	if c.TLS == nil {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		options = append(options, grpc.WithTransportCredentials(newFileTLS(c.TLS)))
		if c.TLS.ServerName != "" {
			options = append(options, grpc.WithAuthority(c.TLS.ServerName))
		}
	}
	if c.TokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(token{file: c.TokenFile, plaintext: c.TLS == nil}))
	}
	return options
}

// dial returns a connection through the dialer, with an interval of pings.
func (o Options) dial(ping time.Duration, d *dialer) (*grpc.ClientConn, error) {
	target := o.Address
	options := append(o.Credentials.options(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxReceive)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: ping, Timeout: KeepaliveTimeout}),
	)
	if o.usesDialer() {
		target = "passthrough:///" + o.Address // the dialer resolves it
		options = append(options, grpc.WithContextDialer(d.dial))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("xds %s: %w", o.Address, err)
	}
	return conn, nil
}

// dialer makes the network connections of one connection to the server. It resolves
// the host each time and prefers any other address to that of the connection before:
// if the server has several replicas, another one is asked.
type dialer struct {
	options   *Options
	preferred []string // host:port, tried before the addresses of the name
	avoided   string   // host:port, tried after all others

	mu        sync.Mutex // guards connected
	connected string     // host:port of the newest connection
}

// usesDialer reports whether a dialer makes the connections. gRPC does if the
// address is not host:port, or is behind a proxy.
func (o Options) usesDialer() bool {
	if o.Dialer != nil {
		return true
	}
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return false
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: o.Address}})
	return err == nil && proxy == nil
}

// dial connects to the first address that is reachable. The time that is left is
// shared among the addresses.
func (d *dialer) dial(ctx context.Context, target string) (net.Conn, error) {
	addresses, err := d.addresses(ctx, target)
	if err != nil {
		return nil, err
	}
	var failed error
	for i, address := range addresses {
		conn, err := d.dialOne(ctx, address, len(addresses)-i)
		if err == nil {
			d.mu.Lock()
			d.connected = address
			d.mu.Unlock()
			return conn, nil
		}
		failed = err
	}
	return nil, failed
}

func (d *dialer) dialOne(ctx context.Context, address string, remaining int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(remaining))
		defer cancel()
	}
	if d.options.Dialer != nil {
		return d.options.Dialer(ctx, address)
	}
	var network net.Dialer
	return network.DialContext(ctx, "tcp", address)
}

func (d *dialer) addresses(ctx context.Context, target string) ([]string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || d.options.Dialer != nil && d.options.Lookup == nil {
		return []string{target}, nil //nolint:nilerr // the dialer decides about other forms
	}
	lookup := d.options.Lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	ips, err := lookup(ctx, host)
	if err != nil && len(d.preferred) == 0 {
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	all := slices.Clone(d.preferred)
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	for _, ip := range ips {
		if a := net.JoinHostPort(ip, port); !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	if i := slices.Index(all, d.avoided); i >= 0 {
		all = append(slices.Delete(all, i, i+1), d.avoided)
	}
	if len(all) == 0 {
		return nil, errors.New("resolve " + host + ": no address")
	}
	return all, nil
}

// address returns the address of the newest connection, empty before the first.
func (d *dialer) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.connected
}
