package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

type releaseOptions struct {
	owner   string
	target  string
	yes     bool
	output  output
	timeout time.Duration
}

func (c *cli) releaseCommand() *cobra.Command {
	var o releaseOptions
	cmd := &cobra.Command{
		Use: "release --owner OWNER", Short: "Leave everything that one owner wrote to nobody", Args: noArgs,
		Long: "release takes the marks of an owner off and forgets the owner. The entries stay,\n" +
			"and no bridge changes or deletes them any more. Each is replaced in one step, so\n" +
			"that consumers miss none. Stop the bridge of that owner first. It only tells what\n" +
			"it would do, unless --yes is given.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.release(cmd.Context(), o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().StringVar(&o.owner, "owner", "", "whose entries, by its name or as mark: and the mark that is shown of it; required")
	cmd.Flags().StringVar(&o.target, "target", "", "only this registry of the configuration")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it; without it nothing is written")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long it may take")
	return cmd
}

func (c *cli) release(ctx context.Context, o releaseOptions) error {
	if o.owner == "" {
		return usage("release needs --owner, the owner whose marks have to go")
	}
	mark := metadata.OwnerMark(o.owner)
	owners := append(metadata.Disowned(mark), mark)
	released := &takeover{owners: owners}
	return c.doWork(ctx, operation{
		action: "release", after: "left to nobody", owner: o.owner, gone: o.owner, target: o.target,
		lasting: true, yes: o.yes, timeout: o.timeout, taking: released,
		change: func(g registry.Group, held []registry.Held) registry.Change {
			change := registry.Change{Group: g}
			for _, h := range held {
				if released.takes(h.Owner) {
					change.Put = append(change.Put, registry.Write{New: metadata.Bare(h.Entry), Old: &h})
				}
			}
			return change
		},
	}, o.owner, o.output)
}
