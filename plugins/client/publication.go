package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// publication is one run of a targetPublisher: what is published, and when each group is read
// next. The goroutine of Run owns it. Calls run in goroutines of their own, at most one for
// each group.
type publication struct {
	*targetPublisher
	planner   *plan.Planner
	claimed   map[registry.Name]bool             // services of the last claim
	queries   map[registry.Group][]Query         // queries that observe others' changes to a group
	provided  map[registry.Group]map[string]bool // own entries, by key
	observed  map[registry.Group]observation
	disturbed *groupSet                    // groups that others may have changed
	readAt    map[registry.Group]time.Time // when to read each group
	calling   map[registry.Group]bool      // a call is in flight
	outcomes  chan outcome
	timer     *time.Timer // ready when the next group is due
	failures  map[registry.Group]int
}

// observation is a running Client.observe.
type observation struct {
	query Query
	stop  func()
}

func newPublication(p *targetPublisher) *publication {
	return &publication{
		targetPublisher: p, planner: plan.New(p.owner), claimed: make(map[registry.Name]bool),
		observed: make(map[registry.Group]observation), disturbed: newGroupSet(), readAt: make(map[registry.Group]time.Time),
		calling: make(map[registry.Group]bool), outcomes: make(chan outcome), timer: time.NewTimer(0),
		failures: make(map[registry.Group]int),
	}
}

// follow publishes until ctx or the connection ends. When it returns, canceled calls may still
// be in flight.
func (w *publication) follow(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := w.target.Capabilities().Lost
	w.claim()
	for {
		w.startCalls(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-w.wake:
			w.claim()
		case <-w.disturbed.ready:
			w.touchDisturbed()
		case <-lost:
			w.touchAll()
		case o := <-w.outcomes:
			w.finish(ctx, o)
		case <-w.timer.C:
		}
	}
}

// touchDisturbed schedules the groups that others changed. A group in conflict is read at once,
// because the blocking entry may be gone.
func (w *publication) touchDisturbed() {
	for _, g := range w.disturbed.drain() {
		after := spread(gatherTime)
		if errors.Is(w.problemOf(g), ErrConflict) {
			after = 0
		}
		w.readAt[g] = time.Now().Add(after)
	}
}

// problemOf returns why a group is not published as requested, or nil.
func (w *publication) problemOf(g registry.Group) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problems[g]
}

// touchAll schedules every group at once.
func (w *publication) touchAll() {
	for g := range w.planner.Groups() {
		w.readAt[g] = time.Now()
	}
}

// startCalls starts to read the groups that are due, the earliest first, and sets the timer
// for the next one.
func (w *publication) startCalls(ctx context.Context) {
	w.timer.Stop()
	byTime := func(a, b registry.Group) int { return w.readAt[a].Compare(w.readAt[b]) }
	for _, g := range slices.SortedFunc(maps.Keys(w.readAt), byTime) {
		switch at := w.readAt[g]; {
		case w.calling[g]:
		case len(w.calling) == maxCalls:
			return // the next outcome calls startCalls again
		case time.Now().Before(at):
			w.timer.Reset(time.Until(at))
			return
		default:
			delete(w.readAt, g)
			w.call(ctx, outcome{group: g})
		}
	}
}

// claim claims the entries of all desired instances, and schedules the groups that this changes.
func (w *publication) claim() {
	w.mu.Lock()
	desired := w.desired
	w.mu.Unlock()
	unwritable, names := make(map[string]error), make(map[registry.Group][]string)
	now := make(map[registry.Name]bool, len(desired))
	w.queries, w.provided = make(map[registry.Group][]Query), make(map[registry.Group]map[string]bool)
	touch := func(groups []registry.Group) {
		for _, g := range groups {
			w.readAt[g] = time.Now()
		}
	}
	for _, s := range w.provisionsOf(desired) {
		entries, err := w.encode(s)
		if err != nil {
			for _, i := range s.instances {
				unwritable[i.name()] = fmt.Errorf("instance %s: %w: %w", i.id(), ErrInvalid, err)
			}
		}
		for _, e := range entries {
			now[s.Name] = true
			w.recordProvided(e, s.instances, names)
		}
		if len(entries) > 0 {
			touch(w.planner.Claim(plan.Origin{Service: s.Name}, plan.Withdrawn, entries))
		}
	}
	for name := range w.claimed {
		if !now[name] {
			touch(w.planner.Claim(plan.Origin{Service: name}, plan.Withdrawn, nil))
		}
	}
	w.claimed = now
	w.recordUnwritable(unwritable, names)
}

// recordProvided records an own entry, and the instances that it holds.
func (w *publication) recordProvided(e registry.Entry, of []Instance, names map[registry.Group][]string) {
	if w.provided[e.Group] == nil {
		w.provided[e.Group] = make(map[string]bool)
	}
	w.provided[e.Group][e.Key] = true
	for _, i := range of {
		w.queries[e.Group] = append(w.queries[e.Group], w.shows(i)...)
		names[e.Group] = append(names[e.Group], i.name())
	}
}

// outcome is the result of a call for a group: of writing change, or of reading the group if
// change is empty.
type outcome struct {
	group    registry.Group
	stored   []registry.Stored
	change   registry.Change
	conflict error // why a part of what is provided could not be written
	err      error
}

// call reads or writes a group within callTimeout.
func (w *publication) call(ctx context.Context, o outcome) {
	w.calling[o.group] = true
	if !o.change.Empty() {
		w.wrote.Store(true)
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if o.change.Empty() {
			o.stored, o.err = w.target.Read(ctx, o.group)
		} else {
			o.err = w.target.Write(ctx, o.change)
		}
		w.outcomes <- o
	}()
}

