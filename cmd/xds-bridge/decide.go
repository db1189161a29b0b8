package main

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/admin"
)

func (c *cli) approveVerb() *cobra.Command {
	return c.decideVerb("approve", "Let the deletions of a hold go ahead",
		"approve lets exactly the deletions go ahead that status shows under the id of the\nhold. Where their set has changed since, the id is another, and nothing happens.")
}

func (c *cli) denyVerb() *cobra.Command {
	return c.decideVerb("deny", "Keep the deletions of a hold back",
		"deny keeps the deletions of a hold back, whatever the source says, until their set\nchanges or somebody approves it.")
}

func (c *cli) decideVerb(verb, short, long string) *cobra.Command {
	var o clientOptions
	var form output
	cmd := &cobra.Command{
		Use: verb + " HOLD", Short: short, Long: long, Args: oneArg("hold"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.decide(cmd.Context(), o, "/api/v1/holds/"+url.PathEscape(args[0])+"/"+verb)
			if err != nil {
				return err
			}
			if form == outputJSON {
				return c.document(d)
			}
			c.say("hold %s of %s: %s", d.ID, d.Target, d.Result)
			return nil
		},
	}
	clientFlags(cmd, &o)
	outputFlag(cmd, &form)
	return cmd
}

func (c *cli) decide(ctx context.Context, o clientOptions, path string) (admin.Decision, error) {
	var d admin.Decision
	client, err := c.client(o)
	if err != nil {
		return d, err
	}
	if client.owner == "" && o.admin == "" {
		return d, usage("%s does not say whose bridge is meant; give --owner or --admin", c.file)
	}
	return d, client.post(ctx, path, struct{}{}, &d)
}
