package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/preflight"
)

func preflightCommand(c *cli) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use: "preflight", Short: "Check everything that run requires, with a remedy for each problem", Args: noArgs,
		Long: "preflight connects to all configured registries and checks what run requires:\n" +
			"versions, the token, the debug API, clocks and permissions. To check\n" +
			"permissions, it writes and deletes a node.\n\n" +
			"√ passed, ‼ needs attention, × must be corrected, · another configuration that\n" +
			"would work from here.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runPreflight(cmd.Context(), c, o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().DurationVar(&o.timeout, "timeout", 15*time.Second, "how long a registry may take to answer")
	return cmd
}

func runPreflight(ctx context.Context, c *cli, o planOptions) error {
	all, err := c.program().Preflight(ctx, o.timeout)
	if err != nil {
		return err
	}
	if err := c.result(o.output, all, func() { printFindings(c, all) }); err != nil {
		return err
	}
	code := exitOK
	for _, f := range all {
		if f.Outcome == preflight.Failed && code == exitOK {
			code = exitFindings
		}
		if f.Unreachable {
			code = exitUnreachable
		}
	}
	return exitWith(code)
}

// sameFailure reports whether a registry was unreachable for the same cause in two roles.
func sameFailure(a, b preflight.Finding) bool {
	return a.Unreachable && b.Unreachable && a.Registry == b.Registry && a.Fix == b.Fix &&
		(strings.HasSuffix(a.Detail, b.Detail) || strings.HasSuffix(b.Detail, a.Detail))
}

func printFindings(c *cli, all []preflight.Finding) {
	heading, outcomes := c.heading(), make(map[preflight.Outcome]int)
	for i, f := range all {
		if at := slices.IndexFunc(all[:i], func(before preflight.Finding) bool { return sameFailure(before, f) }); at >= 0 {
			heading(strings.TrimSpace(string(f.Role) + " " + f.Registry))
			c.show(red, "  × %s: as for %s %s", f.Check, all[at].Role, all[at].Registry)
			continue
		}
		outcomes[f.Outcome]++
		heading(strings.TrimSpace(string(f.Role) + " " + f.Registry))
		sign, how := "√", green
		switch f.Outcome {
		case preflight.Warned:
			sign, how = "‼", yellow
		case preflight.Failed:
			sign, how = "×", red
		case preflight.Info:
			sign, how = "·", plain
		case preflight.Passed:
		}
		c.show(how, "  %s %s%s", sign, f.Check, c.withFile(colon(f.Detail)))
		if f.Fix != "" {
			c.say("      fix: %s", f.Fix)
		}
	}
	c.say("%d passed, %d need attention, %d must be corrected",
		outcomes[preflight.Passed], outcomes[preflight.Warned], outcomes[preflight.Failed])
}
