package nacos

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// tlsDialer returns a dialer that asks for the configuration anew for every
// connection, so that changed files are used without a restart.
func tlsDialer(config func() (*tls.Config, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		cfg, err := config()
		if err != nil {
			return nil, fmt.Errorf("tls of %s: %w", address, err)
		}
		if cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName, _, _ = net.SplitHostPort(address)
		}
		d := tls.Dialer{Config: cfg}
		nc, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", address, err)
		}
		return nc, nil
	}
}
