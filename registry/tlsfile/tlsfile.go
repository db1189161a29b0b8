// Package tlsfile reads the TLS configuration of a client or a server from files.
// It caches nothing: called for each connection, it follows rotated files.
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
	CA   string // certificates to trust; empty: for a client the system's, for a server none
	Cert string // our certificate; empty, like Key: none
	Key  string // our key

	// ServerName is the name that a server's certificate must have; empty: the name
	// by which the server is called.
	ServerName string
}

// Server is Config for a server, which requires a certificate. With a CA it requires
// one of clients too.
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

// Config reads the files for a client. The errors name no setting: in a plugin's URL
// it has another name than in the configuration of the bridge.
func (f Files) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file: %s holds no certificate in PEM form", f.CA)
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

// Secure returns a dialer that secures the connections of another. It asks for a
// configuration each time, and sets the name of the server if there is none; nil:
// plaintext.
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
			_ = raw.Close() // the other error says more
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: the server closed the connection; check that it speaks TLS at this port, and whether it requires a client certificate", err)
			}
			return nil, fmt.Errorf("TLS with %s: %w", address, err)
		}
		return secured, nil
	}
}

// A Dialer makes connections, as net.Dialer.DialContext does.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)
