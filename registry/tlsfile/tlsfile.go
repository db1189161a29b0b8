// Package tlsfile makes the TLS configuration of a client from files. It keeps
// nothing: asked for each connection, it follows files that are rotated.
package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files are where a client finds what it trusts and who it is, as PEM.
type Files struct {
	CA   string // certificates to trust; the system's where it is empty
	Cert string // our certificate, with Key; none where both are empty
	Key  string // our key
}

// Config reads the files. The errors name them and the settings they come from.
func (f Files) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.caFile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.caFile: %s holds no certificate in PEM form", f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.certFile and tls.keyFile: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
