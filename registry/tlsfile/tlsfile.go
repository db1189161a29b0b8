// Package tlsfile reads the TLS configuration of a client or a server from files.
// It caches nothing. A caller that reads it for each connection uses rotated files.
package tlsfile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// Files are the PEM files of one side of a connection.
type Files struct {
	CA   string // certificates to trust; empty: the system's for a client, none for a server
	Cert string // our certificate; Cert and Key may both be empty
	Key  string // our key

	// ServerName is the name that the server's certificate must have. If it is empty,
	// it is the host of the server's address.
	ServerName string
}

// Server returns the configuration of a server. It fails without a certificate. With a
// CA, clients must have a certificate too.
func (f Files) Server() (*tls.Config, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	if len(config.Certificates) == 0 {
		return nil, errors.New("tls.certFile and tls.keyFile: missing")
	}
	if config.ClientCAs, config.RootCAs = config.RootCAs, nil; config.ClientCAs != nil {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// Config returns the configuration of a client. Its errors do not name settings, which
// have other names in a plugin's URL than in the configuration of the bridge.
func (f Files) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file: %s has no PEM certificate", f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate and key files: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Secure returns a dialer that uses TLS on the connections of another dialer. It calls
// config for each connection, and sets the server's name if the result has none. If
// config is nil, it returns the other dialer.
func Secure(dial Dialer, config func() (*tls.Config, error)) Dialer {
	if config == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := config()
		if err != nil {
			return nil, fmt.Errorf("TLS of %s: %w", address, err)
		}
		if c.ServerName == "" {
			c = c.Clone()
			c.ServerName, _, _ = net.SplitHostPort(address)
		}
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(raw, c)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // the error of the handshake says more
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: the server closed the connection; "+
					"check that it speaks TLS on this port, and whether it requires a client certificate", err)
			}
			return nil, fmt.Errorf("TLS with %s: %w", address, err)
		}
		return secured, nil
	}
}

// A Dialer opens connections, like net.Dialer.DialContext.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)
