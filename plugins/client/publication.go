package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// publication is what is published, and when each group is looked at next. Only
// Run's goroutine touches it, but for what planning guards.
type publication struct {
	*targetPublisher
	origins  map[registry.Name]bool     // what was claimed last
	keys     map[registry.Group][]Query // what is looked up to see who else is in a group
	rivals   map[registry.Group]*Watch  // of groups in which another is in the way
	dirty    map[registry.Group]time.Time
	underWay map[registry.Group]bool // a call about it is; it is not dirty unless it changed since
	outcomes chan outcome            // with room for all that are under way
	fails    map[registry.Group]int

	planning sync.Mutex
	planner  *plan.Planner
	provided map[registry.Group]map[string]bool // by key

	watching sync.WaitGroup
}

func newPublication(p *targetPublisher) *publication {
	return &publication{
		targetPublisher: p, planner: plan.New(p.owner), origins: make(map[registry.Name]bool), dirty: make(map[registry.Group]time.Time),
		rivals: make(map[registry.Group]*Watch), underWay: make(map[registry.Group]bool), outcomes: make(chan outcome, atATime),
		fails: make(map[registry.Group]int),
	}
}

func (w *publication) follow(ctx context.Context, ended <-chan error) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	var lost <-chan struct{}
	if s, ok := w.target.(registry.Sessioned); ok {
		lost = s.Lost()
	}
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	w.claim()
	for {
		w.due(ctx, &calls)
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
		case <-w.changed:
			w.touch(slices.Collect(maps.Keys(w.rivals)))
		case <-lost:
			w.planning.Lock()
			groups := w.planner.Lost()
			w.planning.Unlock()
			w.touch(groups)
		case o := <-w.outcomes:
			delete(w.underWay, o.group)
			w.noted(o)
			w.follows(o) //nolint:contextcheck // a rival is watched until it goes
		case <-timer.C:
		}
	}
}

// touch has groups looked at at once.
func (w *publication) touch(groups []registry.Group) {
	for _, g := range groups {
		w.dirty[g] = time.Now()
	}
}

// next returns when a group has to be looked at that may be by then.
func (w *publication) next() (first time.Time, ok bool) {
	for g, at := range w.dirty {
		if !w.underWay[g] && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	return first, ok && len(w.underWay) < atATime
}

// claim takes in what is to be provided.
func (w *publication) claim() {
	w.mu.Lock()
	wanted := w.wanted
	w.mu.Unlock()
	w.planning.Lock()
	defer w.planning.Unlock()
	var refused error
	now := make(map[registry.Name]bool, len(wanted))
	w.keys, w.provided = make(map[registry.Group][]Query), make(map[registry.Group]map[string]bool)
	for _, i := range wanted {
		s := i.service()
		entries, err := w.codec.Encode(s)
		if err == nil && len(entries) == 0 {
			err = w.codec.LeftOut(s)
		}
		if err != nil {
			refused = errors.Join(refused, fmt.Errorf("instance %s: %w: %w", i.id(), ErrInvalid, err))
			continue
		}
		for _, e := range entries {
			now[s.Name] = true
			if w.provided[e.Group] == nil {
				w.provided[e.Group] = make(map[string]bool)
			}
			w.provided[e.Group][e.Key] = true
			w.keys[e.Group] = append(w.keys[e.Group], w.shows(i)...)
		}
		w.touch(w.planner.Claim(plan.Origin{Service: s.Name}, plan.Told, entries))
	}
	for name := range w.origins {
		if !now[name] {
			w.touch(w.planner.Claim(plan.Origin{Service: name}, plan.Told, nil))
		}
	}
	w.origins = now
	w.refused(refused)
}

// due begins to bring the groups in order whose time has come. One that hangs delays
// no other, as long as fewer than atATime do.
func (w *publication) due(ctx context.Context, calls *sync.WaitGroup) {
	now := time.Now()
	for g, at := range w.dirty {
		if len(w.underWay) >= atATime || w.underWay[g] || now.Before(at) {
			continue
		}
		delete(w.dirty, g)
		w.underWay[g] = true
		calls.Go(func() { w.outcomes <- w.reconcile(ctx, g) })
	}
}

// outcome is what came of a group.
type outcome struct {
	group registry.Group
	again time.Duration // when it has to be looked at next; 0: at the pace of retries
	err   error
}

// reconcile reads a group and writes what differs.
func (w *publication) reconcile(ctx context.Context, g registry.Group) outcome {
	var held []registry.Held
	if err := call(ctx, func(ctx context.Context) (err error) {
		held, err = w.target.Read(ctx, g)
		return err //nolint:wrapcheck // Fault names the group
	}); err != nil {
		return outcome{group: g, err: err}
	}
	w.planning.Lock()
	change, conflict := w.plan(g, held)
	w.planning.Unlock()
	o := outcome{group: g, again: refresh - rand.N(refresh/5), err: conflict} //nolint:gosec // spreads load, keeps no secret
	if change.Empty() {
		return o
	}
	if err := call(ctx, func(ctx context.Context) error { return w.target.Write(ctx, change) }); err != nil {
		return outcome{group: g, err: err}
	}
	w.planning.Lock()
	w.planner.Applied(change)
	w.planning.Unlock()
	if v, ok := w.target.(registry.Verified); ok && v.VerifyAfter() > 0 {
		o.again = v.VerifyAfter()
	}
	return o
}

// call does something within callTime.
func call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return do(ctx)
}

