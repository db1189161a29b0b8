// Package cause distinguishes errors by what an operator can do about them. The exit code
// of a command depends on the cause.
package cause

import "fmt"

// A Kind is a cause of an error.
type Kind int

// The kinds of causes.
const (
	Findings    Kind = iota // a check found something, or an operation was not carried out
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

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// New returns an Error with a cause.
func New(k Kind, err error) error { return &Error{Kind: k, Err: err} }

// Usagef returns a formatted Error of kind Usage.
func Usagef(format string, args ...any) error {
	return New(Usage, fmt.Errorf(format, args...))
}

// Unreachablef returns a formatted Error of kind Unreachable.
func Unreachablef(format string, args ...any) error {
	return New(Unreachable, fmt.Errorf(format, args...))
}
