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
	"github.com/xds-bridge/xds-bridge/registry"
)

func (c *cli) holdsCommand() *cobra.Command {
	var o app.ClientOptions
	var form output
	var of string
	cmd := &cobra.Command{
		Use: "holds", Short: "List the deletions that the running bridge holds back", Args: noArgs,
		Long: "holds asks the running bridge which deletions its guards hold back: what, why,\n" +
			"since when, and what would release them. It exits with 5 where there are any.\n" +
			"See approve and deny.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.holds(cmd.Context(), o, form, of) },
	}
	clientFlags(cmd, &o)
	outputFlag(cmd, &form)
	cmd.Flags().StringVar(&of, "bridge", "", "only those of this bridge, which need not be configured")
	return cmd
}

// holds lists what is held back, of one bridge where one is named.
func (c *cli) holds(ctx context.Context, o app.ClientOptions, form output, of string) error {
	client, err := c.program().Client(o)
	if err != nil {
		return err
	}
	page, err := client.Holds(ctx)
	if err != nil {
		return err
	}
	if of != "" {
		page.Items = slices.DeleteFunc(page.Items, func(h admin.Hold) bool { return !app.SameBridge(h.Bridge, of) })
		page.Total = len(page.Items)
	}
	if form == outputJSON {
		err = c.document(page)
	} else {
		c.printHolds(page.Items, c.sameBridge(o))
	}
	if err == nil && slices.ContainsFunc(page.Items, func(h admin.Hold) bool { return !h.Denied }) {
		err = exit{exitHeld}
	}
	return err
}

// holdText says what is held and what ends that.
func holdText(now time.Time, h bridge.Hold) string {
	if h.Denied {
		return fmt.Sprintf("%d entries stay: %s; ends %s", len(h.Entries), h.Reason, h.Release)
	}
	return fmt.Sprintf("%d deletions since %s: %s; ends %s", len(h.Entries), ago(now, h.Since), h.Reason, h.Release)
}

// shownEntries is how many entries of a hold are listed.
const shownEntries = 20

// printHolds shows holds with the command that decides about each; flags of it
// say which bridge is meant.
func (c *cli) printHolds(holds []admin.Hold, flags string) {
	now := time.Now()
	for _, h := range holds {
		c.warn("hold %s in %s", h.ID, h.Target)
		c.say("  bridge    %s", h.Bridge)
		c.say("  what      %d deletions in %d groups", len(h.Entries), len(h.Groups))
		c.say("  why       %s", h.Reason)
		if !h.Denied {
			c.say("  since     %s, %s", h.Since.Format(time.RFC3339), ago(now, h.Since))
		}
		c.say("  release   %s", h.Release)
		c.say("  decide    xds-bridge approve%[2]s %[1]s lets these go, xds-bridge deny%[2]s %[1]s keeps them", h.ID, flags)
		for _, e := range h.Entries[:min(len(h.Entries), shownEntries)] {
			c.say("  entry     %s", e)
		}
		if more := len(h.Entries) - shownEntries; more > 0 {
			c.say("  and %d more; see holds -o json", more)
		}
	}
	switch {
	case len(holds) == 0:
		c.say("Nothing is held back.")
	case len(holds) > 1:
		ids := make([]string, len(holds))
		for i, h := range holds {
			ids[i] = h.ID
		}
		all := strings.Join(ids, " ")
		c.say("decide all of these: xds-bridge approve%[2]s %[1]s, or xds-bridge deny%[2]s %[1]s", all, flags)
	}
}

func (c *cli) eventsCommand() *cobra.Command {
	var o app.ClientOptions
	var form output
	after := int64(0)
	cmd := &cobra.Command{
		Use: "events", Short: "List what happened in the running bridge", Args: noArgs,
		Long: "events asks the running bridge for the last events of each kind: holds, their\n" +
			"ends, denials, conflicts, entries that others changed, what was refused, what was\n" +
			"written and why, and conditions of status that began or ended.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.program().Client(o)
			if err != nil {
				return err
			}
			page, err := client.Events(cmd.Context(), after)
			if err != nil {
				return err
			}
			if form == outputJSON {
				return c.document(page)
			}
			c.printEvents(page.Items)
			if len(page.Items) == 0 {
				c.say("Nothing has happened after event %d.", after)
			}
			return nil
		},
	}
	clientFlags(cmd, &o)
	outputFlag(cmd, &form)
	cmd.Flags().Int64Var(&after, "after", 0, "only those after the one of this number")
	return cmd
}

// keyText returns the key of an entry as it is shown: that of a service itself,
// such as its host in a mesh, is empty.
func keyText(key string) string {
	if key == registry.HeadKey {
		return "the service itself"
	}
	return key
}

func (c *cli) printEvents(events []admin.Event) {
	for _, e := range events {
		by, ends := e.Who, e.Release
		if by != "" {
			by = ", by " + by
		}
		if ends != "" {
			ends = "; ends " + ends
		}
		about := slices.DeleteFunc([]string{string(e.Kind), e.Target, e.Bridge, e.Subject}, func(s string) bool { return s == "" })
		c.say("%s  %s: %s%s%s%s", e.Time.Format(time.RFC3339), strings.Join(about, "  "), e.What, colon(brief(e.Why)), by, ends)
		for _, x := range e.Changes {
			c.say("    %s %s%s: %s", x.Op, keyText(x.Key), of(x.Bridge), x.Cause)
		}
	}
}