// finish handles the result of a call. After a read it writes what has to change.
func (w *publication) finish(ctx context.Context, o outcome) {
	delete(w.calling, o.group)
	switch {
	case o.err != nil:
	case o.change.Empty():
		if o.change, o.conflict = w.plan(o.group, o.stored); !o.change.Empty() {
			w.call(ctx, o)
			return
		}
	default:
		w.planner.Applied(o.change)
	}
	w.recordOutcome(o)
	w.observeOthers(o.group, firstError(o.err, o.conflict))
}

// plan returns the change that a group needs, and why a part of what is provided cannot be
// written.
//
// Entries that another session holds under our owner are left as they are: they end with that
// session. Either an earlier process ended without withdrawing them, or another process has the
// same identity. A shared target keeps the entries of each session apart. There our entry is
// published next to the other one.
func (w *publication) plan(g registry.Group, stored []registry.Stored) (registry.Change, error) {
	provided := w.provided[g]
	shared := w.target.Capabilities().Shared
	var duplicate error
	stored = slices.Clone(stored)
	for n, s := range stored {
		if s.Owner != w.owner || s.Live || shared && provided[s.Key] {
			continue
		}
		stored[n].Owner += "/other" // sorts after our owner, so that neither of the two yields
		if len(provided) > 0 {
			duplicate = fmt.Errorf("%s: %w: it has the same identity; set identity to a unique value in each process, "+
				"or wait until the earlier session expires", s.Key, ErrConflict)
		}
	}
	w.planner.Observe(g, stored)
	change, conflicts := w.planner.Change(g)
	if len(conflicts) > 0 && duplicate == nil {
		return change, fmt.Errorf("%s: %w: its entry is left unchanged", conflicts[0].Key, ErrConflict)
	}
	return change, duplicate
}

// observeOthers observes others' changes to a group while they may affect our entries: if the
// target's entries can be changed by others, and while another owner's entry blocks ours. In the
// second case our entry is written as soon as the other one is deleted. The client's own source
// observes the group, because a watch of the target needs another connection.
func (w *publication) observeOthers(g registry.Group, err error) {
	changeable := w.target.Capabilities().Watcher != nil
	q := AnyOf(w.queries[g]...)
	needed := len(w.queries[g]) > 0 && (changeable || errors.Is(err, ErrConflict))
	was, observed := w.observed[g]
	if observed && (!needed || was.query != q) {
		was.stop()
		delete(w.observed, g)
		observed = false
	}
	if needed && !observed && w.observe != nil {
		w.observed[g] = observation{q, w.observe(q, func() { w.disturbed.add(g) })}
	}
}

// recordOutcome records the result of a call and schedules the next read of its group, unless
// an earlier one was scheduled meanwhile.
func (w *publication) recordOutcome(o outcome) {
	g, err := o.group, firstError(o.err, o.conflict)
	before := w.setProblem(g, err)
	if o.err != nil {
		w.failures[g]++
	} else if delete(w.failures, g); w.planner.Drop(g) {
		return
	}
	if _, scheduled := w.readAt[g]; !scheduled {
		w.readAt[g] = time.Now().Add(w.untilNextRead(o))
	}
	switch {
	case err != nil && before == nil:
		w.log.Warn("not published, retrying", "group", g.String(), "err", err)
	case err == nil && before != nil:
		w.log.Info("published again", "group", g.String())
	}
}

// untilNextRead returns how long after a call its group is read again.
func (w *publication) untilNextRead(o outcome) time.Duration {
	if o.err != nil {
		return retryIn(w.failures[o.group])
	}
	if o.change.Empty() {
		return spread(refreshInterval)
	}
	can := w.target.Capabilities()
	if can.VerifyAfter > 0 {
		return can.VerifyAfter
	}
	if can.Watcher != nil {
		return spread(gatherTime) // the write may have ended the watch
	}
	return spread(refreshInterval)
}

// spread shortens a duration by up to a fifth, so that processes do not act at the same time.
func spread(d time.Duration) time.Duration {
	return d - rand.N(d/5) //nolint:gosec // spreads load, keeps no secret
}

// setProblem records why a group is not published as requested, and returns the previous
// reason.
func (w *publication) setProblem(g registry.Group, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.problems[g]
	if err == nil {
		delete(w.problems, g)
	} else {
		w.problems[g] = err
	}
	return before
}

// withdraw withdraws everything until ctx ends, and then ends the calls in flight. The error
// says that something was not withdrawn.
func (w *publication) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer w.timer.Stop()
	w.claim()
	w.touchAll()
	clear(w.failures)
	for len(w.readAt)+len(w.calling) > 0 && ctx.Err() == nil {
		w.startCalls(ctx)
		select {
		case <-ctx.Done():
		case o := <-w.outcomes:
			w.finish(ctx, o)
			if errors.Is(o.err, registry.ErrRefused) {
				delete(w.readAt, o.group)
			}
		case <-w.timer.C:
		}
	}
	err := ctx.Err()
	if err != nil {
		w.log.Warn("withdrawal incomplete, the session's end removes what remains", "err", err)
		err = fmt.Errorf("not everything was withdrawn; the session's end removes what remains: %w", err)
	}
	cancel()
	w.await()
	return err
}

// await waits for canceled calls.
func (w *publication) await() {
	for len(w.calling) > 0 {
		delete(w.calling, (<-w.outcomes).group)
	}
}
