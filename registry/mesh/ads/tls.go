package ads

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// rereading is transport security that reads its files at each handshake.
type rereading struct{ tls TLS }

var _ credentials.TransportCredentials = (*rereading)(nil)

// ClientHandshake reads the files and shakes hands with what they hold now.
func (r *rereading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.tls.load()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn) //nolint:wrapcheck // gRPC reads its own error
}

// ServerHandshake is not what these credentials are for.
func (*rereading) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("ads: credentials of a client")
}

// Info says that it is TLS.
func (*rereading) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns an equal copy.
func (r *rereading) Clone() credentials.TransportCredentials {
	c := *r
	return &c
}

// OverrideServerName is deprecated and does nothing: the name to verify is the
// authority of the connection, see Dial.
func (*rereading) OverrideServerName(string) error { return nil }

// load reads the files.
func (t TLS) load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("authorities: %s: no certificate in it", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s: %w", t.CertFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
