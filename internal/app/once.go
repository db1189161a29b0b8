package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// RunOnce brings everything in step, and returns how each target stands then.
func (p *Program) RunOnce(ctx context.Context, timeout time.Duration) ([]bridge.Status, error) {
	h, err := p.runtime(buildOptions{}) //nolint:contextcheck // connections outlive what makes them
	if err != nil {
		return nil, err
	}
	defer h.close()
	if h.cfg.Replicas.Shared() {
		return nil, usage("run --once beside replicas: it takes no part in their leases, and they keep the registries in step; use run, or leave replicas.lease out where none runs")
	}
	for _, o := range h.sinks {
		if o.fleeting != "" {
			return nil, usage("run --once into %s: what it wrote would go with it, since %s; use run", o.name, o.fleeting)
		}
	}
	return h.settle(ctx, timeout)
}

// settle runs a runtime until nothing is left to do but what only an event can
// move, and returns how the loops stand then. An error of exit code 4 says
// what was missing at the timeout.
func (h *runtime) settle(ctx context.Context, timeout time.Duration) ([]bridge.Status, error) {
	statuses := make([]bridge.Status, len(h.sinks))
	err := h.during(ctx, timeout, h.sinks, func(ctx context.Context) error {
		return h.each(func(i int) error {
			o := h.sinks[i]
			if o.entry != nil {
				if err := o.entry.wait(ctx); err != nil {
					return err
				}
			}
			var err error
			statuses[i], err = o.loop.Settled(ctx)
			return err //nolint:wrapcheck // judge says what it means
		})
	})
	return statuses, h.judge(ctx, err, statuses, timeout)
}

// plans returns what each loop would write.
func (h *runtime) plans(ctx context.Context, timeout time.Duration) ([][]bridge.Planned, []bridge.Status, error) {
	plans, statuses := make([][]bridge.Planned, len(h.sinks)), make([]bridge.Status, len(h.sinks))
	err := h.during(ctx, timeout, nil, func(ctx context.Context) error {
		return h.each(func(i int) error {
			var err error
			if plans[i], statuses[i], err = h.sinks[i].loop.Plan(ctx); err != nil {
				return fmt.Errorf("target %s: %w", h.sinks[i].name, err)
			}
			return nil
		})
	})
	return plans, statuses, h.judge(ctx, err, statuses, timeout)
}

// each calls f for all sinks at the same time.
func (h *runtime) each(f func(i int) error) error {
	errs := make([]error, len(h.sinks))
	var running sync.WaitGroup
	for i := range h.sinks {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// judge says what an error of a pass means.
func (h *runtime) judge(ctx context.Context, err error, statuses []bridge.Status, timeout time.Duration) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx) //nolint:wrapcheck // the signal itself
	case errors.As(err, new(*Error)):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return unreachable("not complete after %s: %s", timeout, h.missing(statuses))
	}
	return &Error{CauseFindings, err}
}

// missing says on one line what a runtime that did not settle waits for.
func (h *runtime) missing(all []bridge.Status) string {
	var parts []string
	for _, in := range h.sources {
		if fault := in.fault(); fault != "" {
			parts = append(parts, "source "+in.name+": "+fault)
		}
	}
	for _, i := range h.registryIDs {
		if err := i.fault(); err != nil {
			parts = append(parts, fmt.Sprintf("id of %s: %v", i.name, err))
		}
	}
	for i, st := range all {
		name := h.sinks[i].name
		switch {
		case !st.Listed:
			parts = append(parts, fmt.Sprintf("target %s: %s", name, cmp.Or(h.sinks[i].state().LastError, st.LastError, "not listed yet")))
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
	for _, sv := range st.Services {
		if sv.Reason == bridge.ReasonWaiting {
			return true
		}
	}
	return false
}
