package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Difference is what a plan would change, and what it could not.
type Difference struct {
	Changes    []Step           `json:"changes"`
	Conflicts  []admin.Conflict `json:"conflicts"`
	Unwritable []Remark         `json:"unwritable"`        // services of which nothing can be written
	Skipped    []Remark         `json:"skipped"`           // inputs that are left out
	Remarks    []Remark         `json:"remarks,omitempty"` // of targets that cannot be compared with, of settings without effect, and of addresses that register themselves under other names
	Summary    PlanCounters     `json:"summary"`

	refused int // of Unwritable: that cannot be read or written, so that it may differ
}

// A Step is one entry that would be written or deleted.
type Step struct {
	Target string `json:"target"`
	Op     string `json:"op"` // create, update or delete; of an operation purge, adopt or release
	Group  string `json:"group"`
	Key    string `json:"key"`
	Old    string `json:"old,omitempty"`
	New    string `json:"new,omitempty"`
	Held   string `json:"held,omitempty"`   // why it would stay all the same
	Failed string `json:"failed,omitempty"` // why it was not done though it was asked for

	reason bridge.Reason // of Held
}

// A Remark is something that is worth a look, and why.
type Remark struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// PlanCounters count the steps of a plan.
type PlanCounters struct {
	Create int `json:"create"`
	Update int `json:"update"`
	Delete int `json:"delete"`
	Held   int `json:"held"`  // by the guard
	Kept   int `json:"kept"`  // for another reason, such as that the source cannot report it
	Equal  int `json:"equal"` // of another connection of this owner
}

// Differs reports whether a run would change something, or could not. That a service has
// nothing to write, such as one whose only provider is at loopback, is no difference.
func (d *Difference) Differs() bool { return len(d.Changes)+len(d.Conflicts)+d.refused > 0 }

func (d *Difference) add(target string, groups []bridge.Planned, st bridge.Status) {
	for _, g := range groups {
		steps, equal := stepsOf(target, g)
		d.Changes = append(d.Changes, steps...)
		d.Summary.Equal += equal
		for _, s := range steps {
			d.Summary.count(s)
		}
	}
	for _, k := range st.Conflicts {
		d.Conflicts = append(d.Conflicts, admin.Conflict{Target: target, Conflict: k})
	}
	for _, sv := range st.Services {
		if warning := sv.Warning(); warning != "" {
			d.Remarks = append(d.Remarks, Remark{string(sv.Service), warning})
		}
		if sv.Reason == bridge.ReasonUnwritable || sv.Reason == bridge.ReasonRefused {
			d.Unwritable = append(d.Unwritable, Remark{string(sv.Service), sv.Detail})
			if sv.Reason == bridge.ReasonRefused {
				d.refused++
			}
		}
	}
}

func (d *Difference) skip(reasons map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		d.Skipped = append(d.Skipped, Remark{key, reasons[key]})
	}
}

// stepsOf returns the steps of one group in the order of their keys, and how many
// entries are no step: they are as they should be, and held by another connection of
// this owner, such as that of the bridge that runs.
func stepsOf(target string, p bridge.Planned) (all []Step, equal int) {
	for _, w := range p.Change.Put {
		if !w.Adds() && w.Old.Value == w.New.Value {
			equal++
			continue
		}
		s := Step{Target: target, Op: "create", Group: w.New.Group.String(), Key: w.New.Key, New: w.New.Value}
		if !w.Adds() {
			s.Op, s.Old = "update", w.Old.Value
		}
		all = append(all, s)
	}
	for _, h := range p.Change.Delete {
		all = append(all, Step{Target: target, Op: "delete", Group: h.Group.String(), Key: h.Key, Old: h.Value})
	}
	for _, h := range p.HeldBack {
		all = append(all, Step{
			Target: target, Op: "delete", Group: h.Entry.Group.String(), Key: h.Entry.Key, Old: h.Entry.Value,
			Held: string(h.Reason) + ": " + h.Detail, reason: h.Reason,
		})
	}
	slices.SortStableFunc(all, func(a, b Step) int { return strings.Compare(a.Key, b.Key) })
	return all, equal
}

func (p *PlanCounters) count(s Step) {
	switch {
	case s.reason == bridge.ReasonHeld:
		p.Held++
	case s.Held != "":
		p.Kept++
	case s.Op == "create":
		p.Create++
	case s.Op == "update":
		p.Update++
	default:
		p.Delete++
	}
}

// unmatched returns the settings of bridges whose patterns fit no service of
// their source, which nobody would see otherwise.
func unmatched(r *runtime) []Remark {
	var all []Remark
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
			all = append(all, Remark{fmt.Sprintf("bridges[%d].%s", i, p.Path), reason})
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
	adopted *ownerSet             // whose entries are looked at as if they were ours; nil: nobody's

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
	return o.adopted.reassign(held, o.owner), nil
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
