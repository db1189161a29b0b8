package nacos

import (
	"context"
	"errors"
	"fmt"
)

// errRecheck says that a new connection was asked for.
var errRecheck = errors.New("everything is being read anew, as was asked for")

// Recheck makes everything be read anew, over a new connection, to the next
// server where there are several. It does not block.
func (s *Source) Recheck() {
	select {
	case s.rechecks <- struct{}{}:
	default:
	}
}

// satisfied forgets that a new connection was asked for, because there is going
// to be one.
func (s *Source) satisfied() {
	select {
	case <-s.rechecks:
	default:
	}
}

// awaitRecheck ends a connection when a new one is asked for.
func (r *reading) awaitRecheck(ctx context.Context, end context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
	case <-r.rechecks:
		end(errRecheck)
	}
}

// Check lists the names of every scope over a connection of its own and
// returns how that connection was, and how many services there are; the error is
// ErrNoNamespace where nobody else sees them. Run must not be running.
func (s *Source) Check(ctx context.Context) (State, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.client.Run(ctx) }()
	n := 0
	var failed error
	for _, scope := range s.opts.Scopes {
		names, err := s.client.list(ctx, scope.Namespace, scope.Group)
		if err != nil {
			failed = fmt.Errorf("list namespace %q group %q: %w", scope.Namespace, scope.Group, err)
			break
		}
		n += len(names)
	}
	if failed == nil {
		failed = s.client.missing(ctx)
	}
	state := s.client.State()
	cancel()
	return state, n, errors.Join(failed, <-done)
}
