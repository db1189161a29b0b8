package main

import (
	"context"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/registry"
)

// work is what a person has done to entries beside any bridge: purge, adopt
// and release.
type work struct {
	action  string // as the audit calls it
	after   string // what becomes of the entries
	owner   string // as whom it is done; empty: as the configuration's
	gone    string // the owner of whom nobody may live while it is done, and who is forgotten then; empty: nobody
	target  string // empty: all of the configuration
	lasting bool   // only where entries outlive the connection of who wrote them
	yes     bool   // do it; else only tell
	timeout time.Duration
	taking  *taking
	change  func(registry.Group, []registry.Held) registry.Change
	prepare func(context.Context, *house) error // before the targets are read; nil: nothing
}

// rememberer is a target that remembers owners: one in which entries stay when
// the connection ends that wrote them.
type rememberer interface {
	Alive(ctx context.Context, owner string) (string, error)
	Forget(ctx context.Context, owner string, bridges []string) error
}

// work does it in every target, and returns what was or would be done; nil
// where it did not come to that.
func (c *cli) work(ctx context.Context, w work) ([]step, error) {
	if w.taking == nil {
		w.taking = &taking{}
	}
	h, err := c.house(wiring{owner: w.owner, quiet: true, dryRun: true, byHand: w.taking}) //nolint:contextcheck // connections outlive what makes them
	if err != nil {
		return nil, err
	}
	defer h.close()
	outlets, err := c.workplaces(h, w)
	if err != nil {
		return nil, err
	}
	if w.prepare == nil {
		h.inputs, h.waypoints, h.announcers = nil, nil, nil // nothing has to be known of the sources
	}
	steps := []step{}
	err = h.during(ctx, w.timeout, nil, func(ctx context.Context) error {
		if w.prepare != nil {
			if err := w.prepare(ctx, h); err != nil {
				return err
			}
		}
		steps, err = h.worked(ctx, w, outlets)
		return err
	})
	return cameTo(steps, err)
}

// worked does the work in one target after the other, until one fails, and
// keeps in the audit what was done.
func (h *house) worked(ctx context.Context, w work, outlets []*outlet) ([]step, error) {
	steps := []step{}
	for _, t := range outlets {
		done, err := t.work(ctx, w)
		steps = append(steps, done...)
		if w.yes && (len(done) > 0 || err != nil) {
			h.audit.Record(ctx, w.entry(h.owner, t, done, err))
		}
		if err != nil {
			return steps, err
		}
	}
	return steps, nil
}

// cameTo returns nil for steps where an error left none.
func cameTo(steps []step, err error) ([]step, error) {
	if err != nil && len(steps) == 0 {
		return nil, err
	}
	return steps, err
}

// workplaces returns the targets in which the work can be done.
func (c *cli) workplaces(h *house, w work) ([]*outlet, error) {
	var all []*outlet
	named := false
	for _, t := range h.outlets {
		if w.target != "" && w.target != t.name {
			continue
		}
		named = true
		if _, lasting := t.target.(rememberer); !lasting && w.lasting {
			c.note("target %s: entries there live no longer than the connection of who wrote them; there is nothing to %s", t.name, w.action)
			continue
		}
		all = append(all, t)
	}
	switch {
	case !named:
		return nil, usage("--target %q is no registry that a bridge of %s writes", w.target, c.file)
	case len(all) == 0:
		return nil, usage("%s is for registries whose entries stay, such as ZooKeeper; a bridge of %s writes to none", w.action, c.file)
	}
	return all, nil
}

