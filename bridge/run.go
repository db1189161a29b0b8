package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrStopped says that a loop does not run any more.
var ErrStopped = errors.New("the loop has stopped")

// Loop keeps one target in step with all bridges that lead to it. Its methods
// may be called at the same time.
type Loop struct {
	target  registry.Target
	bridges []Bridge
	opts    Options
	asks    chan func(*driver)
	board   board
	started atomic.Bool
	done    chan struct{} // closed when Run returned
}

// New returns a loop for a target and the bridges that lead to it, in the
// order in which they win conflicts. It does nothing until Run.
func New(target registry.Target, bridges []Bridge, opts Options) (*Loop, error) {
	if target == nil || len(bridges) == 0 || opts.Owner == "" {
		return nil, errors.New("a loop needs a target, a bridge and an owner")
	}
	l := &Loop{
		target: target, opts: opts.withDefaults(),
		asks: make(chan func(*driver)), done: make(chan struct{}),
	}
	l.board.head = Status{Target: opts.Target, Owner: opts.Owner}
	names := make(map[string]bool, len(bridges))
	for _, b := range bridges {
		b = b.withDefaults()
		if err := b.validate(); err != nil {
			return nil, fmt.Errorf("bridge %q: %w", b.Name, err)
		}
		if names[b.Name] {
			return nil, fmt.Errorf("bridge %q: there are two of that name", b.Name)
		}
		names[b.Name] = true
		l.bridges = append(l.bridges, b)
	}
	return l, nil
}

// Run keeps the target in step until ctx ends. It returns after the calls
// under way have ended, and can be called once.
func (l *Loop) Run(ctx context.Context) error {
	if l.started.Swap(true) {
		return errors.New("the loop was run before")
	}
	defer close(l.done)
	newDriver(l, false).run(ctx, l.asks, nil)
	return nil
}

// Summary returns what the loop did a moment ago, without services, holds,
// conflicts and unknown scopes: Counts and Reasons tell how many there are. It
// never waits for the loop, and the loop never for it.
func (l *Loop) Summary() Status {
	l.board.mu.Lock()
	defer l.board.mu.Unlock()
	s := l.board.head.clone()
	if !s.DueSince.IsZero() {
		s.OldestDue = time.Since(s.DueSince)
	}
	return s
}

// Alive returns once the loop's own goroutine answered; it fails where ctx ends
// or the loop has stopped.
func (l *Loop) Alive(ctx context.Context) error { return l.ask(ctx, func(*engine, time.Time) {}) }

// Status returns what the loop is doing now; it fails where ctx ends or the
// loop has stopped. The loop goes on with its work meanwhile: of many services
// each is told as it is when its turn comes.
func (l *Loop) Status(ctx context.Context) (Status, error) {
	var s Status
	err := l.ask(ctx, func(e *engine, now time.Time) { s = e.view.overview(now) })
	if err != nil {
		return s, err
	}
	return l.withServices(ctx, s)
}

// atATime is how many services the loop tells of in one turn.
const atATime = 256

func (l *Loop) withServices(ctx context.Context, s Status) (Status, error) {
	var all []plan.Origin
	err := l.ask(ctx, func(e *engine, _ time.Time) { all = e.view.origins(func(plan.Origin) bool { return true }) })
	if err != nil {
		return s, err
	}
	slices.SortFunc(all, plan.Origin.Compare)
	s.Services, err = l.describe(ctx, all)
	return s, err
}

// describe returns what became of services, as far as they are still there.
func (l *Loop) describe(ctx context.Context, origins []plan.Origin) ([]ServiceStatus, error) {
	list := make([]ServiceStatus, 0, len(origins))
	for part := range slices.Chunk(origins, atATime) {
		err := l.ask(ctx, func(e *engine, _ time.Time) {
			e.view.recount()
			for _, origin := range part {
				if e.ways[origin.Bridge].services[origin.Service] != nil {
					list = append(list, e.view.serviceStatus(origin))
				}
			}
		})
		if err != nil {
			return list, err
		}
	}
	return list, nil
}

