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

// Credentials authenticate the server and the client. TLS files are read at each handshake,
// and the token file for each stream, so that a rotation does not require a restart.
type Credentials struct {
	// TLS configures transport security; nil: plaintext.
	TLS *TLS

	// TokenFile holds a bearer token. White space around it is ignored.
	TokenFile string

	// Insecure allows sending the token in plaintext to hosts other than loopback.
	Insecure bool
}

// TLS configures transport security. Files are in PEM format.
type TLS struct {
	CAFile     string // empty: the system's authorities
	ServerName string // expected in the server's certificate; empty: the host of the address
	CertFile   string // client certificate
	KeyFile    string // private key of CertFile
}

func (c Credentials) check(address string) error {
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return errors.New("ads: Credentials.TLS: CertFile and KeyFile must be set together")
	}
	if c.TokenFile != "" && c.TLS == nil && !c.Insecure && !IsLoopback(address) {
		return fmt.Errorf("ads: Credentials: the token of %s would be sent to %s in plaintext: "+
			"use TLS, or allow it with insecure: true", c.TokenFile, address)
	}
	return nil
}

// IsLoopback reports whether an address certainly is on this machine.
func IsLoopback(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	if _, endpoint, ok := strings.Cut(address, ":///"); ok {
		address = endpoint
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// fileTLS is the TLS of a client that reads its files at each handshake. It verifies the
// authority of the connection: see Credentials.dialOptions.
type fileTLS struct {
	credentials.TransportCredentials

	files tlsfile.Files
}

func newFileTLS(t *TLS) fileTLS {
	return fileTLS{credentials.NewTLS(nil), tlsfile.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile}}
}

// ClientHandshake reads the files and performs the handshake.
func (f fileTLS) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, err := f.files.Config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone returns a copy.
func (f fileTLS) Clone() credentials.TransportCredentials { return f }

// fileToken is a bearer token in a file that is read for each call.
type fileToken struct {
	file           string
	allowPlaintext bool
}

var _ credentials.PerRPCCredentials = fileToken{}

// tokenErrorPrefix begins the errors of token files. They are recognized by it, because gRPC
// keeps only their text.
const tokenErrorPrefix = "token: "

// IsTokenError reports whether a call failed because its token file is not usable.
func IsTokenError(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.HasPrefix(status.Convert(err).Message(), tokenErrorPrefix)
}

// GetRequestMetadata reads the file. An invalid file is reported as Unavailable instead of
// Unauthenticated, because it may be replaced soon.
func (t fileToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	value, err := ReadToken(t.file)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, tokenErrorPrefix+"%v", err)
	}
	return map[string]string{"authorization": "Bearer " + value}, nil
}

// RequireTransportSecurity reports whether gRPC must not send the token in plaintext.
func (t fileToken) RequireTransportSecurity() bool { return !t.allowPlaintext }

// maxToken is larger than any service account token.
const maxToken = 64 << 10

// ReadToken returns the token in a file, without white space around it. It fails if the file
// cannot be read, is empty, or holds anything else. Call it for each use, because the kubelet
// replaces the file.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // read only
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		err = errors.New("is empty")
	case len(text) > maxToken:
		err = errors.New("too large for a token")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		err = errors.New("contains more than a token")
	default:
		return token, nil
	}
	return "", &os.PathError{Op: "read", Path: naming.Quote(path), Err: err}
}
