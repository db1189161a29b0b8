// Package memory is a registry in memory, the target of the demo and of tests. It follows
// the contract of registry.Target exactly. It has no protocol and stores nothing on disk.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Op names a call of registry.Target for hooks.
type Op string

// The calls.
const (
	OpGroups Op = "groups"
	OpRead   Op = "read"
	OpWrite  Op = "write"
)

// Options tune a Target. With the zero value, no entry has an owner.
type Options struct {
	// Owner owns everything that is written through the target, unless Mark is set. If it is
	// not empty, a change that would replace or delete an entry of another owner is rejected.
	Owner string

	// Mark returns the owner of a written entry; nil: Owner.
	Mark func(registry.Entry) string

	// Overlap is how long a replaced entry stays next to its replacement.
	Overlap time.Duration

	// Delay is how long each call takes.
	Delay time.Duration

	// Fail returns the error of calls that fail without effect; nil: none fails.
	Fail func(Op, registry.Group) error

	// Lose returns the error of calls that fail after they took effect, like a call whose answer
	// is lost with the connection; nil: none fails.
	Lose func(Op, registry.Group) error

	// Watch is called for every change of an entry, after the change and without a lock. The
	// changes of one call are reported in its order. It may be nil.
	Watch func(Event)
}

// Event is one change of one entry.
type Event struct {
	Old, New *registry.Stored // nil: there was none; there is none any more
}

// Target is a registry in memory. It is safe for concurrent use.
type Target struct {
	opts Options
	lost chan struct{}

	mu       sync.Mutex
	groups   map[registry.Group]map[place]registry.Stored
	version  int64
	counts   Counts
	failHook func(Op, registry.Group) error
	loseHook func(Op, registry.Group) error
}

// A place identifies one entry of a group: by its key and, if replacements overlap, also by its
// value.
type place struct{ key, value string }

func (t *Target) place(e registry.Entry) place {
	if t.opts.Overlap > 0 {
		return place{e.Key, e.Value}
	}
	return place{key: e.Key}
}

// Capabilities implements registry.Target. Lost is ready once after Expire.
func (t *Target) Capabilities() registry.Capabilities {
	return registry.Capabilities{
		Sessions: true, Lost: t.lost, Overlap: func(registry.Group) time.Duration { return t.opts.Overlap },
	}
}

// Counts are the numbers of calls of a target, including failed calls.
type Counts struct {
	Groups, Reads, Writes int
	Put, Deleted          int // entries written and deleted through Write
}

// New returns an empty registry.
func New(opts Options) *Target {
	return &Target{
		opts: opts, failHook: opts.Fail, loseHook: opts.Lose,
		lost:   make(chan struct{}, 1),
		groups: make(map[registry.Group]map[place]registry.Stored),
	}
}

// Groups implements registry.Target. It returns the groups in order.
func (t *Target) Groups(ctx context.Context) ([]registry.Group, error) {
	if err := t.begin(ctx, OpGroups, registry.Group{}); err != nil {
		return nil, err
	}
	t.mu.Lock()
	groups := slices.SortedFunc(maps.Keys(t.groups), registry.Group.Compare)
	t.mu.Unlock()
	return groups, t.end(OpGroups, registry.Group{})
}

// Read implements registry.Target. It returns the entries in order.
func (t *Target) Read(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	if err := t.begin(ctx, OpRead, group); err != nil {
		return nil, err
	}
	t.mu.Lock()
	held := slices.SortedFunc(maps.Values(t.groups[group]), compareHeld)
	t.mu.Unlock()
	if err := t.end(OpRead, group); err != nil {
		return nil, err
	}
	return held, nil
}

// Write implements registry.Target. It applies all of a change or nothing, because it can hold every
// entry.
func (t *Target) Write(ctx context.Context, change registry.Change) error {
	if err := t.begin(ctx, OpWrite, change.Group); err != nil {
		return err
	}
	events, err := t.apply(change)
	if err != nil {
		return fmt.Errorf("write %s: %w", change.Group, err)
	}
	t.notify(events)
	return t.end(OpWrite, change.Group)
}

