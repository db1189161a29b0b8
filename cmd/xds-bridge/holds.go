package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/admin/client"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/registry"
)

func holdsCommand(c *cli) *cobra.Command {
	var o clientOptions
	var of string
	cmd := &cobra.Command{
		Use: "holds", Short: "List the deletions that the running bridge holds", Args: noArgs,
		Long: "holds lists the deletions that the guards of the running bridge hold: which,\n" +
			"why, since when, and what would release them. It exits with 5 if there are any.\n" +
			"See approve and deny.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runHolds(cmd.Context(), c, o, of) },
	}
	clientFlags(cmd, &o)
	cmd.Flags().StringVar(&of, "bridge", "", "only the holds of this bridge, even if it is no longer configured")
	return cmd
}

// runHolds lists the held deletions of all bridges, or of one.
func runHolds(ctx context.Context, c *cli, o clientOptions, of string) error {
	return query[admin.Page[admin.Hold]]{
		ask: func(b *client.Client, ctx context.Context) (admin.Page[admin.Hold], error) {
			page, err := b.Holds(ctx)
			if of != "" {
				page.Items = slices.DeleteFunc(page.Items, func(h admin.Hold) bool { return !projection.SameBridge(h.Bridge, of) })
				page.Total = len(page.Items)
			}
			return page, err
		},
		print: func(page admin.Page[admin.Hold]) { printHolds(c.terminal, page.Items, c.sameBridge(o.Options)) },
		code: func(page admin.Page[admin.Hold]) int {
			return codeIf(slices.ContainsFunc(page.Items, func(h admin.Hold) bool { return !h.Denied }), exitHeld)
		},
	}.run(ctx, c, o)
}

// holdText returns one line about a hold: what is held, why, and what ends it.
func holdText(now time.Time, h bridge.Hold) string {
	if h.Denied {
		kept := registry.Counted(h.Count, "entry", "entries")
		return fmt.Sprintf("%s kept: %s %s; ends %s", kept, h.Reason, ago(now, h.Since), h.Release)
	}
	deletions := registry.Counted(h.Count, "deletion", "deletions")
	return fmt.Sprintf("%s for %s: %s; ends %s", deletions, lasting(now, h.Since), h.Reason, h.Release)
}

// shownEntries is the maximum number of entries, services or lines in one list.
const shownEntries = 20

// printHolds prints holds with the commands that decide about each. The flags select the bridge.
func printHolds(t *terminal, holds []admin.Hold, flags string) {
	now := time.Now()
	for _, h := range holds {
		t.warn("hold %s in %s", h.ID, h.Target)
		t.say("  bridge    %s", h.Bridge)
		t.say("  what      %s", registry.Counted(h.Count, "deletion", "deletions"))
		t.say("  why       %s", h.Reason)
		t.say("  since     %s, %s", h.Since.Format(time.RFC3339), ago(now, h.Since))
		t.say("  release   %s", h.Release)
		printDecisions(t, []admin.Hold{h}, flags)
		shown := h.Entries[:min(len(h.Entries), shownEntries)]
		for _, e := range shown {
			t.say("  entry     %s", e)
		}
		if more := h.Count - len(shown); more > 0 {
			t.say("  and %d more; see holds -o json of the leader", more)
		}
	}
	switch {
	case len(holds) == 0:
		t.say("No deletions are held.")
	case len(holds) > 1:
		t.say("All of them:")
		printDecisions(t, holds, flags)
	}
}

// printDecisions prints the commands that decide about holds. A hold that is already denied
// needs no second denial.
func printDecisions(t *terminal, holds []admin.Hold, flags string) {
	var all, open []string
	for _, h := range holds {
		all = append(all, h.ID)
		if !h.Denied {
			open = append(open, h.ID)
		}
	}
	t.say("  approve   xds-bridge approve%s %s", flags, strings.Join(all, " "))
	if len(open) > 0 {
		t.say("  deny      xds-bridge deny%s %s", flags, strings.Join(open, " "))
	}
}

func approveCommand(c *cli) *cobra.Command {
	return decideCommand(c, "approve", "Release holds: delete their entries",
		"approve releases a hold: the bridge deletes exactly the entries that holds\n"+
			"lists under this id. If the entries have changed since, the id is different:\n"+
			"nothing is deleted, and approve lists the current holds.\n\n"+
			"With --bridge, approve only lists the holds of that bridge and the command that\n"+
			"approves them, and exits with 5.")
}

func denyCommand(c *cli) *cobra.Command {
	return decideCommand(c, "deny", "Keep the entries of holds",
		"deny keeps the entries of a hold, even if the source confirms their removal.\n"+
			"Each entry stays until its endpoint returns or until an operator approves the\n"+
			"hold.\n\n"+
			"With --bridge, deny only lists the holds of that bridge and the command that\n"+
			"denies them, and exits with 5.")
}

func decideCommand(c *cli, action, short, long string) *cobra.Command {
	var o clientOptions
	var of string
	cmd := &cobra.Command{
		Use: action + " (HOLD... | --bridge BRIDGE)", Short: short, Long: long,
		RunE: func(cmd *cobra.Command, ids []string) error {
			switch {
			case of != "" && len(ids) == 0:
				return runUndecided(cmd.Context(), c, o, action, of)
			case of != "" || len(ids) == 0:
				return usage("%s requires the ids of holds, as xds-bridge holds lists them, or --bridge", action)
			}
			return runDecide(cmd.Context(), c, o, action, ids)
		},
	}
	clientFlags(cmd, &o)
	cmd.Flags().StringVar(&of, "bridge", "", "only list the holds of this bridge")
	return cmd
}

// runUndecided lists the holds of a bridge and decides nothing. A decision needs the ids of
// holds, so that it applies only to what the operator saw.
func runUndecided(ctx context.Context, c *cli, o clientOptions, action, bridgeName string) error {
	err := runHolds(ctx, c, o, bridgeName)
	if e, ok := errors.AsType[exit](err); ok && e.code == exitHeld {
		c.remark("nothing decided; run one of the %s commands above", action)
	}
	return err
}

// runDecide decides about each of several holds separately, and returns all errors.
func runDecide(ctx context.Context, c *cli, o clientOptions, action string, ids []string) error {
	running, err := c.program().Client(o.Options)
	if err != nil {
		return err
	}
	if running.Owner == "" && o.Address == "" {
		return usage("%s does not name the owner of the bridge; set --owner or --admin", c.file)
	}
	made := []admin.Decision{}
	for _, id := range ids {
		d, failed := running.Decide(ctx, action, id)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		made = append(made, d)
		if o.output == outputText {
			c.say("hold %s of bridge %s in %s: %s, %s", d.ID, d.Bridge, d.Target, d.Result,
				registry.Counted(d.Count, "deletion", "deletions"))
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
