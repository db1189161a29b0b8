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

// The exit codes. A signal's are 130 and 143.
const (
	exitOK          = 0
	exitFindings    = 1 // something differs, or was found, or went wrong
	exitUsage       = 2 // the command line or the configuration is wrong
	exitUnreachable = 4 // a registry is unreachable, unreadable, or did not answer in time
	exitHeld        = 5 // a guard holds deletions back
)

// exit is an exit code with nothing more to print.
type exit struct{ code int }

func (e exit) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func exitWith(code int) error {
	if code == exitOK {
		return nil
	}
	return exit{code}
}

func codeIf(holds bool, code int) int { //nolint:revive // a condition of the code
	if holds {
		return code
	}
	return exitOK
}

func usage(format string, args ...any) error {
	return &cause.Error{Kind: cause.Usage, Err: fmt.Errorf(format, args...)}
}

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

func silent(err error) bool {
	_, ok := errors.AsType[exit](err)
	return ok
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ signal syscall.Signal }

func (s signalled) Error() string { return "stopped by signal " + s.signal.String() }

// code is what shells show for a process that a signal ended.
func (s signalled) code() int { return 128 + int(s.signal) }

// hangUp leaves SIGHUP to run, which reads its configuration again, for as long
// as the process runs. Any other command ends by it.
func (c *cli) hangUp(command string) error {
	if c.hup == nil || command == "run" {
		return nil
	}
	signal.Reset(syscall.SIGHUP)
	select {
	case <-c.hup: // before that
		return exit{signalled{syscall.SIGHUP}.code()}
	default:
		return nil
	}
}

// interruptible returns a context that the first SIGINT or SIGTERM ends; at
// the second the process exits at once. Stop gives the signals back.
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
