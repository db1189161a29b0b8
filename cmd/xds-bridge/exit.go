package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/app"
)

// The exit codes. A signal's are 130 and 143.
const (
	exitOK          = 0
	exitFindings    = 1 // something differs, or was found, or went wrong
	exitUsage       = 2 // the command line or the configuration is wrong
	exitUnreachable = 4 // a peer cannot be reached or read, or did not answer in time
	exitHeld        = 5 // a guard holds deletions back
)

// exit is an exit code with nothing to print: what is to be said was said.
type exit struct{ code int }

func (e exit) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func usage(format string, args ...any) error {
	return &app.Error{Cause: app.CauseUsage, Err: fmt.Errorf(format, args...)}
}

// codeOf returns the exit code that an error of a command stands for.
func codeOf(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if s, ok := errors.AsType[signalled](context.Cause(ctx)); ok {
		return s.code()
	}
	if e, ok := errors.AsType[exit](err); ok {
		return e.code
	}
	if e, ok := errors.AsType[*app.Error](err); ok {
		switch e.Cause {
		case app.CauseUsage:
			return exitUsage
		case app.CauseUnreachable:
			return exitUnreachable
		case app.CauseFindings:
		}
		return exitFindings
	}
	if _, ok := errors.AsType[config.Errors](err); ok {
		return exitUsage
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return exitUnreachable
	}
	return exitFindings
}

// silent reports whether an error has nothing to print.
func silent(err error) bool {
	_, ok := errors.AsType[exit](err)
	return ok
}
