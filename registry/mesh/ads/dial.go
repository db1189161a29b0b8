package ads

import (
	"fmt"
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

// Dial returns a connection to a management server as a Client makes it, with
// its keepalive, receive limit and credentials; options given override those. It
// does not connect yet. Whoever closes it ends its streams.
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

// options are those of every connection. The credentials have been checked
// against the address.
func (c Credentials) options() []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithUserAgent("xds-bridge"),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: KeepaliveTime, Timeout: KeepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(DefaultMaxReceive)),
		grpc.WithDisableServiceConfig(),
	}
	if c.TLS == nil {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		options = append(options, grpc.WithTransportCredentials(&rereading{tls: *c.TLS}))
		if c.TLS.ServerName != "" {
			options = append(options, grpc.WithAuthority(c.TLS.ServerName))
		}
	}
	if c.TokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(token{file: c.TokenFile, plaintext: c.TLS == nil}))
	}
	return options
}

// dial returns a connection as the options have it, that pings every so often
// and leads where the dialer leads.
func (o Options) dial(ping time.Duration, d *dialer) (*grpc.ClientConn, error) {
	target := o.Address
	options := append(o.Credentials.options(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxReceive)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: ping, Timeout: KeepaliveTimeout}),
	)
	if o.dials() {
		target = "passthrough:///" + o.Address // gRPC does not resolve what is handed to a dialer
		options = append(options, grpc.WithContextDialer(d.dial))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("xds %s: %w", o.Address, err)
	}
	return conn, nil
}
