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

// Cause is why the mapping could not be read; each has its remedy.
type Cause string

// The causes.
const (
	NoReplicas   Cause = "no replicas"       // none is known
	Unreachable  Cause = "unreachable"       // no connection, or it broke before a response
	Unauthorized Cause = "unauthorized"      // HTTP 401, gRPC Unauthenticated
	Forbidden    Cause = "forbidden"         // HTTP 403, gRPC PermissionDenied
	NotServed    Cause = "not served"        // HTTP 404
	Refused      Cause = "refused"           // any other status
	NotAnswer    Cause = "not the debug API" // a response that is none of istiod's: HTML, a redirect, other JSON
	Truncated    Cause = "truncated"         // the response stops before its end
	TooLarge     Cause = "too large"         // more than MaxBytes
	Slow         Cause = "slow"              // no complete response within Timeout
	NoToken      Cause = "no token"          // the token file cannot be used
	Plaintext    Cause = "plaintext"         // the token would be sent in plaintext
)

// Remedy returns what to do about it.
func (c Cause) Remedy() string {
	remedies := map[Cause]string{
		NoReplicas:   "check the address of istiod",
		Unreachable:  "check that istiod runs and that no network policy closes its debug port (" + MonitoringPort + ", " + httpPort + "; over xDS 15012)",
		Unauthorized: "give a token file with a service account token of audience istio-ca; over xDS use the TLS port, 15012",
		Forbidden:    "run in istiod's root namespace (istio-system), or set DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES of istiod to the namespace of the token",
		NotServed:    "set ENABLE_DEBUG_ON_HTTP=true of istiod, or read the mapping over xDS",
		Refused:      "see the log of istiod",
		NotAnswer:    "check that address and port are istiod's own, without a proxy or an ingress between",
		Truncated:    "check the network between here and istiod; the next reading may succeed",
		TooLarge:     "raise istiod.mapping.maxAnswer",
		Slow:         "raise the timeout of the mapping, or check the load of istiod",
		NoToken:      "check the token file and who may read it",
		Plaintext:    "read the mapping over xDS with TLS, or set insecure: true if the network is trusted",
	}
	return remedies[c]
}

// Error says why one replica, or all of them, could not be read.
type Error struct {
	Cause Cause
	Where string // the URL or the replica; set by request
	Err   error
	Fix   string // what to do, if that differs from Cause.Remedy
}

// Remedy returns what to do about it.
func (e *Error) Remedy() string { return cmp.Or(e.Fix, e.Cause.Remedy()) }

// RefusesKeys reports whether istiod answered, and refuses to show the service keys.
func (e *Error) RefusesKeys() bool {
	switch e.Cause {
	case Unauthorized, Forbidden, NotServed, Refused, NoToken, Plaintext:
		return true
	default:
		return false
	}
}

// Error returns one line: what was read, why it failed and what to do.
func (e *Error) Error() string {
	return "mapping from " + printable(e.Where) + ": " + printable(ads.Brief(e.Err).Error()) + "; " + e.Remedy()
}

// maxLine bounds how much of a foreign text an error shows.
const maxLine = 600

// printable cuts a text, and escapes it if it might harm a terminal.
func printable(s string) string {
	if len(s) > maxLine {
		s = s[:maxLine] + "..."
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		s = strings.Trim(strconv.QuoteToASCII(s), `"`)
	}
	return s
}

// Unwrap returns the error of the layer below.
func (e *Error) Unwrap() error { return e.Err }

func newError(cause Cause, reason string) error { return &Error{Cause: cause, Err: errors.New(reason)} }

// causeOf returns why a response could not be read.
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
