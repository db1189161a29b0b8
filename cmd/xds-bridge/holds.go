package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/app"
)

func holdsCommand(c *cli) *cobra.Command {
	var o clientOptions
	var of string
	cmd := &cobra.Command{
		Use: "holds", Short: "List the deletions that the running bridge holds back", Args: noArgs,
		Long: "holds asks the running bridge which deletions its guards hold back: what, why,\n" +
			"since when, and what would release them. It exits with 5 where there are any.\n" +
			"See approve and deny.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runHolds(cmd.Context(), c, o, of) },
	}
	clientFlags(cmd, &o)
	cmd.Flags().StringVar(&of, "bridge", "", "only those of this bridge, which need not be configured")
	return cmd
}

// holds lists what is held back, of one bridge if one is named.
func runHolds(ctx context.Context, c *cli, o clientOptions, of string) error {
	return query[admin.Page[admin.Hold]]{
		ask: func(b *app.Client, ctx context.Context) (admin.Page[admin.Hold], error) {
			page, err := b.Holds(ctx)
			if of != "" {
				page.Items = slices.DeleteFunc(page.Items, func(h admin.Hold) bool { return !app.SameBridge(h.Bridge, of) })
				page.Total = len(page.Items)
			}
			return page, err
		},
		print: func(page admin.Page[admin.Hold]) { printHolds(c.terminal, page.Items, c.sameBridge(o.ClientOptions)) },
		code: func(page admin.Page[admin.Hold]) int {
			return codeIf(slices.ContainsFunc(page.Items, func(h admin.Hold) bool { return !h.Denied }), exitHeld)
		},
	}.run(ctx, c, o)
}

// holdText says what is held and what ends that.
func holdText(now time.Time, h bridge.Hold) string {
	if h.Denied {
		return fmt.Sprintf("%d entries stay: %s; ends %s", len(h.Entries), h.Reason, h.Release)
	}
	return fmt.Sprintf("%d deletions since %s: %s; ends %s", len(h.Entries), ago(now, h.Since), h.Reason, h.Release)
}

const shownEntries = 20

// printHolds shows holds with the command that decides about each; flags of it
// say which bridge is meant.
func printHolds(t *terminal, holds []admin.Hold, flags string) {
	now := time.Now()
	for _, h := range holds {
		t.warn("hold %s in %s", h.ID, h.Target)
		t.say("  bridge    %s", h.Bridge)
		t.say("  what      %d deletions in %d groups", len(h.Entries), len(h.Groups))
		t.say("  why       %s", h.Reason)
		if !h.Denied {
			t.say("  since     %s, %s", h.Since.Format(time.RFC3339), ago(now, h.Since))
		}
		t.say("  release   %s", h.Release)
		t.say("  decide    xds-bridge approve%[2]s %[1]s lets these go, xds-bridge deny%[2]s %[1]s keeps them", h.ID, flags)
		for _, e := range h.Entries[:min(len(h.Entries), shownEntries)] {
			t.say("  entry     %s", e)
		}
		if more := len(h.Entries) - shownEntries; more > 0 {
			t.say("  and %d more; see holds -o json", more)
		}
	}
	switch {
	case len(holds) == 0:
		t.say("Nothing is held back.")
	case len(holds) > 1:
		ids := make([]string, len(holds))
		for i, h := range holds {
			ids[i] = h.ID
		}
		all := strings.Join(ids, " ")
		t.say("decide all of these: xds-bridge approve%[2]s %[1]s, or xds-bridge deny%[2]s %[1]s", all, flags)
	}
}
