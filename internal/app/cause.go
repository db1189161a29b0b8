package app

import "fmt"

// A Cause says why something failed, by what can be done about it.
type Cause int

// The causes of an Error.
const (
	CauseFindings    Cause = iota // something was found, or was not done
	CauseUsage                    // the command line or the configuration is wrong
	CauseUnreachable              // a registry is unreachable, unreadable, or did not answer in time
)

// An Error is an error with its Cause. Its text is that of Err.
type Error struct {
	Cause Cause
	Err   error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its cause.
func (e *Error) Unwrap() error { return e.Err }

// withCause returns an Error.
func withCause(c Cause, err error) error { return &Error{Cause: c, Err: err} }

// usage returns an Error of CauseUsage.
func usage(format string, args ...any) error {
	return withCause(CauseUsage, fmt.Errorf(format, args...))
}

// unreachable returns an Error of CauseUnreachable.
func unreachable(format string, args ...any) error {
	return withCause(CauseUnreachable, fmt.Errorf(format, args...))
}
