package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrStopped says that a loop no longer runs.
var ErrStopped = errors.New("the loop has stopped")

// Loop keeps one target in sync with all bridges that lead to it. It is safe for
// concurrent use.
type Loop struct {
	// Immutable.
	target  registry.Target
	bridges []Bridge
	opts    Options

	driver      *driver      // only Run touches it
	statusCache *statusCache // of the driver's engine

	asks    chan question
	started atomic.Bool
	done    chan struct{} // closed when Run returns
}

// New returns a loop for a target and the bridges that lead to it. Of conflicting claims,
// that of the first bridge wins. The loop does nothing until Run.
func New(target registry.Target, bridges []Bridge, opts Options) (*Loop, error) {
	if target == nil || len(bridges) == 0 || opts.Owner == "" {
		return nil, errors.New("a target, a bridge and an owner are required")
	}
	l := &Loop{
		target: target, opts: opts.withDefaults(),
		asks: make(chan question), done: make(chan struct{}),
	}
	names := make(map[string]bool, len(bridges))
	for _, b := range bridges {
		b = b.withDefaults()
		if err := b.validate(); err != nil {
			return nil, fmt.Errorf("bridge %q: %w", b.Name, err)
		}
		if names[b.Name] {
			return nil, fmt.Errorf("bridge %q: duplicate name", b.Name)
		}
		names[b.Name] = true
		l.bridges = append(l.bridges, b)
	}
	l.driver = newDriver(l, false)
	l.statusCache = l.driver.engine.statusCache
	return l, nil
}

// Run keeps the target in sync until ctx ends, and returns after the calls in flight have
// ended. It fails if it was called before.
func (l *Loop) Run(ctx context.Context) error {
	if l.started.Swap(true) {
		return errors.New("the loop was run before")
	}
	defer close(l.done)
	l.driver.run(ctx, l.asks, nil)
	return nil
}

// Alive returns once the loop's goroutine has answered. Status then shows everything that
// the loop knew at that time. It fails if ctx ends before, or if the loop has stopped.
func (l *Loop) Alive(ctx context.Context) error { return l.ask(ctx, func(*driver, time.Time) {}) }

// Summary returns Status without its services, holds, conflicts, unknown scopes and kept
// entries; Counts and Reasons say how many there are. Its cost does not depend on the number
// of services.
func (l *Loop) Summary() Status {
	l.statusCache.mu.Lock()
	defer l.statusCache.mu.Unlock()
	return l.statusCache.summary()
}

// Status returns the status of the loop a moment ago, or at its end. It includes everything
// that happened before another method returned. It never waits for the loop.
func (l *Loop) Status() Status { return l.statusCache.status() }

// Resync has the target listed and every group read and compared again. It does not wait for
// that.
func (l *Loop) Resync(ctx context.Context) error {
	return l.ask(ctx, func(d *driver, now time.Time) { d.engine.resync(now) })
}

// AwaitIdle waits until every bridge is synced and not stale, and all remaining work waits
// for an event, such as a hold, a refusal or a conflict. It returns the status of that
// moment. If ctx ends before, it returns the current status and the error of ctx.
func (l *Loop) AwaitIdle(ctx context.Context) (Status, error) {
	idle := make(chan Status, 1)
	if err := l.ask(ctx, func(d *driver, _ time.Time) { d.waiters[idle] = struct{}{} }); err != nil {
		return Status{}, err
	}
	select {
	case s := <-idle:
		return s, nil
	case <-l.done:
		return Status{}, ErrStopped
	case <-ctx.Done():
		err := l.ask(context.WithoutCancel(ctx), func(d *driver, _ time.Time) { delete(d.waiters, idle) })
		return l.Status(), errors.Join(ctx.Err(), err)
	}
}

// Approve allows the deletions of a hold, if the hold still has exactly the entries of that
// id; otherwise it returns ErrNoHold. Who is logged. An error that wraps ErrUnrecorded says
// that only this process knows the decision.
func (l *Loop) Approve(ctx context.Context, id, who string) error {
	return l.decide(ctx, id, decision{Approved: true, Who: who})
}

// Deny keeps the entries of a hold, whatever the source reports, each until it is claimed
// again or approved. Its errors are those of Approve.
func (l *Loop) Deny(ctx context.Context, id, who string) error {
	return l.decide(ctx, id, decision{Who: who})
}

// decide applies a decision, and waits until it is recorded.
func (l *Loop) decide(ctx context.Context, id string, d decision) error {
	var recorded <-chan error
	var err error
	asked := l.ask(ctx, func(dr *driver, now time.Time) { recorded, err = dr.engine.guards.decide(id, d, now) })
	if err := errors.Join(asked, err); err != nil {
		return err
	}
	select {
	case err = <-recorded:
	case <-l.done:
		err = ErrStopped
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	return nil
}

// Planned is the plan for one group.
type Planned struct {
	Change   registry.Change // what would be written, including deletions that only wait for time
	HeldBack []HeldBack      // the deletions that are not allowed
}

// HeldBack is an orphan that is kept, and why.
type HeldBack struct {
	Entry  registry.Entry
	Reason Reason
	Detail string
}

// Plan reads the whole target and returns what would have to be written to it, in the order
// of the groups. It writes nothing. It waits until every bridge is synced and everything was
// read; if ctx ends before, it returns what is known and the error of ctx. If the target
// refuses to be listed, it fails at once with an error that wraps registry.ErrRefused. Run
// need not be running.
func (l *Loop) Plan(ctx context.Context) ([]Planned, Status, error) {
	d := newDriver(l, true)
	e := d.engine
	d.run(ctx, nil, func() bool { return e.isIdle() || e.statusCache.listError() != nil })
	now := time.Now()
	err := e.statusCache.listError()
	if err == nil && !e.isIdle() {
		err = ctx.Err()
	}
	all := e.statusCache.plan(now)
	e.statusCache.update(now)
	return all, e.statusCache.status(), err
}

// Tune changes settings of a running loop: the guards of bridges, by name, and of the
// options Workers, Rate, Timeout, Debounce, MaxDebounce, Refresh and Retry. Calls in flight
// continue. The new guards judge what is held, and may release it.
func (l *Loop) Tune(ctx context.Context, guards map[string]Guard, opts Options) error {
	for name, g := range guards {
		if err := validateGuard(g); err != nil {
			return fmt.Errorf("bridge %q: %w", name, err)
		}
	}
	return l.ask(ctx, func(d *driver, now time.Time) { d.engine.tune(guards, opts, now) })
}
