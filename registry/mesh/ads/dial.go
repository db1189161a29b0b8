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

// The keepalive of every connection. istiod closes connections that ping more often than
// every 15 s. A half-open connection is detected after the sum of both.
const (
	KeepaliveTime    = 20 * time.Second
	KeepaliveTimeout = 10 * time.Second
)

// connectTimeout is the least time that gRPC gives an attempt to connect.
const connectTimeout = 10 * time.Second

// maxGRPCDelay bounds the backoff of gRPC, so that it is at most backoffCap with its jitter.
const maxGRPCDelay = time.Duration(float64(backoffCap) / (1 + backoffJitter))

// Dial returns a connection to a management server, with the keepalive and the default
// receive limit of a Client. Further options override them. It does not connect yet. It fails
// if the credentials or the address are invalid.
func Dial(address string, c Credentials, o ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := c.check(address); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(address, append(c.dialOptions(), o...)...)
	if err != nil {
		return nil, fmt.Errorf("xds %s: %w", address, err)
	}
	return conn, nil
}

// dialOptions returns the options of every connection. The credentials must be valid.
func (c Credentials) dialOptions() []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithUserAgent("xds-bridge"),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: KeepaliveTime, Timeout: KeepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout, Backoff: backoff.Config{
			BaseDelay: backoffBase, Multiplier: backoffFactor, Jitter: backoffJitter, MaxDelay: maxGRPCDelay,
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
		options = append(options, grpc.WithPerRPCCredentials(fileToken{file: c.TokenFile, allowPlaintext: c.TLS == nil}))
	}
	return options
}

// dial returns a connection that uses the dialer, where possible, and pings at an interval.
func (o Options) dial(pingInterval time.Duration, d *dialer) (*grpc.ClientConn, error) {
	target := o.Address
	options := append(o.Credentials.dialOptions(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxReceive)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: KeepaliveTimeout}),
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

// dialer makes the network connections of one gRPC connection. It resolves the host each
// time. It avoids the address of the connection before, so that it reaches another replica of
// the server if there are several.
type dialer struct {
	// Immutable.
	options   *Options
	preferred []string // host:port, tried before the resolved addresses
	avoided   string   // host:port, tried last

	// Guarded by mu.
	mu        sync.Mutex
	connected string // host:port of the newest connection
}

// usesDialer reports whether a dialer makes the connections. Otherwise gRPC does: the address
// is not host:port, or is behind a proxy.
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

// dial connects to the first reachable address. The untried addresses share the remaining
// time.
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

// dialOne connects to one address, in its share of the remaining time.
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

// addresses returns the addresses of target, in the order in which they are tried.
func (d *dialer) addresses(ctx context.Context, target string) ([]string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || d.options.Dialer != nil && d.options.Lookup == nil {
		return []string{target}, nil //nolint:nilerr // other forms are for the dialer
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
		return nil, errors.New("resolve " + host + ": no addresses")
	}
	return all, nil
}

// address returns the address of the newest connection; empty: none yet.
func (d *dialer) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.connected
}
