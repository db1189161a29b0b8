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

// publication is what is published, and when each group is looked at next. Only
// Run's goroutine touches it. Beside that run the calls, at most one for a group.
type publication struct {
	*targetPublisher
	planner  *plan.Planner
	origins  map[registry.Name]bool             // what was claimed last
	keys     map[registry.Group][]Query         // what is looked up to see who else is in a group
	provided map[registry.Group]map[string]bool // by key
	observed map[registry.Group]observation
	others   *groupSet // that others changed
	dirty    map[registry.Group]time.Time
	calling  map[registry.Group]bool // a call for it is in flight
	outcomes chan outcome
	timer    *time.Timer // until the next group is looked at
	fails    map[registry.Group]int
}

// observation is that others changed what is known of a query.
type observation struct {
	query Query
	stop  func()
}

func newPublication(p *targetPublisher) *publication {
	return &publication{
		targetPublisher: p, planner: plan.New(p.owner), origins: make(map[registry.Name]bool),
		observed: make(map[registry.Group]observation), others: newGroupSet(), dirty: make(map[registry.Group]time.Time),
		calling: make(map[registry.Group]bool), outcomes: make(chan outcome), timer: time.NewTimer(0),
		fails: make(map[registry.Group]int),
	}
}

// follow publishes until ctx or the connection ends. Calls may be in flight when it
// returns, whose time is over.
func (w *publication) follow(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := w.target.Capabilities().Lost
	w.claim()
	for {
		w.begin(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-w.wake:
			w.claim()
		case <-w.others.ready:
			w.disturbed()
		case <-lost:
			w.all()
		case o := <-w.outcomes:
			w.finish(ctx, o)
		case <-w.timer.C:
		}
	}
}

// disturbed has the groups looked at that others changed: at once where what blocked
// ours may have gone.
func (w *publication) disturbed() {
	for _, g := range w.others.drain() {
		after := spread(gather)
		if errors.Is(w.problemOf(g), ErrConflict) {
			after = 0
		}
		w.dirty[g] = time.Now().Add(after)
	}
}

// problemOf returns why a group is not as it should be.
func (w *publication) problemOf(g registry.Group) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problems[g]
}

// all has every group looked at.
func (w *publication) all() {
	for g := range w.planner.Groups() {
		w.dirty[g] = time.Now()
	}
}

// begin begins to read the groups whose time has come, in that order, and sets the
// timer for the next one.
func (w *publication) begin(ctx context.Context) {
	w.timer.Stop()
	for _, g := range slices.SortedFunc(maps.Keys(w.dirty), func(a, b registry.Group) int { return w.dirty[a].Compare(w.dirty[b]) }) {
		switch at := w.dirty[g]; {
		case w.calling[g]:
		case len(w.calling) == atATime:
			return // an outcome comes first
		case time.Now().Before(at):
			w.timer.Reset(time.Until(at))
			return
		default:
			delete(w.dirty, g)
			w.call(ctx, outcome{group: g})
		}
	}
}

// claim records what is to be provided.
func (w *publication) claim() {
	w.mu.Lock()
	desired := w.desired
	w.mu.Unlock()
	refused, names := make(map[string]error), make(map[registry.Group][]string)
	now := make(map[registry.Name]bool, len(desired))
	w.keys, w.provided = make(map[registry.Group][]Query), make(map[registry.Group]map[string]bool)
	touched := func(groups []registry.Group) {
		for _, g := range groups {
			w.dirty[g] = time.Now()
		}
	}
	for _, s := range w.provisionsOf(desired) {
		entries, err := w.encode(s)
		if err != nil {
			for _, i := range s.of {
				refused[i.name()] = fmt.Errorf("instance %s: %w: %w", i.id(), ErrInvalid, err)
			}
		}
		for _, e := range entries {
			now[s.Name] = true
			w.provide(e, s.of, names)
		}
		if len(entries) > 0 {
			touched(w.planner.Claim(plan.Origin{Service: s.Name}, plan.Withdrawn, entries))
		}
	}
	for name := range w.origins {
		if !now[name] {
			touched(w.planner.Claim(plan.Origin{Service: name}, plan.Withdrawn, nil))
		}
	}
	w.origins = now
	w.refuse(refused, names)
}

// provide records of which instances an entry is.
func (w *publication) provide(e registry.Entry, of []Instance, names map[registry.Group][]string) {
	if w.provided[e.Group] == nil {
		w.provided[e.Group] = make(map[string]bool)
	}
	w.provided[e.Group][e.Key] = true
	for _, i := range of {
		w.keys[e.Group] = append(w.keys[e.Group], w.shows(i)...)
		names[e.Group] = append(names[e.Group], i.name())
	}
}

// outcome is what came of a call for a group: of its reading or, where there is a
// change, of writing that.
type outcome struct {
	group    registry.Group
	stored   []registry.Stored
	change   registry.Change
	conflict error // why not all that is provided could be written
	err      error
}

