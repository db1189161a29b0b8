package app

import "strings"

const noHTTP = "the port speaks no HTTP: name Nacos' HTTP port, to which 1000 is added for gRPC"

// remedyOf returns what to do about an error of a connection by its kind, and
// else what is to be checked. gRPC and the client of ZooKeeper tell their causes
// as text alone.
func remedyOf(err error, otherwise string) string {
	text := err.Error()
	for _, k := range []struct{ sign, remedy string }{
		{"first record does not look like a TLS handshake", "the port speaks plaintext: name the TLS port, or leave tls out"},
		{"certificate signed by unknown authority", "write the file of the authority that signed the server's certificate as tls.caFile"},
		{"certificate is valid for", "write the name that the certificate has as tls.serverName"},
		{"doesn't contain any IP SANs", "write the name that the certificate has as tls.serverName"},
		{"certificate has expired", "renew the server's certificate, or set the clock"},
		{"certificate required", "the server wants a client certificate: write tls.certFile and tls.keyFile"},
		{"error reading server preface", "the port speaks no gRPC: name istiod's 15010 or 15012, or of Nacos the HTTP port, to which 1000 is added"},
		{"to a wrong username or password too", "check username and passwordFile of the registry"},
		{"malformed HTTP", noHTTP},
		{"readLoopPeekFailLocked", noHTTP}, // net/http of a server that speaks first
		{"no accessToken", "the port is not Nacos': check host and port"},
		{"no such host", "the name is not known to DNS from here: check it, and its namespace"},
		{"connection refused", "nobody listens at that port: check the port, and whether the server runs"},
	} {
		if strings.Contains(text, k.sign) {
			return k.remedy + "; " + otherwise
		}
	}
	return otherwise
}
