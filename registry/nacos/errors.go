package nacos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// The error codes that callers distinguish, of
// com.alibaba.nacos.api.exception.NacosException.
const (
	codeInvalidParam = 400
	codeNoRight      = 403
	codeThreshold    = 503
	codeClientLimit  = -503
	codeUnregistered = 301
	codeNotReady     = 300
)

// The errors of a Client that callers distinguish with errors.Is.
var (
	ErrNotConnected       = errors.New("no connection to any Nacos server")
	ErrDenied       error = accessDenied{}
	ErrThrottled          = errors.New("throttled by the server")
	ErrNotReady           = errors.New("server not ready")
)

// accessDenied is the type of ErrDenied, for callers that do not import this package.
type accessDenied struct{}

// Error implements error.
func (accessDenied) Error() string { return "access denied" }

// Denied reports that the registry refused the credentials.
func (accessDenied) Denied() bool { return true }

// A ResponseError is the answer of a server without success.
type ResponseError struct {
	Op         string // the request type
	ResultCode int
	ErrorCode  int
	Message    string
}

// Error returns the server's message with its codes, and the remedy if there is one.
func (e *ResponseError) Error() string {
	text := fmt.Sprintf("nacos %s: %q (result %d, error %d)", e.Op, clip(e.Message), e.ResultCode, e.ErrorCode)
	switch {
	case strings.Contains(e.Message, "is persistent service"):
		text += ": the instances of a service are either all persistent or all ephemeral, as those of the bridge are; " +
			"register the others as ephemeral, or use another group for the format or another name for the service"
	case errors.Is(e, ErrDenied):
		text += ": check username and passwordFile of the registry, and the user's permission for the namespace"
	}
	return text
}

// Unwrap returns the errors that the code stands for.
func (e *ResponseError) Unwrap() []error {
	switch e.ErrorCode {
	case codeNoRight:
		return []error{ErrDenied, registry.ErrRefused}
	case codeInvalidParam:
		return []error{registry.ErrRefused}
	case codeThreshold, codeClientLimit:
		return []error{ErrThrottled}
	case codeNotReady, codeUnregistered:
		return []error{ErrNotReady}
	default:
		return nil
	}
}

// clip bounds a server's text for an error.
func clip(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
