package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/operation"
	"github.com/xds-bridge/xds-bridge/registry"
)

type planOptions struct {
	output  output
	timeout time.Duration
}

func planCommand(c *cli) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what run would write", Args: noArgs,
		Long: "plan reads all configured sources and targets and shows the difference. It\n" +
			"writes nothing. For a mesh, plan compares with the bridge's saved record of\n" +
			"what it served.\n\n" +
			"It exits with 1 if run would write or delete an entry, or if a conflict or a\n" +
			"source prevents that. Services that cannot be written do not change the exit\n" +
			"code. The last line is a summary.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runPlan(cmd.Context(), c, o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long sources and targets may take to answer")
	return cmd
}

func runPlan(ctx context.Context, c *cli, o planOptions) error {
	d, err := c.program().Plan(ctx, o.timeout)
	if err != nil {
		return err
	}
	if err := c.result(o.output, d, func() { printPlan(c.terminal, d) }); err != nil {
		return err
	}
	return exitWith(codeIf(d.Differs(), exitFindings))
}

func printPlan(t *terminal, d *operation.Difference) {
	printSteps(t, d.Changes)
	for _, k := range d.Conflicts {
		t.show(yellow, "‼ conflict  %s  %s %s  of %s belongs to %s", k.Target, k.Group, k.Key, k.Service, k.Winner)
	}
	for _, i := range d.Unwritable {
		t.show(yellow, "‼ unwritable  %s: %s", i.What, brief(i.Reason))
	}
	for _, s := range d.Skipped {
		t.say("  skipped  %s: %s", s.What, s.Reason)
	}
	for _, s := range d.Remarks {
		t.show(yellow, "‼ %s: %s", s.What, s.Reason)
	}
	n := d.Summary
	if n.Equal > 0 {
		t.say("%d are equal, but another connection of this owner stored them: run would write them again.", n.Equal)
	}
	unwritable := ""
	if len(d.Unwritable) > 0 {
		unwritable = ", " + registry.Counted(len(d.Unwritable),
			"service that cannot be written", "services that cannot be written")
	}
	if !d.Differs() {
		t.say("Nothing differs%s.", unwritable)
		return
	}
	kept := ""
	if n.Kept > 0 {
		kept = fmt.Sprintf(" %d kept for the reasons shown,", n.Kept)
	}
	t.say("%d to create, %d to update, %d to delete, %d held by the guard,%s %d in conflict%s.",
		n.Create, n.Update, n.Delete, n.Held, kept, len(d.Conflicts), unwritable)
}

// printSteps prints entries as they are and as they would be.
func printSteps(t *terminal, steps []operation.Step) {
	heading := t.heading()
	for _, s := range steps {
		heading(s.Target + "  " + s.Group)
		if s.Held != "" {
			t.show(yellow, "  ‼ %s  kept for now: %s", keyText(s.Key), s.Held)
			continue
		}
		if s.Op != "create" {
			t.show(red, "  - %s", cmp.Or(s.Old, s.Key))
		}
		if s.New != "" || s.Op == "create" || s.Op == "update" {
			t.show(green, "  + %s", cmp.Or(s.New, s.Key))
		}
		if s.Failed != "" {
			t.warn("    %s", s.Failed)
		}
	}
}
