package ads

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

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
