package memory

import (
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Set stores entries unconditionally, as another actor does, with the given owners and liveness. The
// target assigns the versions.
func (t *Target) Set(held ...registry.Stored) {
	t.mu.Lock()
	events := make([]Event, 0, len(held))
	for _, h := range held {
		events = append(events, t.set(h))
	}
	t.mu.Unlock()
	t.notify(events)
}

// Drop removes an entry, as another actor does. It is not an error if there is none.
func (t *Target) Drop(group registry.Group, key string) {
	t.mu.Lock()
	var events []Event
	for _, h := range t.groups[group] {
		if h.Key == key {
			events = append(events, t.remove(h.Entry)...)
		}
	}
	t.mu.Unlock()
	t.notify(events)
}

// Expire ends the session of Options.Owner: all live entries of that owner are removed, and Lost is
// ready.
func (t *Target) Expire() {
	t.mu.Lock()
	var events []Event
	for _, entries := range t.groups {
		for _, h := range entries {
			if h.Live && (t.opts.Owner == "" || h.Owner == t.opts.Owner) {
				events = append(events, t.remove(h.Entry)...)
			}
		}
	}
	t.mu.Unlock()
	t.notify(events)
	select {
	case t.lost <- struct{}{}:
	default:
	}
}

// Entries returns all stored entries, in order.
func (t *Target) Entries() []registry.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(func(yield func(registry.Entry) bool) {
		for _, g := range t.groups {
			for _, h := range g {
				if !yield(h.Entry) {
					return
				}
			}
		}
	}, compare)
}

// Counts returns the numbers of calls.
func (t *Target) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// Fail replaces the hook Options.Fail; nil lets every call through.
func (t *Target) Fail(hook func(Op, registry.Group) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failHook = hook
}

// Lose replaces the hook Options.Lose; nil loses nothing.
func (t *Target) Lose(hook func(Op, registry.Group) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loseHook = hook
}
