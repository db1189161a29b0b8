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
	cmd.Flags().StringVar(&o.owner, "owner", "", "whose entries, by its name or as mark: and the mark that is shown of it; required")
	cmd.Flags().StringVar(&o.target, "target", "", "only this registry of the configuration")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "delete; without it nothing is written")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long it may take")
	return cmd
}

func (c *cli) purge(ctx context.Context, o purgeOptions) error {
	if o.owner == "" {
		return usage("purge needs --owner, the owner whose entries have to go")
	}
	mark := metadata.OwnerMark(o.owner)
	w := work{
		action: "purge", after: "deleted", owner: o.owner, gone: o.owner, target: o.target, yes: o.yes, timeout: o.timeout,
		change: func(g registry.Group, held []registry.Held) registry.Change {
			return registry.Change{Group: g, Delete: slices.DeleteFunc(held, func(h registry.Held) bool { return h.Owner != mark })}
		},
	}
	return c.doWork(ctx, w, o.owner, o.output)
}
