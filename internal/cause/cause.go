// Package cause tells errors apart by what an operator can do about them. Commands make
// exit codes of it.
package cause

import "fmt"

// A Kind says why something failed, by what can be done about it.
type Kind int

// The causes of an Error.
const (
	Findings    Kind = iota // something was found, or was not done
	Usage                   // the command line or the configuration is wrong
	Unreachable             // a registry is unreachable, unreadable, or did not answer in time
)

// An Error is an error with its Kind. Its text is that of Err.
type Error struct {
	Kind Kind
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an Error.
func New(k Kind, err error) error { return &Error{Kind: k, Err: err} }

// Usagef returns an Error of Usage.
func Usagef(format string, args ...any) error {
	return New(Usage, fmt.Errorf(format, args...))
}

// Unreachablef returns an Error of Unreachable.
func Unreachablef(format string, args ...any) error {
	return New(Unreachable, fmt.Errorf(format, args...))
}
