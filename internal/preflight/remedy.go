package preflight

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// RightRemedy returns the remedy of an error of what requires a right. The right helps
// only if the registry refused us.
func RightRemedy(err error, right string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "let the bridge read the file that the error names, or correct its path"
	case errors.Is(err, registry.ErrRefused):
		return right
	}
	return Remedy(err, "this was not tried any further: see what the other checks of this registry say")
}

const noHTTP = "the port speaks no HTTP: name istiod's " + debug.MonitoringPort + " or, of Nacos, the HTTP port, to which 1000 is added for gRPC"

// Remedy returns the remedy of an error of a connection by its kind, or else the given
// one. gRPC and the client of ZooKeeper report causes as text alone.
func Remedy(err error, otherwise string) string {
	text := err.Error()
	for _, k := range []struct{ sign, remedy string }{
		{"first record does not look like a TLS handshake", "the port speaks plaintext: name the TLS port, or leave tls out"},
		{"certificate signed by unknown authority", "write the file of the authority that signed the server's certificate as tls.caFile"},
		{"certificate is valid for", "write the name that the certificate has as tls.serverName"},
		{"doesn't contain any IP SANs", "write the name that the certificate has as tls.serverName"},
		{"certificate has expired", "renew the server's certificate, or set the clock"},
		{"certificate required", "the server wants a client certificate: write tls.certFile and tls.keyFile"},
		{"error reading server preface", "the port speaks no gRPC: name istiod's 15010 or 15012 or, of Nacos, the HTTP port, to which 1000 is added"},
		{"to a wrong username or password too", "check username and passwordFile of the registry"},
		{"malformed HTTP", noHTTP},
		{"readLoopPeekFailLocked", noHTTP}, // net/http of a server that speaks first
		{"no accessToken", "the port is not Nacos': check host and port"},
		{"no such host", "the name is not known to DNS from here: check it, and its namespace"},
		{"connection refused", "nobody listens at that port: check the port, and whether the server runs"},
		{"check username and passwordFile", "check username and passwordFile of the registry"},
		{"the server refused them with code", "check user and passwordFile of the registry"},
		{": token: ", "the token file cannot be read: check tokenFile, and that it is mounted"},
	} {
		if strings.Contains(text, k.sign) {
			return k.remedy + "; " + otherwise
		}
	}
	return otherwise
}
