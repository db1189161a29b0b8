package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/admin/client"
	"github.com/xds-bridge/xds-bridge/registry"
)

func eventsCommand(c *cli) *cobra.Command {
	var o clientOptions
	after := int64(0)
	cmd := &cobra.Command{
		Use: "events", Short: "List the latest events of the running bridge", Args: noArgs,
		Long: "events lists the latest events of the running bridge, by kind: holds, denials,\n" +
			"conflicts, changes by others, rejected entries, writes with their causes, and\n" +
			"conditions that began or ended.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query[admin.Page[admin.Event]]{
				ask: func(b *client.Client, ctx context.Context) (admin.Page[admin.Event], error) {
					return b.Events(ctx, after)
				},
				print: func(page admin.Page[admin.Event]) {
					printEvents(c.terminal, page.Items)
					if len(page.Items) == 0 {
						c.say("There are no events after event %d.", after)
					}
				},
			}.run(cmd.Context(), c, o)
		},
	}
	clientFlags(cmd, &o)
	cmd.Flags().Int64Var(&after, "after", 0, "only events after this number")
	return cmd
}

// keyText returns the text for the key of an entry. The key of a service itself, such as its
// host in a mesh, is empty.
func keyText(key string) string {
	if key == registry.HeadKey {
		return "the service itself"
	}
	return key
}

func printEvents(t *terminal, events []admin.Event) {
	for _, e := range events {
		by, ends := e.Who, e.Release
		if by != "" {
			by = ", by " + by
		}
		if ends != "" {
			ends = "; ends " + ends
		}
		about := []string{string(e.Kind), e.Target, e.Bridge, e.Subject}
		about = slices.DeleteFunc(about, func(s string) bool { return s == "" })
		t.say("%d  %s  %s: %s%s%s%s", e.Number, e.Time.Format(time.RFC3339), strings.Join(about, "  "),
			e.What, colon(brief(e.Why)), by, ends)
		for _, x := range e.Changes {
			t.say("    %s %s%s: %s", x.Op, keyText(x.Key), of(x.Bridge), x.Cause)
		}
	}
}
