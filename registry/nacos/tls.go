package nacos

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// tlsDialer returns a dialer that asks for the configuration anew for every
// connection, so that changed files are used without a restart.
func tlsDialer(dial dialer, config func() (*tls.Config, error)) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		cfg, err := config()
		if err != nil {
			return nil, fmt.Errorf("tls of %s: %w", address, err)
		}
		if cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName, _, _ = net.SplitHostPort(address)
		}
		nc, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(nc, cfg)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("tls with %s: %w", address, err)
		}
		return secured, nil
	}
}
