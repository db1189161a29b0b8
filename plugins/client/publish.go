package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// targetPublisher keeps what a process provides in a registry that it writes to
// itself. It looks at the groups of its own instances alone.
type targetPublisher struct {
	target registry.Target
	encode func(*registry.Service) ([]registry.Entry, error)
	serve  func(context.Context) error // keeps the connection; nil: nothing has to
	owner  string                      // as registry.Held.Owner tells it
	log    *slog.Logger

	wake chan struct{}

	mu     sync.Mutex
	wanted []Instance
	faults map[registry.Group]error
	refuse error // of instances that cannot be written in the format
}

func newTargetPublisher(t registry.Target, encode func(*registry.Service) ([]registry.Entry, error), owner string, log *slog.Logger) *targetPublisher {
	return &targetPublisher{
		target: t, encode: encode, owner: owner, log: log, wake: make(chan struct{}, 1),
		faults: make(map[registry.Group]error),
	}
}

// served has the connection kept while it publishes.
func (p *targetPublisher) served(serve func(context.Context) error) *targetPublisher {
	p.serve = serve
	return p
}

// Set implements Publisher.
func (p *targetPublisher) Set(instances []Instance) {
	p.mu.Lock()
	p.wanted = slices.Clone(instances)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Fault implements Publisher.
func (p *targetPublisher) Fault() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.refuse
	for g, fault := range p.faults {
		err = first(err, fmt.Errorf("publish to %s: %w", g, fault))
	}
	return err
}

// The pace of writing: failed groups are tried again after retryMin, doubled up
// to retryMax, and everything is read and repaired each refresh.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 10 * time.Second
	refresh  = time.Minute
	callTime = 15 * time.Second
)

// Run implements Publisher.
func (p *targetPublisher) Run(ctx context.Context, grace time.Duration) error {
	base := context.WithoutCancel(ctx)
	serving, stop := context.WithCancel(base)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	ended := make(chan error, 1)
	if p.serve != nil {
		running.Go(func() { ended <- p.serve(serving) })
	}
	w := &publication{targetPublisher: p, planner: plan.New(p.owner), origins: map[registry.Name]bool{}, dirty: map[registry.Group]time.Time{}}
	err := w.follow(ctx, ended)
	p.mu.Lock()
	p.wanted = nil
	p.mu.Unlock()
	last, cancel := context.WithTimeout(base, grace)
	defer cancel()
	w.withdraw(last)
	return err
}

// publication is what is published, and when each group is looked at next. Only
// Run's goroutine touches it.
type publication struct {
	*targetPublisher
	planner *plan.Planner
	origins map[registry.Name]bool // what was claimed last
	dirty   map[registry.Group]time.Time
	fails   map[registry.Group]int
}

func (w *publication) follow(ctx context.Context, ended <-chan error) error {
	w.fails = make(map[registry.Group]int)
	var lost <-chan struct{}
	if s, ok := w.target.(registry.Sessioned); ok {
		lost = s.Lost()
	}
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		if at, ok := w.next(); ok {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-w.wake:
			w.claim()
		case <-lost:
			for _, g := range w.planner.Lost() {
				w.dirty[g] = time.Now()
			}
		case <-timer.C:
			w.due(ctx)
		}
	}
}

// next returns when a group has to be looked at.
func (w *publication) next() (time.Time, bool) {
	var first time.Time
	for _, at := range w.dirty {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first, !first.IsZero()
}

// claim takes in what is to be provided.
func (w *publication) claim() {
	w.mu.Lock()
	wanted := w.wanted
	w.mu.Unlock()
	var refused error
	now := make(map[registry.Name]bool, len(wanted))
	touched := func(groups []registry.Group) {
		for _, g := range groups {
			w.dirty[g] = time.Now()
		}
	}
	for _, i := range wanted {
		s := i.service()
		entries, err := w.encode(s)
		if err != nil {
			refused = errors.Join(refused, fmt.Errorf("instance %s: %w", i.id(), err))
			continue
		}
		now[s.Name] = true
		touched(w.planner.Claim(plan.Origin{Service: s.Name}, plan.Told, entries))
	}
	for name := range w.origins {
		if !now[name] {
			touched(w.planner.Claim(plan.Origin{Service: name}, plan.Told, nil))
		}
	}
	w.origins = now
	w.mu.Lock()
	w.refuse = refused
	w.mu.Unlock()
}

// due brings the groups in order whose time has come.
func (w *publication) due(ctx context.Context) {
	for g, at := range w.dirty {
		if ctx.Err() != nil {
			return
		}
		if time.Now().Before(at) {
			continue
		}
		again, err := w.reconcile(ctx, g)
		w.noted(g, again, err)
	}
}

// reconcile reads a group and writes what differs. It returns after which time
// it has to be looked at again.
func (w *publication) reconcile(ctx context.Context, g registry.Group) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	held, err := w.target.Read(ctx, g)
	if err != nil {
		return 0, err //nolint:wrapcheck // Fault names the group
	}
	w.planner.Observe(g, held)
	change, conflicts := w.planner.Change(g)
	if !change.Empty() {
		if err := w.target.Write(ctx, change); err != nil {
			return 0, err //nolint:wrapcheck // as above
		}
		w.planner.Applied(change)
		if v, ok := w.target.(registry.Verified); ok && v.VerifyAfter() > 0 {
			return v.VerifyAfter(), conflictsOf(conflicts)
		}
	}
	return refresh, conflictsOf(conflicts)
}

// errTaken says that another has registered the same address.
var errTaken = errors.New("another already provides the same address; it is left as it is")

func conflictsOf(all []plan.Conflict) error {
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", all[0].Key, errTaken)
}

// noted notes what came of a group.
func (w *publication) noted(g registry.Group, again time.Duration, err error) {
	before := w.fault(g, err)
	switch {
	case err != nil && again == 0:
		again = min(retryMin<<min(w.fails[g], 10), retryMax)
		w.fails[g]++
	case w.planner.Drop(g):
		delete(w.dirty, g)
		delete(w.fails, g)
		return
	default:
		w.fails[g] = 0
	}
	w.dirty[g] = time.Now().Add(again)
	switch {
	case err != nil && before == nil:
		w.log.Warn("not published, trying on", "group", g.String(), "err", err)
	case err == nil && before != nil:
		w.log.Info("published again", "group", g.String())
	}
}

// fault records why a group is not as it should be, and returns why it was not
// before.
func (w *publication) fault(g registry.Group, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.faults[g]
	if err == nil {
		delete(w.faults, g)
	} else {
		w.faults[g] = err
	}
	return before
}

// withdraw takes everything back, as far as that is done before ctx ends.
func (w *publication) withdraw(ctx context.Context) {
	w.claim()
	for g := range w.dirty {
		for ctx.Err() == nil {
			if _, err := w.reconcile(ctx, g); err == nil || errors.Is(err, registry.ErrRefused) || errors.Is(err, errTaken) {
				break
			}
			timer := time.NewTimer(retryMin)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
	if err := ctx.Err(); err != nil {
		w.log.Warn("not everything was taken back before the time was up; it goes with the session", "err", err)
	}
}
