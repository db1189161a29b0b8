package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

type runOptions struct {
	once, dryRun bool
	timeout      time.Duration
}

func runCommand(c *cli) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use: "run", Short: "Keep the registries in sync, in the foreground", Args: noArgs,
		Long: "run keeps the registries in sync until SIGTERM or Ctrl-C. It then waits for the\n" +
			"calls in flight and exits; a second signal exits at once. It deletes nothing\n" +
			"when it stops. Unreachable registries are retried forever.\n\n" +
			"With --once, run brings the registries in sync once. It exits with 0 if that\n" +
			"succeeded, 1 if there are conflicts or entries that cannot be written, 4 if a\n" +
			"registry is unreachable, and 5 if the guard holds deletions.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runBridge(cmd.Context(), c, o) },
	}
	cmd.Flags().BoolVar(&o.once, "once", false, "bring the registries in sync once, then exit")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "log what would be written, and write nothing")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long --once may take")
	return cmd
}

func runBridge(ctx context.Context, c *cli, o runOptions) error {
	switch {
	case o.once && o.dryRun:
		return runPlan(ctx, c, planOptions{output: outputText, timeout: o.timeout})
	case o.once:
		statuses, err := c.program().RunOnce(ctx, o.timeout)
		if err != nil {
			return err
		}
		return printPass(c.terminal, statuses)
	case o.dryRun:
		return c.program().DryRun(ctx)
	default:
		return c.program().Run(ctx)
	}
}

// printPass prints the result of a single pass, and returns its exit code.
func printPass(t *terminal, statuses []bridge.Status) error {
	code := exitOK
	for _, st := range statuses {
		bad := len(st.Conflicts)
		for _, sv := range st.Services {
			if sv.Reason == bridge.ReasonUnwritable || sv.Reason == bridge.ReasonRefused {
				t.remark("%s: %s: %s", st.Target, sv.Service, brief(sv.Detail))
				bad++
			}
		}
		for _, k := range st.Conflicts {
			t.remark("%s: conflict: %s %s of %s belongs to %s", st.Target, k.Group, k.Key, k.Service, k.Winner)
		}
		for _, hold := range st.Holds {
			t.remark("%s: hold %s: %s", st.Target, hold.ID, holdText(time.Now(), hold))
			if !hold.Denied {
				code = exitHeld
			}
		}
		if bad > 0 && code == exitOK {
			code = exitFindings
		}
		t.say("%s: %s, %d of others, %s, %s", st.Target, registry.Counted(st.Owned, "own entry", "own entries"), st.Foreign,
			registry.Counted(len(st.Conflicts), "conflict", "conflicts"), registry.Counted(st.Counts.Holds, "hold", "holds"))
	}
	return exitWith(code)
}
