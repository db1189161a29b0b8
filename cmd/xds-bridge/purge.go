package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

type purgeOptions struct {
	owner   string
	bridge  string // empty: all of the owner's
	target  string // empty: all of the configuration
	yes     bool
	output  output
	timeout time.Duration
}

func (c *cli) purgeCommand() *cobra.Command {
	var o purgeOptions
	cmd := &cobra.Command{
		Use: "purge (--owner OWNER | --bridge BRIDGE)", Short: "Delete everything that one owner or one bridge wrote", Args: noArgs,
		Long: "purge lists everything that carries the mark of an owner in the targets of the\n" +
			"configuration, and deletes it where --yes is given. Consumers lose these\n" +
			"addresses at once. Stop the process of that owner first: it would write them\n" +
			"again.\n\n" +
			"With --bridge it takes only what carries the mark of that bridge, of the owner of\n" +
			"the configuration unless --owner is given. The process may run if the\n" +
			"configuration has no bridge of that name.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.purge(cmd.Context(), o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().StringVar(&o.owner, "owner", "", "whose entries, by its name or as mark: and the mark that is shown of it")
	cmd.Flags().StringVar(&o.bridge, "bridge", "", "only what this bridge wrote, by its name or as holds shows its mark")
	cmd.Flags().StringVar(&o.target, "target", "", "only this registry of the configuration")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "delete; without it nothing is written")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long it may take")
	return cmd
}

func (c *cli) purge(ctx context.Context, o purgeOptions) error {
	if o.owner == "" && o.bridge == "" {
		return usage("purge needs --owner or --bridge, whose entries have to go")
	}
	w := operation{action: "purge", after: "deleted", owner: o.owner, gone: o.owner, bridge: o.bridge, target: o.target, yes: o.yes, timeout: o.timeout}
	if o.bridge != "" {
		if strings.ContainsAny(strings.TrimPrefix(o.bridge, markPrefix), ": ") {
			return usage("%q is no bridge; write its name, or its mark as in mark:r4k", o.bridge)
		}
		cfg, err := c.load()
		if err != nil {
			return err
		}
		w.owner = cmp.Or(o.owner, cfg.Owner)
		w.gone = w.owner
		configured := slices.ContainsFunc(cfg.Bridges, func(x config.Bridge) bool { return isOf(x.Name, o.bridge) })
		if !configured && metadata.OwnerMark(w.owner) == metadata.OwnerMark(cfg.Owner) {
			w.gone = "" // nobody writes them again
		}
	}
	mark := metadata.OwnerMark(w.owner)
	w.change = func(g registry.Group, held []registry.Held) registry.Change {
		return registry.Change{Group: g, Delete: slices.DeleteFunc(held, func(h registry.Held) bool {
			return h.Owner != mark || o.bridge != "" && !wrote(o.bridge, h.Entry)
		})}
	}
	return c.doWork(ctx, w, w.owner, o.output)
}
