package ads

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// Credentials authenticate the server and the client. Files are read when they are
// used, so that a rotated one requires no restart: those of TLS at each handshake,
// the token at each stream.
type Credentials struct {
	// TLS is nil for plaintext.
	TLS *TLS
	// TokenFile holds a bearer token, perhaps with white space around it.
	TokenFile string
	// Insecure permits to send the token in plaintext to other hosts than
	// loopback.
	Insecure bool
}

// TLS configures transport security.
type TLS struct {
	CAFile     string // PEM; the system's authorities if empty
	ServerName string // expected in the certificate; the address's host if empty
	CertFile   string // PEM; client certificate
	KeyFile    string // PEM; its key
}

func (c Credentials) check(address string) error {
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return errors.New("ads: Credentials.TLS: CertFile and KeyFile go together")
	}
	if c.TokenFile != "" && c.TLS == nil && !c.Insecure && !IsLoopback(address) {
		return fmt.Errorf("ads: Credentials: the token of %s would go to %s in plaintext: use TLS, or allow it with insecure: true", c.TokenFile, address)
	}
	return nil
}

// IsLoopback reports whether an address is this machine for certain.
func IsLoopback(address string) bool {
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

// fileTLS is TLS of a client that reads its files at each handshake. The authority of
// the connection is verified, see Dial.
type fileTLS struct {
	credentials.TransportCredentials

	files tlsfile.Files
}

func newFileTLS(t *TLS) fileTLS {
	return fileTLS{credentials.NewTLS(nil), tlsfile.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile}}
}

// ClientHandshake reads the files.
func (f fileTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := f.files.Config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone returns an equal copy.
func (f fileTLS) Clone() credentials.TransportCredentials { return f }

// token is a bearer token in a file, read at each call.
type token struct {
	file      string
	plaintext bool // may be sent in plaintext
}

var _ credentials.PerRPCCredentials = token{}

// tokenError is what the error of a token file begins with: gRPC keeps only its text.
const tokenError = "token: "

// IsTokenError reports whether a call was not made because its token file cannot be used.
func IsTokenError(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.HasPrefix(status.Convert(err).Message(), tokenError)
}

// GetRequestMetadata reads the file. The error of an invalid file is Unavailable and
// not Unauthenticated: it may be about to be replaced.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	value, err := ReadToken(t.file)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, tokenError+"%v", err)
	}
	return map[string]string{"authorization": "Bearer " + value}, nil
}

// RequireTransportSecurity makes gRPC refuse to send the token over plaintext.
func (t token) RequireTransportSecurity() bool { return !t.plaintext }

// maxToken is more than any service account token has.
const maxToken = 64 << 10

// ReadToken returns the token in a file, without the white space around it. It is to
// be called for each use: the kubelet replaces the file behind a symbolic link.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		err = errors.New("is empty")
	case len(text) > maxToken:
		err = errors.New("is larger than a token can be")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		err = errors.New("holds more than a token")
	default:
		return token, nil
	}
	return "", &os.PathError{Op: "read", Path: naming.Quote(path), Err: err}
}
