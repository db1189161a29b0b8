package operation

import (
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
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

// Add adds what the loop of a target would write, and what it could not.
func (d *Difference) Add(target string, groups []bridge.Planned, st bridge.Status) {
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

// Skip adds inputs that a source leaves out, with the reason of each.
func (d *Difference) Skip(reasons map[string]string) {
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
