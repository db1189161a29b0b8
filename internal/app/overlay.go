package app

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
)

// overlay is a target that writes nothing: it reads through to another one,
// and keeps what it is told to write to itself.
type overlay struct {
	real   registry.Target
	owner  string                // of what would be written, as registry.Held.Owner tells it
	told   func(registry.Change) // of each change that would be written
	taking *takeover             // whose entries are looked at as if they were ours; nil: nobody's

	mu     sync.Mutex
	groups map[registry.Group][]registry.Held // those that would have been written
}

// Groups implements registry.Target.
func (o *overlay) Groups(ctx context.Context) ([]registry.Group, error) {
	groups, err := o.real.Groups(ctx)
	if err != nil {
		return nil, fmt.Errorf("dry run: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for g := range o.groups {
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// Read implements registry.Target.
func (o *overlay) Read(ctx context.Context, g registry.Group) ([]registry.Held, error) {
	o.mu.Lock()
	held, written := o.groups[g]
	o.mu.Unlock()
	if written {
		return slices.Clone(held), nil
	}
	held, err := o.real.Read(ctx, g)
	if err != nil {
		return nil, fmt.Errorf("dry run: %w", err)
	}
	return o.taking.pretend(held, o.owner), nil
}

// Write implements registry.Target: it notes the change. Two calls for one
// group never run at the same time.
func (o *overlay) Write(ctx context.Context, change registry.Change) error {
	held, err := o.Read(ctx, change.Group)
	if err != nil {
		return err
	}
	drop := func(e registry.Entry) {
		held = slices.DeleteFunc(held, func(h registry.Held) bool { return h.Entry == e })
	}
	for _, d := range change.Delete {
		drop(d.Entry)
	}
	for _, w := range change.Put {
		if w.Old != nil {
			drop(w.Old.Entry)
		}
		held = append(held, registry.Held{Entry: w.New, Owner: o.owner, Live: true, Version: 1})
	}
	o.mu.Lock()
	o.groups[change.Group] = held
	o.mu.Unlock()
	o.told(change)
	return nil
}