func (t *Target) apply(change registry.Change) ([]Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(change); err != nil {
		return nil, err
	}
	events := make([]Event, 0, len(change.Put)+len(change.Delete))
	for _, w := range change.Put {
		events = append(events, t.set(registry.Stored{Entry: w.New, Owner: t.owner(w.New), Live: true}))
		if w.Old != nil && !w.KeepOld && t.place(w.Old.Entry) != t.place(w.New) {
			events = append(events, t.remove(w.Old.Entry)...)
		}
	}
	for _, h := range change.Delete {
		events = append(events, t.remove(h.Entry)...)
	}
	t.counts.Put += len(change.Put)
	t.counts.Deleted += len(change.Delete)
	return events, nil
}

// check returns why a change may not be applied to the stored entries.
func (t *Target) check(change registry.Change) error {
	for _, w := range change.Put {
		if w.New.Group != change.Group || w.Old != nil && w.Old.Key != w.New.Key {
			return fmt.Errorf("%w: entry %q: has another group or key", registry.ErrRefused, w.New.Key)
		}
		e := w.New
		if w.Old != nil {
			e = w.Old.Entry
		}
		if err := t.checkOld(e, w.Old); err != nil {
			return err
		}
	}
	for _, h := range change.Delete {
		if err := t.checkOld(h.Entry, &h); err != nil {
			return err
		}
	}
	return nil
}

func (t *Target) checkOld(e registry.Entry, old *registry.Stored) error {
	key := e.Key
	now, ok := t.groups[e.Group][t.place(e)]
	switch {
	case old == nil && ok:
		return fmt.Errorf("%w: entry %q: exists", registry.ErrConflict, key)
	case old == nil:
		return nil
	case t.opts.Owner != "" && old.Owner != t.opts.Owner:
		return fmt.Errorf("%w: entry %q: owned by %q", registry.ErrRefused, key, old.Owner)
	case !ok && !old.Live: // removed with the session of the entry
		return nil
	case !ok || now.Entry != old.Entry || old.Version != 0 && now.Version != old.Version:
		return fmt.Errorf("%w: entry %q", registry.ErrConflict, key)
	}
	return nil
}

func (t *Target) owner(e registry.Entry) string {
	if t.opts.Mark != nil {
		return t.opts.Mark(e)
	}
	return t.opts.Owner
}

// set stores an entry under a new version. The caller holds the lock.
func (t *Target) set(h registry.Stored) Event {
	g := t.groups[h.Group]
	if g == nil {
		g = make(map[place]registry.Stored)
		t.groups[h.Group] = g
	}
	event := Event{New: &h}
	if old, ok := g[t.place(h.Entry)]; ok {
		event.Old = &old
	}
	t.version++
	h.Version = t.version
	g[t.place(h.Entry)] = h
	return event
}

// remove drops an entry, and its group with the last entry. The caller holds the lock.
func (t *Target) remove(e registry.Entry) []Event {
	old, ok := t.groups[e.Group][t.place(e)]
	if !ok {
		return nil
	}
	delete(t.groups[e.Group], t.place(e))
	if len(t.groups[e.Group]) == 0 {
		delete(t.groups, e.Group)
	}
	return []Event{{Old: &old}}
}

func (t *Target) begin(ctx context.Context, op Op, group registry.Group) error {
	t.mu.Lock()
	t.counts.add(op)
	fail := t.failHook
	t.mu.Unlock()
	if err := wait(ctx, t.opts.Delay); err != nil {
		return err
	}
	if fail != nil {
		return fail(op, group)
	}
	return nil
}

func (t *Target) end(op Op, group registry.Group) error {
	t.mu.Lock()
	lose := t.loseHook
	t.mu.Unlock()
	if lose != nil {
		return lose(op, group)
	}
	return nil
}

func (t *Target) notify(events []Event) {
	if t.opts.Watch == nil {
		return
	}
	for _, e := range events {
		t.opts.Watch(e)
	}
}

func (c *Counts) add(op Op) {
	switch op {
	case OpGroups:
		c.Groups++
	case OpRead:
		c.Reads++
	case OpWrite:
		c.Writes++
	}
}

func wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err()
}

func compareHeld(a, b registry.Stored) int { return compare(a.Entry, b.Entry) }

// compare orders entries by key and then by value.
func compare(a, b registry.Entry) int { return cmp.Or(a.Compare(b), cmp.Compare(a.Value, b.Value)) }
