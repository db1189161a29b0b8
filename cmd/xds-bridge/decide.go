package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/admin"
)

func approveCommand(c *cli) *cobra.Command {
	return decideCommand(c, "approve", "Let the deletions of holds go ahead",
		"approve deletes exactly the entries that holds shows under an id. Where they have\nchanged since, the id is another: nothing happens, and the answer names what is\nheld now. --bridge lists what is held for one bridge, with the command\nthat approves exactly that.")
}

func denyCommand(c *cli) *cobra.Command {
	return decideCommand(c, "deny", "Keep the deletions of holds back",
		"deny keeps the entries of a hold, whatever the source says, each until it is claimed\nagain or somebody approves them. --bridge lists what is held for one bridge, with\nthe command that denies exactly that.")
}

func decideCommand(c *cli, action, short, long string) *cobra.Command {
	var o clientOptions
	var of string
	cmd := &cobra.Command{
		Use: action + " (HOLD... | --bridge BRIDGE)", Short: short, Long: long,
		RunE: func(cmd *cobra.Command, ids []string) error {
			switch {
			case of != "" && len(ids) == 0:
				return runHolds(cmd.Context(), c, o, of)
			case of != "" || len(ids) == 0:
				return usage("%s requires the ids of holds, as xds-bridge holds lists them, or --bridge", action)
			}
			return runDecide(cmd.Context(), c, o, action, ids)
		},
	}
	clientFlags(cmd, &o)
	cmd.Flags().StringVar(&of, "bridge", "", "list what is held for this bridge, and decide nothing")
	return cmd
}

// decide gives one decision on several holds, each by itself, and returns the
// first error.
func runDecide(ctx context.Context, c *cli, o clientOptions, action string, ids []string) error {
	client, err := c.program().Client(o.ClientOptions)
	if err != nil {
		return err
	}
	if client.Owner == "" && o.Address == "" {
		return usage("%s does not say whose bridge is meant; give --owner or --admin", c.file)
	}
	made := []admin.Decision{}
	for _, id := range ids {
		d, failed := client.Decide(ctx, action, id)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		made = append(made, d)
		if o.output == outputText {
			c.say("hold %s of bridge %s in %s: %s, %d deletions", d.ID, d.Bridge, d.Target, d.Result, d.Count)
		}
		if !d.Recorded {
			c.remark("warning: hold %s: %s", d.ID, d.Why)
		}
	}
	if o.output == outputText || len(made) == 0 {
		return err
	}
	var printed error
	if len(ids) == 1 {
		printed = c.document(made[0])
	} else {
		printed = c.document(made)
	}
	return errors.Join(err, printed)
}
