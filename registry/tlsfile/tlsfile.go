// Package tlsfile makes the TLS configuration of a client or a server from
// files. It keeps nothing: asked for each connection, it follows files that are
// rotated.
package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Files are where one side of a connection finds what it trusts and who it is,
// as PEM.
type Files struct {
	CA   string // certificates to trust; empty: for a client the system's, for a server none
	Cert string // our certificate, with Key; none where both are empty
	Key  string // our key

	// ServerName is what the certificate of a server has to hold; empty: the name
	// by which it is reached.
	ServerName string
}

// Server is Config for a server, which needs a certificate. Where it trusts
// certificates, a client has to have one that they sign.
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

// Config reads the files for a client. The errors name them, and no setting: a
// plugin's URL calls it otherwise than the configuration of the bridge.
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