// work does it in one target, group by group.
func (t *outlet) work(ctx context.Context, w work) ([]step, error) {
	k, lasting := t.target.(rememberer)
	if lasting && w.gone != "" {
		who, err := k.Alive(ctx, w.gone)
		if err != nil {
			return nil, unreachable("target %s: %w", t.name, err)
		}
		if who != "" {
			return nil, usage("target %s: a bridge of owner %s still runs: %s; stop it first", t.name, w.gone, who)
		}
	}
	groups, err := t.target.Groups(ctx)
	if err != nil {
		return nil, unreachable("target %s: %w", t.name, err)
	}
	var all []step
	for _, g := range groups {
		steps, err := t.workOn(ctx, w, g)
		all = append(all, steps...)
		if err != nil {
			return all, unreachable("target %s: %w", t.name, err)
		}
	}
	if lasting && w.gone != "" && w.yes {
		if err := k.Forget(ctx, w.gone, t.bridges); err != nil {
			return all, unreachable("target %s: %w", t.name, err)
		}
	}
	return all, nil
}

func (t *outlet) workOn(ctx context.Context, w work, g registry.Group) ([]step, error) {
	held, err := t.target.Read(ctx, g)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the target
	}
	change := w.change(g, held)
	if change.Empty() {
		return nil, nil
	}
	if w.yes {
		if err := t.target.Write(ctx, change); err != nil {
			return nil, err //nolint:wrapcheck // the caller names the target
		}
	}
	var steps []step
	for _, p := range change.Put {
		steps = append(steps, step{Target: t.name, Op: w.action, Group: g.String(), Key: p.New.Key, Old: p.Old.Value, New: p.New.Value})
	}
	for _, h := range change.Delete {
		steps = append(steps, step{Target: t.name, Op: "delete", Group: g.String(), Key: h.Key, Old: h.Value})
	}
	return steps, nil
}

// worked is what adopt and release print.
type worked struct {
	Action  string `json:"action"`
	Owner   string `json:"owner"`
	Done    bool   `json:"done"` // false: it only would be
	Entries []step `json:"entries"`
}

// doWork does it and prints what was or would be done.
func (c *cli) doWork(ctx context.Context, w work, owner string, form output) error {
	steps, err := c.work(ctx, w)
	if steps == nil && err != nil {
		return err
	}
	var printed error
	if form == outputJSON {
		printed = c.document(worked{Action: w.action, Owner: owner, Done: w.yes, Entries: steps})
	} else {
		c.printWork(w, steps)
	}
	if err == nil {
		err = printed
	}
	return err
}

func (c *cli) printWork(w work, steps []step) {
	where := ""
	for _, s := range steps {
		if at := s.Target + "  " + s.Group; at != where {
			c.say("%s", at)
			where = at
		}
		c.show(red, "  - %s", orWord(s.Old, s.Key))
		c.show(green, "  + %s", orWord(s.New, s.Key))
	}
	switch {
	case len(steps) == 0:
		c.say("There is nothing to %s.", w.action)
	case w.yes:
		c.say("%d entries: %s.", len(steps), w.after)
	default:
		c.say("%d entries would be %s; give --yes to do it.", len(steps), w.after)
	}
}

// entry is what the audit keeps of the work in one target.
func (w work) entry(owner string, t *outlet, done []step, err error) audit.Entry {
	e := audit.Entry{Who: thisUser(), Action: w.action, Owner: owner, Target: t.name, Subject: w.gone, Count: len(done), After: w.after}
	for _, s := range done {
		e.Before = append(e.Before, s.Group+" "+s.Old)
	}
	if err != nil {
		e.Error = err.Error()
		if len(done) == 0 {
			e.After = "nothing changed"
		}
	}
	return e
}

// taking says whose entries a person takes over.
type taking struct {
	owners []string // as registry.Held.Owner tells them; "" is nobody
}

func (t *taking) takes(owner string) bool { return t != nil && slices.Contains(t.owners, owner) }

// pretend returns entries as if those that are taken over were ours already.
func (t *taking) pretend(held []registry.Held, owner string) []registry.Held {
	if t == nil || len(t.owners) == 0 {
		return held
	}
	held = slices.Clone(held)
	for i := range held {
		if t.takes(held[i].Owner) {
			held[i].Owner = owner
		}
	}
	return held
}
