package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
)

type planOptions struct {
	output  output
	timeout time.Duration
}

func (c *cli) planCommand() *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what run would write, and write nothing", Args: noArgs,
		Long: "plan reads every source and every target of the configuration and shows the\n" +
			"difference. It writes nothing. It exits with 1 where something differs. What a\n" +
			"mesh is served it knows by the records that the bridge keeps of that.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.plan(cmd.Context(), o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long sources and targets may take to answer")
	return cmd
}

// difference is what plan prints.
type difference struct {
	Changes   []step           `json:"changes"`
	Conflicts []admin.Conflict `json:"conflicts"`
	Invalid   []complaint      `json:"invalid"`         // services of which nothing can be written
	Skipped   []complaint      `json:"skipped"`         // inputs that are left out
	Notes     []complaint      `json:"notes,omitempty"` // about targets that cannot be compared with, and settings without effect
	Summary   planCounters     `json:"summary"`
}

// step is one entry that would be written or deleted.
type step struct {
	Target string `json:"target"`
	Op     string `json:"op"` // create, update or delete
	Group  string `json:"group"`
	Key    string `json:"key"`
	Old    string `json:"old,omitempty"`
	New    string `json:"new,omitempty"`
	Held   string `json:"held,omitempty"`   // why it would stay all the same
	Failed string `json:"failed,omitempty"` // why it was not done though it was asked for

	reason bridge.Reason // of Held
}

// complaint is something that was left out, and why.
type complaint struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// planCounters count the steps of a plan.
type planCounters struct {
	Create int `json:"create"`
	Update int `json:"update"`
	Delete int `json:"delete"`
	Held   int `json:"held"`  // by the guard
	Kept   int `json:"kept"`  // for another reason, such as that the source cannot tell
	Equal  int `json:"equal"` // of another connection of this owner
}

func (c *cli) plan(ctx context.Context, o planOptions) error {
	h, err := c.runtime(buildOptions{dryRun: true, quiet: true}) //nolint:contextcheck // connections outlive what makes them
	if err != nil {
		return err
	}
	defer h.close()
	c.note("reading %s", strings.Join(h.names(), ", "))
	plans, statuses, err := h.plans(ctx, o.timeout)
	if err != nil {
		return err
	}
	d := difference{Changes: []step{}, Conflicts: []admin.Conflict{}, Invalid: []complaint{}, Skipped: []complaint{}}
	for i := range plans {
		d.add(h.sinks[i].name, plans[i], statuses[i])
		if note := h.sinks[i].note; note != "" {
			d.Notes = append(d.Notes, complaint{h.sinks[i].name, note})
		}
	}
	for _, in := range h.sources {
		d.skip(in.table.Skipped())
	}
	d.Notes = append(d.Notes, h.unfitting()...)
	if o.output == outputJSON {
		err = c.document(d)
	} else {
		c.printPlan(d)
	}
	if err == nil && d.differs() {
		err = exit{code: exitFindings}
	}
	return err
}

func (d *difference) differs() bool { return len(d.Changes)+len(d.Conflicts)+len(d.Invalid) > 0 }

// add takes in what the loop of a target would do.
func (d *difference) add(target string, groups []bridge.Planned, st bridge.Status) {
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
		if sv.Reason == bridge.ReasonInvalid || sv.Reason == bridge.ReasonRefused {
			d.Invalid = append(d.Invalid, complaint{string(sv.Service), sv.Detail})
		}
	}
}

func (d *difference) skip(reasons map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		d.Skipped = append(d.Skipped, complaint{key, reasons[key]})
	}
}

// stepsOf returns the steps of one group in the order of their keys, and how many
// entries are no step: they are as they should be, and held by another connection of
// this owner, such as that of the bridge that runs.
func stepsOf(target string, p bridge.Planned) (all []step, equal int) {
	for _, w := range p.Change.Put {
		if w.Old != nil && w.Old.Value == w.New.Value {
			equal++
			continue
		}
		s := step{Target: target, Op: "create", Group: w.New.Group.String(), Key: w.New.Key, New: w.New.Value}
		if w.Old != nil {
			s.Op, s.Old = "update", w.Old.Value
		}
		all = append(all, s)
	}
	for _, h := range p.Change.Delete {
		all = append(all, step{Target: target, Op: "delete", Group: h.Group.String(), Key: h.Key, Old: h.Value})
	}
	for _, h := range p.Held {
		all = append(all, step{
			Target: target, Op: "delete", Group: h.Entry.Group.String(), Key: h.Entry.Key, Old: h.Entry.Value,
			Held: string(h.Reason) + ": " + h.Detail, reason: h.Reason,
		})
	}
	slices.SortStableFunc(all, func(a, b step) int { return strings.Compare(a.Key, b.Key) })
	return all, equal
}

func (p *planCounters) count(s step) {
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

func (c *cli) printPlan(d difference) {
	where := ""
	for _, s := range d.Changes {
		if at := s.Target + "  " + s.Group; at != where {
			c.say("%s", at)
			where = at
		}
		for _, line := range s.lines() {
			c.show(line.color, "%s", line.text)
		}
	}
	for _, k := range d.Conflicts {
		c.show(yellow, "‼ conflict  %s  %s %s  of %s belongs to %s", k.Target, k.Group, k.Key, k.Service, k.Winner)
	}
	for _, i := range d.Invalid {
		c.show(yellow, "‼ cannot be written  %s: %s", i.What, brief(i.Reason))
	}
	for _, s := range d.Skipped {
		c.say("  skipped  %s: %s", s.What, s.Reason)
	}
	for _, s := range d.Notes {
		c.show(yellow, "‼ %s: %s", s.What, s.Reason)
	}
	n := d.Summary
	if n.Equal > 0 {
		c.say("%d are equal and held by another connection of this owner: a restart writes them once more.", n.Equal)
	}
	if !d.differs() {
		c.say("Nothing differs.")
		return
	}
	kept := ""
	if n.Kept > 0 {
		kept = fmt.Sprintf(" %d that stay as each says,", n.Kept)
	}
	c.say("%d to create, %d to update, %d to delete, %d held by the guard,%s %d in conflict.", n.Create, n.Update, n.Delete, n.Held, kept, len(d.Conflicts))
}

// painted is a line and its colour.
type painted struct {
	color color
	text  string
}

func (s step) lines() []painted {
	switch {
	case s.Held != "":
		return []painted{{yellow, fmt.Sprintf("  ‼ %s  stays for now: %s", keyWord(s.Key), s.Held)}}
	case s.Op == "create":
		return []painted{{green, "  + " + cmp.Or(s.New, s.Key)}}
	case s.Op == "update":
		return []painted{{red, "  - " + cmp.Or(s.Old, s.Key)}, {green, "  + " + cmp.Or(s.New, s.Key)}}
	default:
		return []painted{{red, "  - " + cmp.Or(s.Old, s.Key)}}
	}
}
