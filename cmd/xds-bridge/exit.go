package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/cause"
)

// The exit codes. Signals exit with 130 and 143.
const (
	exitOK          = 0
	exitFindings    = 1 // there is a difference or a problem
	exitUsage       = 2 // the command line or the configuration is wrong
	exitUnreachable = 4 // a registry is unreachable, unreadable, or did not answer in time
	exitHeld        = 5 // a guard holds deletions
)

// exit is an error that only sets the exit code: everything is already printed.
type exit struct{ code int }

func (e exit) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func exitWith(code int) error {
	if code == exitOK {
		return nil
	}
	return exit{code}
}

// codeIf returns the code if a condition is true, and exitOK otherwise.
func codeIf(condition bool, code int) int { //nolint:revive // the condition is the argument
	if condition {
		return code
	}
	return exitOK
}

// usage returns an error of the command line or the configuration.
func usage(format string, args ...any) error {
	return &cause.Error{Kind: cause.Usage, Err: fmt.Errorf(format, args...)}
}

// codeOf returns the exit code for the error of a command.
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
	if e, ok := errors.AsType[*cause.Error](err); ok {
		switch e.Kind {
		case cause.Usage:
			return exitUsage
		case cause.Unreachable:
			return exitUnreachable
		case cause.Findings:
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

// silent reports whether everything about an error is already printed.
func silent(err error) bool {
	_, ok := errors.AsType[exit](err)
	return ok
}

// signalled is the cause of a context that a signal canceled.
type signalled struct{ signal syscall.Signal }

func (s signalled) Error() string { return "stopped by signal " + s.signal.String() }

// code returns the exit code that shells report for a process ended by the signal.
func (s signalled) code() int { return 128 + int(s.signal) }

// hangUp makes SIGHUP end the process, except for the command run, which reloads its
// configuration. It returns an error if SIGHUP arrived before.
func (c *cli) hangUp(command string) error {
	if c.hup == nil || command == "run" {
		return nil
	}
	signal.Reset(syscall.SIGHUP)
	select {
	case <-c.hup:
		return exit{signalled{syscall.SIGHUP}.code()}
	default:
		return nil
	}
}

// interruptible returns a context that the first SIGINT or SIGTERM cancels; at the second one
// the process exits at once. The function stop restores the default of both signals.
func interruptible(ctx context.Context, exit func(code int)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	var watching sync.WaitGroup
	watching.Go(func() {
		for s := range signals {
			cause := signalled{syscall.SIGTERM}
			if s == syscall.SIGINT {
				cause.signal = syscall.SIGINT
			}
			if ctx.Err() != nil {
				exit(cause.code())
			}
			cancel(cause)
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		watching.Wait()
		cancel(nil)
	}
}
