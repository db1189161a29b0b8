package debug

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// Cause is why the mapping could not be read.
type Cause string

// The causes.
const (
	NoReplicas   Cause = "no replicas"       // no replica is known
	Unreachable  Cause = "unreachable"       // no connection, or it broke before a response
	Unauthorized Cause = "unauthorized"      // HTTP 401, gRPC Unauthenticated
	Forbidden    Cause = "forbidden"         // HTTP 403, gRPC PermissionDenied
	NotServed    Cause = "not served"        // HTTP 404, gRPC Unimplemented or NotFound
	Refused      Cause = "refused"           // any other status
	NotAnswer    Cause = "not the debug API" // a response that is not istiod's: HTML, a redirect, other JSON
	Truncated    Cause = "truncated"         // the response is incomplete
	TooLarge     Cause = "too large"         // more than MaxBytes
	Slow         Cause = "slow"              // no complete response within Timeout
	NoToken      Cause = "no token"          // the token file is not usable
	Plaintext    Cause = "plaintext"         // the token would be sent in plaintext
)

// Remedy returns what an operator can do about the cause.
func (c Cause) Remedy() string {
	remedies := map[Cause]string{
		NoReplicas: "check the address of istiod",
		Unreachable: "check that istiod runs and that no network policy blocks its debug port " +
			"(" + MonitoringPort + " or " + httpPort + "; over xDS 15012)",
		Unauthorized: "configure a token file with a service account token of audience istio-ca; " +
			"over xDS use the TLS port, 15012",
		Forbidden: "run in istiod's root namespace (istio-system), or set istiod's " +
			"DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES to the namespace of the token",
		NotServed: "set istiod's ENABLE_DEBUG_ON_HTTP to true, or read the mapping over xDS",
		Refused:   "see the log of istiod",
		NotAnswer: "check that address and port are istiod's own, not those of a proxy or an ingress",
		Truncated: "check the network to istiod; the next read may succeed",
		TooLarge:  "raise istiod.mapping.maxAnswer",
		Slow:      "raise the timeout of the mapping, or check istiod's load",
		NoToken:   "check the token file and its permissions",
		Plaintext: "read the mapping over xDS with TLS, or set insecure: true if the network is trusted",
	}
	return remedies[c]
}

// Error is why one replica, or every replica, could not be read.
type Error struct {
	Cause Cause
	Where string // the URL or the replica
	Err   error
	Fix   string // replaces Cause.Remedy; empty: it applies
}

// Remedy returns what an operator can do about the error.
func (e *Error) Remedy() string { return cmp.Or(e.Fix, e.Cause.Remedy()) }

// RefusesKeys reports whether istiod refuses to show the service keys, or the token cannot be
// sent. istiod itself is reachable then.
func (e *Error) RefusesKeys() bool {
	switch e.Cause {
	case Unauthorized, Forbidden, NotServed, Refused, NoToken, Plaintext:
		return true
	default:
		return false
	}
}

// Error returns one line: the location, the cause and the remedy.
func (e *Error) Error() string {
	return "mapping from " + printable(e.Where) + ": " + printable(ads.Brief(e.Err).Error()) + "; " + e.Remedy()
}

// maxLine bounds the length of a foreign text in an error.
const maxLine = 600

// printable truncates a text, and escapes it if it could harm a terminal.
func printable(s string) string {
	if len(s) > maxLine {
		s = s[:maxLine] + "..."
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		s = strings.Trim(strconv.QuoteToASCII(s), `"`)
	}
	return s
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

func newError(cause Cause, reason string) error { return &Error{Cause: cause, Err: errors.New(reason)} }

// causeOf returns the cause of an error.
func causeOf(err error) Cause {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Cause
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return Unreachable
	}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case ok && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Slow
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Truncated
	default:
		return Unreachable
	}
}