// Services returns up to limit services after one of a bridge, in the order of
// the bridges' and their own names.
func (l *Loop) Services(ctx context.Context, bridge string, after registry.Name, limit int) ([]ServiceStatus, error) {
	var rest []plan.Origin
	err := l.ask(ctx, func(e *engine, _ time.Time) {
		rest = e.view.origins(func(o plan.Origin) bool {
			name := l.bridges[o.Bridge].Name
			return name > bridge || name == bridge && o.Service > after
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rest, func(a, b plan.Origin) int {
		return cmp.Or(cmp.Compare(l.bridges[a.Bridge].Name, l.bridges[b.Bridge].Name), cmp.Compare(a.Service, b.Service))
	})
	return l.describe(ctx, rest[:min(limit, len(rest))])
}

// Find returns the status of the services of these names and of all that claim
// or left something in the same groups, or in those that named is true of, with
// the holds and conflicts there.
func (l *Loop) Find(ctx context.Context, names map[registry.Name]bool, named func(registry.Group) bool) (Status, error) {
	var s Status
	err := l.ask(ctx, func(e *engine, now time.Time) { s = e.view.statusOf(names, named, now) })
	return s, err
}

// Holds returns what is held back.
func (l *Loop) Holds(ctx context.Context) ([]Hold, error) {
	var list []Hold
	err := l.ask(ctx, func(e *engine, _ time.Time) { list = e.guards.holdList() })
	return list, err
}

// Conflicts returns the claims that cannot be honoured.
func (l *Loop) Conflicts(ctx context.Context) ([]Conflict, error) {
	var list []Conflict
	err := l.ask(ctx, func(e *engine, _ time.Time) { list = e.view.conflictList() })
	return list, err
}

// Resync makes the target be listed and every group be read and compared
// again.
func (l *Loop) Resync(ctx context.Context) error {
	return l.ask(ctx, func(e *engine, now time.Time) { e.resync(now) })
}

// Settled waits until every bridge is synced and fresh, and nothing is left
// to do but what only an event can move: a hold, a refusal, a conflict. It
// returns the status of that moment. Where ctx ends first it returns the
// status as it is then, and the error of ctx.
func (l *Loop) Settled(ctx context.Context) (Status, error) {
	settled := make(chan Status, 1)
	if err := l.askDriver(ctx, func(d *driver) { d.waiters[settled] = struct{}{} }); err != nil {
		return Status{}, err
	}
	select {
	case s := <-settled:
		return l.withServices(ctx, s)
	case <-l.done:
		return Status{}, ErrStopped
	case <-ctx.Done():
		ended := context.WithoutCancel(ctx)
		gone := l.askDriver(ended, func(d *driver) { delete(d.waiters, settled) })
		s, err := l.Status(ended)
		return s, errors.Join(ctx.Err(), gone, err)
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
	asked := l.ask(ctx, func(e *engine, now time.Time) { kept, err = e.guards.decide(id, d, now) })
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

// Planned is what one group needs.
type Planned struct {
	Change registry.Change // what would be written; deletions that only have to wait are in it
	Held   []HeldBack      // what would be deleted, were it permitted
}

// HeldBack is an entry that is surplus and stays, and why.
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
	d.run(ctx, nil, func() bool { return e.quiet() || e.view.unlisted() != nil })
	now := time.Now()
	err := e.view.unlisted()
	if err == nil && !e.quiet() {
		err = ctx.Err()
	}
	return e.view.plan(now), e.view.status(now), err
}

// Tune changes how a loop goes about its work without stopping it: the guards
// of bridges, by name, and of the options Workers, Rate, Timeout, Quiet,
// MaxQuiet, Refresh and Retry. Calls under way go on. What is held is judged by
// the new guards from then on, and goes where they hold nothing.
func (l *Loop) Tune(ctx context.Context, guards map[string]Guard, opts Options) error {
	for name, g := range guards {
		if err := validateGuard(g); err != nil {
			return fmt.Errorf("bridge %q: %w", name, err)
		}
	}
	return l.ask(ctx, func(e *engine, now time.Time) { e.tune(guards, opts, now) })
}
