package preflight

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// RightRemedy returns the remedy for an error of an operation that requires a permission.
// That permission is the remedy only if the registry refused the operation.
func RightRemedy(err error, permission string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "allow the bridge to read the file in the error, or correct the path"
	case errors.Is(err, registry.ErrRefused):
		return permission
	}
	return Remedy(err, "the check stopped here: see the other checks of this registry")
}

// The remedies for a port that speaks another protocol.
const (
	nacosPort = "for Nacos, the HTTP port (the bridge adds 1000 for gRPC)"
	notHTTP   = "the port does not speak HTTP: use istiod's " + debug.MonitoringPort + " or, " + nacosPort
	notGRPC   = "the port does not speak gRPC: use istiod's 15010 or 15012 or, " + nacosPort
)

// Remedy returns the remedy for an error of a connection. It begins with the remedy for the
// cause, if that is known, and ends with otherwise. The cause is recognised by the text of
// the error, because gRPC and the client of ZooKeeper report it only there.
func Remedy(err error, otherwise string) string {
	text := err.Error()
	for _, known := range []struct{ sign, remedy string }{
		{"first record does not look like a TLS handshake", "the port speaks plaintext: use the TLS port, or remove tls"},
		{"certificate signed by unknown authority", "set tls.caFile to the authority that signed the server's certificate"},
		{"certificate is valid for", "set tls.serverName to the name in the server's certificate"},
		{"doesn't contain any IP SANs", "set tls.serverName to the name in the server's certificate"},
		{"certificate has expired", "renew the server's certificate, or correct the clock"},
		{"certificate required", "the server requires a client certificate: set tls.certFile and tls.keyFile"},
		{"error reading server preface", notGRPC},
		{"to a wrong username or password too", "check username and passwordFile of the registry"},
		{"malformed HTTP", notHTTP},
		{"readLoopPeekFailLocked", notHTTP}, // from net/http, if the server sends first
		{"no accessToken", "the port is not a port of Nacos: check host and port"},
		{"no such host", "DNS does not know the name here: check the name and its namespace"},
		{"connection refused", "nothing listens at that port: check the port, and whether the server runs"},
		{"check username and passwordFile", "check username and passwordFile of the registry"},
		{"the server refused them with code", "check user and passwordFile of the registry"},
		{": token: ", "the token file cannot be read: check tokenFile, and that the file is mounted"},
	} {
		if strings.Contains(text, known.sign) {
			return known.remedy + "; " + otherwise
		}
	}
	return otherwise
}
