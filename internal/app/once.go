package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// complete runs a runtime until nothing is due without a new event, and returns the status
// of each loop then. An error of CauseUnreachable says what was missing at the timeout.
func (r *runtime) complete(ctx context.Context, timeout time.Duration) ([]bridge.Status, error) {
	statuses := make([]bridge.Status, len(r.sinks))
	err := r.runWhile(ctx, timeout, r.sinks, func(ctx context.Context) error {
		return atOnce(len(r.sinks), func(i int) error {
			s := r.sinks[i]
			if s.admission != nil {
				if err := s.admission.wait(ctx); err != nil {
					return err
				}
			}
			var err error
			statuses[i], err = s.loop.AwaitIdle(ctx)
			return err //nolint:wrapcheck // judge says what it means
		})
	})
	return statuses, r.judge(ctx, err, statuses, timeout)
}

// plans returns the changes that each loop would write.
func (r *runtime) plans(ctx context.Context, timeout time.Duration) ([][]bridge.Planned, []bridge.Status, error) {
	plans, statuses := make([][]bridge.Planned, len(r.sinks)), make([]bridge.Status, len(r.sinks))
	err := r.runWhile(ctx, timeout, nil, func(ctx context.Context) error {
		return atOnce(len(r.sinks), func(i int) error {
			var err error
			if plans[i], statuses[i], err = r.sinks[i].loop.Plan(ctx); err != nil {
				return fmt.Errorf("target %s: %w", r.sinks[i].name, err)
			}
			return nil
		})
	})
	err = r.judge(ctx, err, statuses, timeout)
	if e, ok := errors.AsType[*Error](err); ok && e.Cause == CauseFindings { // nothing was compared: nothing is known to differ
		err = &Error{CauseUnreachable, e.Err}
	}
	return plans, statuses, err
}

// atOnce calls f for n things at the same time.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// judge returns the error of a pass with its cause.
func (r *runtime) judge(ctx context.Context, err error, statuses []bridge.Status, timeout time.Duration) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx) //nolint:wrapcheck // the signal itself
	case errors.As(err, new(*Error)):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return unreachable("not complete after %s: %s", timeout, r.missing(statuses))
	}
	return &Error{CauseFindings, err}
}

// missing says on one line what a runtime still waits for.
func (r *runtime) missing(all []bridge.Status) string {
	var parts []string
	for _, s := range r.sources {
		if problem := s.problem(); problem != "" {
			parts = append(parts, "source "+s.name+": "+problem)
		}
	}
	for _, i := range r.registryIDs {
		if err := i.problem(); err != nil {
			parts = append(parts, fmt.Sprintf("id of %s: %v", i.name, err))
		}
	}
	for i, st := range all {
		name := r.sinks[i].name
		switch {
		case !st.Listed:
			parts = append(parts, fmt.Sprintf("target %s: %s", name, cmp.Or(r.sinks[i].state().LastError, st.LastError, "not listed yet")))
		case waiting(st):
			parts = append(parts, fmt.Sprintf("target %s: deletions wait for the guard's time; give more --timeout than guard.settle", name))
		case st.LastError != "":
			parts = append(parts, fmt.Sprintf("target %s: %s", name, st.LastError))
		}
	}
	if len(parts) == 0 {
		return "writes are still due; give more --timeout"
	}
	return strings.Join(parts, "; ")
}

// waiting reports whether a deletion of the loop waits for its time.
func waiting(st bridge.Status) bool {
	return slices.ContainsFunc(st.Services, func(s bridge.ServiceStatus) bool { return s.Reason == bridge.ReasonWaiting })
}
