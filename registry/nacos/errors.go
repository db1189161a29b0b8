package nacos

import (
	"errors"
	"fmt"

	"github.com/xds-bridge/xds-bridge/registry"
)

// The error codes of Nacos that a caller decides by; the source is
// com.alibaba.nacos.api.exception.NacosException.
const (
	codeInvalidParam = 400
	codeNoRight      = 403
	codeThreshold    = 503
	codeClientLimit  = -503
	codeUnregistered = 301
	codeNotReady     = 300
)

// Errors of a Client that callers distinguish with errors.Is.
var (
	ErrNotConnected = errors.New("no connection to any Nacos server")
	ErrDenied       = errors.New("access denied")
	ErrThrottled    = errors.New("throttled by the server")
	ErrNotReady     = errors.New("server not ready")
)

// A ResponseError is what a server answered instead of a success.
type ResponseError struct {
	Op         string // the request type
	ResultCode int
	ErrorCode  int
	Message    string
}

// Error returns the server's words with their codes and, where there is one,
// the remedy.
func (e *ResponseError) Error() string {
	text := fmt.Sprintf("nacos %s: %q (result %d, error %d)", e.Op, clip(e.Message), e.ResultCode, e.ErrorCode)
	if errors.Is(e, ErrDenied) {
		text += ": check username and passwordFile of the registry, and the user's permission for the namespace"
	}
	return text
}

// Unwrap returns the sentinels that the codes stand for.
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

// clip bounds a text of a server before it goes into an error.
func clip(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
