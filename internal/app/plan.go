package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/operation"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// unmatched returns the settings of bridges whose patterns fit no service of
// their source, which nobody would see otherwise.
func unmatched(r *runtime) []operation.Remark {
	var all []operation.Remark
	for i, x := range r.cfg.Bridges {
		s := r.source(x.From)
		if s == nil {
			continue
		}
		services := servicesOf(r.cfg, x, s.table)
		for _, p := range x.Patterns() {
			pattern, err := naming.ParsePattern(p.Text)
			if err != nil || slices.ContainsFunc(services, func(sv *registry.Service) bool { return metadata.Matches(pattern, sv) }) {
				continue
			}
			reason := fmt.Sprintf("%q fits no service of %s", p.Text, x.From)
			if host, why := matchesLeftOut(pattern, s.table.Skipped()); host != "" {
				reason = fmt.Sprintf("%q fits only hosts that are left out, such as %s: %s", p.Text, host, why)
			}
			all = append(all, operation.Remark{What: fmt.Sprintf("bridges[%d].%s", i, p.Path), Reason: reason})
		}
	}
	return all
}

// servicesOf returns the services that a bridge takes of the table of its source.
func servicesOf(cfg *config.Config, x config.Bridge, table *registry.Table) []*registry.Service {
	part, err := projection.PartOf(cfg, x)
	if err != nil {
		return nil // the bridge was not made either
	}
	rows, _ := table.Snapshot()
	maps.DeleteFunc(rows, func(name registry.Name, _ *registry.Service) bool { return !part.Has(name) })
	return slices.Collect(maps.Values(rows))
}

// matchesLeftOut returns the first host of a mesh that a pattern fits of those that
// its source leaves out, and why it does; empty if there is none.
func matchesLeftOut(p naming.Pattern, skipped map[string]string) (host, why string) {
	for _, host := range slices.Sorted(maps.Keys(skipped)) {
		if fits, _ := metadata.MatchesHost(p, host); fits {
			return host, skipped[host]
		}
	}
	return "", ""
}

// overlay is a target that writes nothing: it reads from another one, and keeps the
// changes to itself.
type overlay struct {
	real    registry.Target
	owner   string                // of what would be written, as registry.Stored.Owner has it
	observe func(registry.Change) // of each change that would be written
	adopted *operation.OwnerSet   // whose entries are looked at as if they were ours; nil: nobody's

	mu     sync.Mutex
	groups map[registry.Group][]registry.Stored // those that would have been written
}

// Capabilities implements registry.Target: those of the real target, of which nothing is
// written.
func (o *overlay) Capabilities() registry.Capabilities { return o.real.Capabilities().ReadOnly() }

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
func (o *overlay) Read(ctx context.Context, g registry.Group) ([]registry.Stored, error) {
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
	return o.adopted.Reassign(held, o.owner), nil
}

// Write implements registry.Target: it records the change. Two calls for one
// group never run at the same time.
func (o *overlay) Write(ctx context.Context, change registry.Change) error {
	held, err := o.Read(ctx, change.Group)
	if err != nil {
		return err
	}
	drop := func(e registry.Entry) {
		held = slices.DeleteFunc(held, func(h registry.Stored) bool { return h.Entry == e })
	}
	for _, d := range change.Delete {
		drop(d.Entry)
	}
	for _, w := range change.Put {
		if w.Old != nil {
			drop(w.Old.Entry)
		}
		held = append(held, registry.Stored{Entry: w.New, Owner: o.owner, Live: true, Version: 1})
	}
	o.mu.Lock()
	o.groups[change.Group] = held
	o.mu.Unlock()
	o.observe(change)
	return nil
}
