package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalled is the cause of a context that a signal ended.
type signalled struct{ signal syscall.Signal }

func (s signalled) Error() string { return "stopped by signal " + s.signal.String() }

// code is what shells show for a process that a signal ended.
func (s signalled) code() int { return 128 + int(s.signal) }

// hangUp leaves SIGHUP to run, which reads its configuration again, for as long
// as the process lives. Any other command ends by it.
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
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case s := <-signals:
				cause := signalled{syscall.SIGTERM}
				if s == syscall.SIGINT {
					cause.signal = syscall.SIGINT
				}
				if n > 0 {
					exit(cause.code())
				}
				cancel(cause)
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		watching.Wait()
		cancel(nil)
	}
}
