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
// Run's goroutine touches it.
type publication struct {
	*targetPublisher
	planner  *plan.Planner
	origins  map[registry.Name]bool             // what was claimed last
	keys     map[registry.Group][]Query         // what is looked up to see who else is in a group
	provided map[registry.Group]map[string]bool // by key
	rivals   map[registry.Group]*Watch          // of groups in which another is in the way
	dirty    map[registry.Group]time.Time
	fails    map[registry.Group]int

	watching sync.WaitGroup
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
	w.claim()
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
		case <-w.changed:
			for g := range w.rivals {
				w.dirty[g] = time.Now()
			}
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
	w.keys, w.provided = make(map[registry.Group][]Query), make(map[registry.Group]map[string]bool)
	touched := func(groups []registry.Group) {
		for _, g := range groups {
			w.dirty[g] = time.Now()
		}
	}
	for _, i := range wanted {
		s := i.service()
		entries, err := w.encode(s)
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
		touched(w.planner.Claim(plan.Origin{Service: s.Name}, plan.Told, entries))
	}
	for name := range w.origins {
		if !now[name] {
			touched(w.planner.Claim(plan.Origin{Service: name}, plan.Told, nil))
		}
	}
	w.origins = now
	w.refused(refused)
}

// due brings the groups in order whose time has come.
func (w *publication) due(ctx context.Context) {
	var groups []registry.Group
	for g, at := range w.dirty {
		if !time.Now().Before(at) {
			groups = append(groups, g)
		}
	}
	done := w.reconcile(ctx, groups)
	if ctx.Err() != nil {
		return
	}
	for _, g := range groups {
		w.noted(g, done[g])
		w.follows(g, done[g]) //nolint:contextcheck // a rival is watched until it goes
	}
}

// outcome is what came of a group.
type outcome struct {
	held   []registry.Held
	change registry.Change
	again  time.Duration // when it has to be looked at next; 0: at the pace of retries
	err    error
}

// reconcile reads groups and writes what differs, several at a time: one that
// hangs delays no other.
func (w *publication) reconcile(ctx context.Context, groups []registry.Group) map[registry.Group]*outcome {
	done := make(map[registry.Group]*outcome, len(groups))
	for _, g := range groups {
		done[g] = &outcome{again: refresh - rand.N(refresh/5)} //nolint:gosec // spreads load, keeps no secret
	}
	each(ctx, done, func(ctx context.Context, g registry.Group, o *outcome) (err error) {
		o.held, err = w.target.Read(ctx, g)
		return err //nolint:wrapcheck // Fault names the group
	})
	conflicts := make(map[registry.Group]error)
	for g, o := range done {
		if o.err == nil {
			o.change, conflicts[g] = w.plan(g, o.held)
		}
	}
	each(ctx, done, func(ctx context.Context, _ registry.Group, o *outcome) error {
		if o.change.Empty() {
			return nil
		}
		return w.target.Write(ctx, o.change)
	})
	for g, o := range done {
		if o.err != nil {
			o.again = 0
			continue
		}
		if !o.change.Empty() {
			w.planner.Applied(o.change)
			if v, ok := w.target.(registry.Verified); ok && v.VerifyAfter() > 0 {
				o.again = v.VerifyAfter()
			}
		}
		o.err = conflicts[g]
	}
	return done
}

// each calls do for every group that has not failed, several at a time, each
// within callTime.
func each(ctx context.Context, done map[registry.Group]*outcome, do func(context.Context, registry.Group, *outcome) error) {
	var calls sync.WaitGroup
	slots := make(chan struct{}, atATime)
	for g, o := range done {
		if o.err != nil {
			continue
		}
		slots <- struct{}{}
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, callTime)
			defer cancel()
			o.err = do(ctx, g, o)
			<-slots
		})
	}
	calls.Wait()
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
func (w *publication) follows(g registry.Group, o *outcome) {
	rival := w.rivals[g]
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

// noted notes what came of a group.
func (w *publication) noted(g registry.Group, o *outcome) {
	again, err := o.again, o.err
	before := w.fault(g, err)
	switch {
	case err != nil && again == 0:
		w.fails[g]++
		again = retryIn(w.fails[g])
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
	for left := slices.Collect(maps.Keys(w.dirty)); len(left) > 0 && ctx.Err() == nil; {
		done := w.reconcile(ctx, left)
		left = slices.DeleteFunc(left, func(g registry.Group) bool {
			err := done[g].err
			return err == nil || errors.Is(err, registry.ErrRefused) || errors.Is(err, ErrConflict)
		})
		if len(left) == 0 {
			return
		}
		pause(ctx, retryMin)
	}
	if err := ctx.Err(); err != nil {
		w.log.Warn("not everything was taken back before the time was up; it goes with the session", "err", err)
	}
}
