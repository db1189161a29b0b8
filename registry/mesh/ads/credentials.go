package ads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// Credentials say how a server is authenticated and who the client is. Every
// file is read when it is used, so that a rotated one needs no restart: those of
// TLS at each handshake, the token at each stream.
type Credentials struct {
	// TLS is nil for plaintext.
	TLS *TLS
	// TokenFile holds a bearer token; white space around it is not part of it.
	TokenFile string
	// Insecure permits to send the token in plaintext to another host. To
	// loopback it is sent in any case.
	Insecure bool
}

// TLS configures transport security.
type TLS struct {
	CAFile     string // PEM; the system's authorities if empty
	ServerName string // to be found in the certificate's names; the address's host if empty
	CertFile   string // PEM; client certificate
	KeyFile    string // PEM; its key
}

func (c Credentials) check(address string) error {
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return errors.New("ads: Credentials.TLS: CertFile and KeyFile go together")
	}
	if c.TokenFile != "" && c.TLS == nil && !c.Insecure && !loopback(address) {
		return fmt.Errorf("ads: Credentials: the token of %s would go to %s in plaintext: use TLS, or permit it with insecure: true", c.TokenFile, address)
	}
	return nil
}

// loopback says whether an address never leaves this machine.
func loopback(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	if _, rest, ok := strings.Cut(address, ":///"); ok {
		address = rest
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// rereading is transport security that reads its files at each handshake.
type rereading struct{ tls TLS }

var _ credentials.TransportCredentials = (*rereading)(nil)

// ClientHandshake reads the files and shakes hands with what they hold now.
func (r *rereading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := tlsfile.Files{CA: r.tls.CAFile, Cert: r.tls.CertFile, Key: r.tls.KeyFile}.Config()
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the file and the setting
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

// token is a bearer token in a file, read at each call.
type token struct {
	file      string
	plaintext bool // may go over plaintext
}

var _ credentials.PerRPCCredentials = token{}

// GetRequestMetadata reads the file. A file that cannot be used is unavailable
// and not unauthenticated: it may be about to be replaced.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	content, err := os.ReadFile(t.file)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "token: %v", err)
	}
	value := bytes.TrimSpace(content)
	if len(value) == 0 {
		return nil, status.Errorf(codes.Unavailable, "token: %s is empty", t.file)
	}
	for _, b := range value {
		if b <= ' ' || b > '~' {
			return nil, status.Errorf(codes.Unavailable, "token: %s holds more than a token", t.file)
		}
	}
	return map[string]string{"authorization": "Bearer " + string(value)}, nil
}

// RequireTransportSecurity makes gRPC refuse to send the token over plaintext.
func (t token) RequireTransportSecurity() bool { return !t.plaintext }