// plan returns what has to be written to a group, and why not all that is
// provided can be.
//
// What another session holds in our name is left alone, unless it is at an
// address that we provide: it goes with that session. Either the process before
// ended without taking it back, or another one lives under the same identity.
func (w *publication) plan(g registry.Group, held []registry.Held) (registry.Change, error) {
	provided := w.provided[g]
	var duplicate error
	held = slices.DeleteFunc(slices.Clone(held), func(h registry.Held) bool {
		other := h.Owner == w.owner && !h.Live && !provided[h.Key]
		if other && len(provided) > 0 {
			duplicate = fmt.Errorf("%s: %w: it has the same identity; give each process its own (identity)", h.Key, ErrConflict)
		}
		return other
	})
	w.planner.Observe(g, held)
	change, conflicts := w.planner.Change(g)
	if len(conflicts) > 0 {
		return change, fmt.Errorf("%s: %w: it is left as it is", conflicts[0].Key, ErrConflict)
	}
	return change, duplicate
}

// follows watches a group for as long as another is in the way in it, so that
// what is provided takes its place as soon as that goes.
func (w *publication) follows(o outcome) {
	g, rival := o.group, w.rivals[o.group]
	switch {
	case !errors.Is(o.err, ErrConflict):
		if rival != nil {
			rival.Stop()
			delete(w.rivals, g)
		}
	case rival == nil && w.watch != nil && len(w.keys[g]) > 0:
		rival = w.watch(Any(w.keys[g]...))
		w.rivals[g] = rival
		w.watching.Go(func() {
			for {
				if _, err := rival.Next(context.Background()); errors.Is(err, ErrClosed) {
					return
				}
				select {
				case w.changed <- struct{}{}:
				default:
				}
			}
		})
	}
}

// noted notes what came of a group. One that changed meanwhile is looked at at once.
func (w *publication) noted(o outcome) {
	g, again, err := o.group, o.again, o.err
	before := w.fault(g, err)
	switch {
	case err != nil && again == 0:
		w.fails[g]++
		again = retryIn(w.fails[g])
	case w.drops(g):
		delete(w.dirty, g)
		delete(w.fails, g)
		return
	default:
		w.fails[g] = 0
	}
	if _, changed := w.dirty[g]; !changed {
		w.dirty[g] = time.Now().Add(again)
	}
	switch {
	case err != nil && before == nil:
		w.log.Warn("not published, trying on", "group", g.String(), "err", err)
	case err == nil && before != nil:
		w.log.Info("published again", "group", g.String())
	}
}

// drops forgets a group in which nothing is provided, if nothing of ours is left.
func (w *publication) drops(g registry.Group) bool {
	w.planning.Lock()
	defer w.planning.Unlock()
	return w.planner.Drop(g)
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
	for g := range w.underWay { // what came of it is not known
		w.dirty[g] = time.Now()
	}
	for len(w.dirty) > 0 && ctx.Err() == nil {
		w.withdrawOnce(ctx)
		if len(w.dirty) > 0 {
			pause(ctx, retryMin)
		}
	}
	if err := ctx.Err(); err != nil {
		w.log.Warn("not everything was taken back before the time was up; it goes with the session", "err", err)
	}
}

// withdrawOnce leaves the groups dirty from which something has to be taken back yet.
func (w *publication) withdrawOnce(ctx context.Context) {
	var calls sync.WaitGroup
	slots, outcomes := make(chan struct{}, atATime), make(chan outcome, len(w.dirty))
	for g := range w.dirty {
		slots <- struct{}{}
		calls.Go(func() {
			outcomes <- w.reconcile(ctx, g)
			<-slots
		})
	}
	calls.Wait()
	close(outcomes)
	for o := range outcomes {
		if o.err == nil || errors.Is(o.err, registry.ErrRefused) || errors.Is(o.err, ErrConflict) {
			delete(w.dirty, o.group)
		}
	}
}