// call reads or writes a group within callTime.
func (w *publication) call(ctx context.Context, o outcome) {
	w.calling[o.group] = true
	if !o.change.Empty() {
		w.wrote.Store(true)
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		if o.change.Empty() {
			o.stored, o.err = w.target.Read(ctx, o.group)
		} else {
			o.err = w.target.Write(ctx, o.change)
		}
		w.outcomes <- o
	}()
}

// finish handles the result of a call, and writes what has to be after a reading.
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
	w.record(o)
	w.follows(o.group, first(o.err, o.conflict))
}

// plan returns what has to be written to a group, and why not all that is
// provided can be.
//
// What another session holds in our name is left alone: it goes with that session.
// Either the process before ended without withdrawing it, or another one runs under
// the same identity. Where a target keeps apart what each session publishes, ours is
// published beside it.
func (w *publication) plan(g registry.Group, held []registry.Stored) (registry.Change, error) {
	provided := w.provided[g]
	apart := w.target.Capabilities().Shared
	var duplicate error
	held = slices.Clone(held)
	for n, h := range held {
		if h.Owner != w.owner || h.Live || apart && provided[h.Key] {
			continue
		}
		held[n].Owner += "/other" // behind ours in order, so that neither of two yields
		if len(provided) > 0 {
			duplicate = fmt.Errorf("%s: %w: it has the same identity; give each process its own (identity), or wait for the session of the one before to end", h.Key, ErrConflict)
		}
	}
	w.planner.Observe(g, held)
	change, conflicts := w.planner.Change(g)
	if len(conflicts) > 0 && duplicate == nil {
		return change, fmt.Errorf("%s: %w: it is left as it is", conflicts[0].Key, ErrConflict)
	}
	return change, duplicate
}

// follows observes a group by the client's own source, in place of watches of the
// target, which have a connection of their own: where others may change what is ours,
// and for as long as another one's entry blocks ours, so that what is provided replaces
// it as soon as that goes.
func (w *publication) follows(g registry.Group, err error) {
	changeable := w.target.Capabilities().Watcher != nil
	q := AnyOf(w.keys[g]...)
	needed := len(w.keys[g]) > 0 && (changeable || errors.Is(err, ErrConflict))
	was, observed := w.observed[g]
	if observed && (!needed || was.query != q) {
		was.stop()
		delete(w.observed, g)
		observed = false
	}
	if needed && !observed && w.observe != nil {
		w.observed[g] = observation{q, w.observe(q, func() { w.others.add(g) })}
	}
}

// record keeps what came of a group, and when it is looked at next: no later than
// somebody asked for meanwhile.
func (w *publication) record(o outcome) {
	g, err := o.group, first(o.err, o.conflict)
	before := w.problem(g, err)
	if o.err != nil {
		w.fails[g]++
	} else if delete(w.fails, g); w.planner.Drop(g) {
		return
	}
	if _, asked := w.dirty[g]; !asked {
		w.dirty[g] = time.Now().Add(w.pace(o))
	}
	switch {
	case err != nil && before == nil:
		w.log.Warn("not published, trying on", "group", g.String(), "err", err)
	case err == nil && before != nil:
		w.log.Info("published again", "group", g.String())
	}
}

// pace returns how long after a call its group is looked at again.
func (w *publication) pace(o outcome) time.Duration {
	if o.err != nil {
		return retryIn(w.fails[o.group])
	}
	if o.change.Empty() {
		return spread(refresh)
	}
	can := w.target.Capabilities()
	if can.VerifyAfter > 0 {
		return can.VerifyAfter
	}
	if can.Watcher != nil {
		return spread(gather) // a write may end the watch
	}
	return spread(refresh)
}

// spread shortens a time by up to a fifth, so that processes do not act in sync.
func spread(d time.Duration) time.Duration {
	return d - rand.N(d/5) //nolint:gosec // spreads load, keeps no secret
}

// problem records why a group is not as it should be, and returns why it was not
// before.
func (w *publication) problem(g registry.Group, err error) error {
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

// withdraw withdraws everything, as far as that is done before ctx ends, and ends
// the calls in flight. The error says that something was not withdrawn.
func (w *publication) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer w.timer.Stop()
	w.claim()
	w.all()
	clear(w.fails)
	for len(w.dirty)+len(w.calling) > 0 && ctx.Err() == nil {
		w.begin(ctx)
		select {
		case <-ctx.Done():
		case o := <-w.outcomes:
			w.finish(ctx, o)
			if errors.Is(o.err, registry.ErrRefused) {
				delete(w.dirty, o.group)
			}
		case <-w.timer.C:
		}
	}
	err := ctx.Err()
	if err != nil {
		w.log.Warn("not everything was withdrawn before the time was up; it goes with the session", "err", err)
		err = fmt.Errorf("not everything was withdrawn; it goes with the session: %w", err)
	}
	cancel()
	w.await()
	return err
}

// await waits for the calls in flight, whose time is over.
func (w *publication) await() {
	for len(w.calling) > 0 {
		delete(w.calling, (<-w.outcomes).group)
	}
}
