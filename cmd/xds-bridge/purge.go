package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

type purgeOptions struct {
	owner   string
	target  string // empty: all of the configuration
	yes     bool
	output  output
	timeout time.Duration
}

func (c *cli) purgeVerb() *cobra.Command {
	var o purgeOptions
	cmd := &cobra.Command{
		Use: "purge --owner OWNER", Short: "Delete everything that one owner wrote", Args: noArgs,
		Long: "purge lists everything that carries the mark of an owner in the targets of the\n" +
			"configuration, and deletes it where --yes is given. Consumers lose these\n" +
			"addresses at once. Stop the bridge of that owner first: it would write them\n" +
			"again.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.purge(cmd.Context(), o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().StringVar(&o.owner, "owner", "", "whose entries; required")
	cmd.Flags().StringVar(&o.target, "target", "", "only this registry of the configuration")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "delete; without it nothing is written")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long it may take")
	return cmd
}

// purged is what purge prints.
type purged struct {
	Owner   string `json:"owner"`
	Deleted bool   `json:"deleted"` // false: it only would be
	Entries []step `json:"entries"`
}

func (c *cli) purge(ctx context.Context, o purgeOptions) error {
	if o.owner == "" {
		return usage("purge needs --owner, the owner whose entries have to go")
	}
	h, err := c.house(wiring{owner: o.owner, quiet: true, dryRun: true}) //nolint:contextcheck // connections outlive what makes them
	if err != nil {
		return err
	}
	defer h.close()
	h.inputs, h.waypoints = nil, nil // nothing has to be known of the sources
	out := purged{Owner: o.owner, Deleted: o.yes, Entries: []step{}}
	found := false
	err = h.during(ctx, o.timeout, nil, func(ctx context.Context) error {
		for _, t := range h.outlets {
			if o.target != "" && o.target != t.name {
				continue
			}
			found = true
			steps, err := t.purge(ctx, metadata.Fingerprint(o.owner, metadata.OwnerLen), o.yes)
			out.Entries = append(out.Entries, steps...)
			if err != nil {
				return unreachable("target %s: %w", t.name, err)
			}
		}
		return nil
	})
	if err == nil && !found {
		return usage("--target %q is no registry that a bridge of %s writes", o.target, c.file)
	}
	if printed := c.printPurged(o, out); err == nil {
		err = printed
	}
	return err
}

// purge deletes what an owner holds in a target, group by group, or only
// tells of it.
func (o *outlet) purge(ctx context.Context, owner string, do bool) ([]step, error) { //nolint:revive // do is a flag of the user's
	groups, err := o.target.Groups(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the target
	}
	var all []step
	for _, g := range groups {
		held, err := o.target.Read(ctx, g)
		if err != nil {
			return all, err //nolint:wrapcheck // the caller names the target
		}
		change := registry.Change{Group: g}
		for _, h := range held {
			if h.Owner == owner {
				change.Delete = append(change.Delete, h)
			}
		}
		if len(change.Delete) == 0 {
			continue
		}
		if do {
			if err := o.target.Write(ctx, change); err != nil {
				return all, err //nolint:wrapcheck // the caller names the target
			}
		}
		for _, h := range change.Delete {
			all = append(all, step{Target: o.name, Op: "delete", Group: g.String(), Key: h.Key, Old: h.Value})
		}
	}
	return all, nil
}

func (c *cli) printPurged(o purgeOptions, p purged) error {
	if o.output == outputJSON {
		return c.document(p)
	}
	where := ""
	for _, s := range p.Entries {
		if at := s.Target + "  " + s.Group; at != where {
			c.say("%s", at)
			where = at
		}
		c.show(red, "  - %s", orWord(s.Old, s.Key))
	}
	switch {
	case p.Deleted:
		c.say("%d entries of owner %s were deleted.", len(p.Entries), p.Owner)
	case len(p.Entries) == 0:
		c.say("Owner %s holds nothing.", p.Owner)
	default:
		c.say("%d entries of owner %s would be deleted; give --yes to do it.", len(p.Entries), p.Owner)
	}
	return nil
}
