package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrStopped says that a loop does not run any more.
var ErrStopped = errors.New("the loop has stopped")

// Loop keeps one target in sync with all bridges that lead to it. Its methods
// may be called at the same time.
type Loop struct {
	target      registry.Target
	bridges     []Bridge
	opts        Options
	asks        chan question
	driver      *driver
	statusCache *statusCache // of the driver's engine
	started     atomic.Bool
	done        chan struct{} // closed when Run returned
}

// New returns a loop for a target and the bridges that lead to it, in the
// order in which they win conflicts. It does nothing until Run.
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

// Run keeps the target in sync until ctx ends. It returns after the calls
// in flight have ended, and can be called once.
func (l *Loop) Run(ctx context.Context) error {
	if l.started.Swap(true) {
		return errors.New("the loop was run before")
	}
	defer close(l.done)
	l.driver.run(ctx, l.asks, nil)
	return nil
}

// Alive returns once the loop's own goroutine answered; it fails where ctx ends
// or the loop has stopped. Status shows what the loop knew by then.
func (l *Loop) Alive(ctx context.Context) error { return l.ask(ctx, func(*driver, time.Time) {}) }

// Summary returns what Status does, without services, holds, conflicts, unknown
// scopes and what is kept: Counts and Reasons say how many there are. It costs
// the same for few services and for many.
func (l *Loop) Summary() Status {
	l.statusCache.mu.Lock()
	defer l.statusCache.mu.Unlock()
	return l.statusCache.summary()
}

// Status returns what the loop did a moment ago or, of one that has stopped, last;
// what another method returned after is in it. It never waits for the loop.
func (l *Loop) Status() Status { return l.statusCache.status() }

// Resync makes the target be listed and every group be read and compared
// again.
func (l *Loop) Resync(ctx context.Context) error {
	return l.ask(ctx, func(d *driver, now time.Time) { d.engine.resync(now) })
}

// AwaitIdle waits until every bridge is synced and fresh, and nothing is left
// to do but what only an event can move: a hold, a refusal, a conflict. It
// returns the status of that moment. Where ctx ends first it returns the
// status as it is then, and the error of ctx.
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

// Approve lets the deletions of a hold go ahead, if it still is exactly the
// set of that id; otherwise it returns ErrNoHold. Who is logged. An error that
// wraps ErrUnrecorded says that it is known to this process alone.
func (l *Loop) Approve(ctx context.Context, id, who string) error {
	return l.decide(ctx, id, decision{Approved: true, Who: who})
}

// Deny keeps the entries of a hold, whatever the source says, each until it is
// claimed again or approved. Its errors are those of Approve.
func (l *Loop) Deny(ctx context.Context, id, who string) error {
	return l.decide(ctx, id, decision{Who: who})
}

func (l *Loop) decide(ctx context.Context, id string, d decision) error {
	var kept <-chan error
	var err error
	asked := l.ask(ctx, func(dr *driver, now time.Time) { kept, err = dr.engine.guards.decide(id, d, now) })
	if err := errors.Join(asked, err); err != nil {
		return err
	}
	select {
	case err = <-kept:
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

// Planned is what has to be written to one group.
type Planned struct {
	Change   registry.Change // what would be written; deletions that only have to wait are in it
	HeldBack []HeldBack      // what would be deleted, were it allowed
}

// HeldBack is an orphan that stays, and why.
type HeldBack struct {
	Entry  registry.Entry
	Reason Reason
	Detail string
}

// Plan reads the whole target and returns what would have to be written to
// it, in the order of the groups, without writing anything. It waits until
// every bridge is synced and everything was read; where ctx ends before that
// it returns what is known and the error of ctx. That the target may not be
// listed is an error at once, which wraps registry.ErrRefused. Run need not be
// running.
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

// Tune changes how a loop goes about its work without stopping it: the guards
// of bridges, by name, and of the options Workers, Rate, Timeout, Debounce,
// MaxDebounce, Refresh and Retry. Calls in flight continue. What is held is judged by
// the new guards from then on, and goes where they hold nothing.
func (l *Loop) Tune(ctx context.Context, guards map[string]Guard, opts Options) error {
	for name, g := range guards {
		if err := validateGuard(g); err != nil {
			return fmt.Errorf("bridge %q: %w", name, err)
		}
	}
	return l.ask(ctx, func(d *driver, now time.Time) { d.engine.tune(guards, opts, now) })
}
