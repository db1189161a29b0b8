package convert

import "strings"

// Family is what protocols have in common for a consumer: one that speaks one
// of a family speaks all of it.
type Family string

// The families.
const (
	HTTP  Family = "http"  // http, https, http2, rest
	GRPC  Family = "grpc"  // grpc, grpcs, tri
	Other Family = "other" // all others
)

// FamilyOf returns the family of a protocol.
func FamilyOf(protocol string) Family {
	switch strings.ToLower(protocol) {
	case "http", "https", "http2", "rest":
		return HTTP
	case "grpc", "grpcs", "tri":
		return GRPC
	default:
		return Other
	}
}

// Known reports whether a text is the name of a protocol that services are
// called by.
func Known(protocol string) bool {
	switch p := strings.ToLower(protocol); p {
	case "dubbo", "thrift", "tcp", "tls", "udp", "ws", "wss", "mongo", "redis", "mysql":
		return true
	default:
		return FamilyOf(p) != Other
	}
}

// Secure reports whether a protocol is one over TLS.
func Secure(protocol string) bool {
	switch strings.ToLower(protocol) {
	case "https", "grpcs", "tls":
		return true
	}
	return false
}

// Scheme returns the scheme that Go frameworks write for a protocol: grpc or
// http, with an s where it is over TLS; other protocols are their own.
func Scheme(protocol string) string {
	family := FamilyOf(protocol)
	if family == Other {
		return strings.ToLower(protocol)
	}
	if Secure(protocol) {
		return string(family) + "s"
	}
	return string(family)
}
