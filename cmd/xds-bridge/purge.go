package main

import (
	"context"
	"slices"
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
	mark := metadata.Fingerprint(o.owner, metadata.OwnerLen)
	w := work{
		action: "purge", after: "deleted", owner: o.owner, gone: o.owner, target: o.target, yes: o.yes, timeout: o.timeout,
		change: func(g registry.Group, held []registry.Held) registry.Change {
			return registry.Change{Group: g, Delete: slices.DeleteFunc(held, func(h registry.Held) bool { return h.Owner != mark })}
		},
	}
	steps, err := c.work(ctx, w)
	if steps == nil && err != nil {
		return err
	}
	if printed := c.printPurged(o, purged{Owner: o.owner, Deleted: o.yes, Entries: steps}); err == nil {
		err = printed
	}
	return err
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
