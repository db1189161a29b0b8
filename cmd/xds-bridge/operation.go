package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/operation"
	"github.com/xds-bridge/xds-bridge/registry"
)

// operationCommand adds to a command the flags of an operation, and makes the command run it and print
// the result.
func operationCommand(c *cli, cmd *cobra.Command, o *operation.Options, yes string, run func(context.Context) (*operation.Result, error)) *cobra.Command {
	var form output
	outputFlag(cmd, &form)
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := run(cmd.Context())
		if d == nil {
			return err
		}
		return cmp.Or(err, c.result(form, d, func() { printOperation(c.terminal, d) }))
	}
	cmd.Flags().StringVar(&o.Target, "target", "", "only this configured registry")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, yes+"; without --yes, nothing is written")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long the operation may take")
	return cmd
}

func printOperation(t *terminal, d *operation.Result) {
	done, left := d.Entries, d.Left
	printSteps(t, done)
	if len(left) > 0 {
		t.warn("unchanged or unknown:")
		printSteps(t, left)
	}
	of := ""
	if d.Action == "purge" {
		of = " of owner " + d.Owner
		if d.Bridge != "" {
			of = " of bridge " + d.Bridge + of
		}
	}
	n := registry.Counted(len(done), "entry", "entries")
	switch {
	case len(done)+len(left) == 0:
		t.say("There is nothing%s to %s.", of, d.Action)
	case d.Asked:
		t.say("%s%s: %s.", n, of, d.After)
	default:
		t.say("%s%s would be %s; set --yes to do it.", n, of, d.After)
	}
}

func adoptCommand(c *cli) *cobra.Command {
	var o operation.AdoptOptions
	cmd := &cobra.Command{
		Use: "adopt (--from OWNER | --unsigned | --unmarked)", Short: "Adopt existing entries",
		Long: "adopt puts the mark of the configured owner on existing entries and changes\n" +
			"nothing else in them. Each entry is replaced in one step, so consumers never\n" +
			"miss it.\n\n" +
			"  --from OWNER  entries of another owner, such as your former owner name;\n" +
			"                stop the bridge of that owner first\n" +
			"  --unsigned    your own entries from before ownerKeyFile was set, or signed\n" +
			"                by a key that is no longer in it\n" +
			"  --unmarked    entries without a mark that are equal to what the bridge would\n" +
			"                write, apart from the mark; this reads the sources\n\n" +
			"Without --yes, it only shows what it would do.",
	}
	cmd.Flags().StringVar(&o.From, "from", "", "the owner of the entries")
	cmd.Flags().BoolVar(&o.Unsigned, "unsigned", false, "your own entries that no key of ownerKeyFile signed")
	cmd.Flags().BoolVar(&o.Unmarked, "unmarked", false,
		"entries without a mark that are equal to what the bridge would write")
	return operationCommand(c, cmd, &o.Options, "do it", func(ctx context.Context) (*operation.Result, error) {
		return c.program().Adopt(ctx, o)
	})
}

func purgeCommand(c *cli) *cobra.Command {
	var o operation.PurgeOptions
	cmd := &cobra.Command{
		Use: "purge (--owner OWNER | --bridge BRIDGE)", Short: "Delete all entries of an owner or a bridge",
		Long: "purge lists all entries with the mark of an owner in the configured targets.\n" +
			"With --yes, it deletes them: consumers lose these addresses at once. Stop the\n" +
			"bridge of that owner first, because it would write the entries again.\n\n" +
			"With --bridge, purge selects only entries with the mark of that bridge. Their\n" +
			"owner is the configured one unless --owner is set. The process may keep running\n" +
			"if its configuration has no bridge of that name.",
	}
	cmd.Flags().StringVar(&o.Owner, "owner", "", "the owner of the entries: its name, or mark: and its mark as shown")
	cmd.Flags().StringVar(&o.Bridge, "bridge", "", "only entries of this bridge: its name, or its mark as holds shows it")
	return operationCommand(c, cmd, &o.Options, "delete", func(ctx context.Context) (*operation.Result, error) {
		return c.program().Purge(ctx, o)
	})
}

func releaseCommand(c *cli) *cobra.Command {
	var o operation.ReleaseOptions
	cmd := &cobra.Command{
		Use: "release --owner OWNER", Short: "Remove the marks of an owner and keep its entries",
		Long: "release removes the mark of an owner from all entries and deletes the records\n" +
			"of that owner. The entries remain, and no bridge changes or deletes them any\n" +
			"more. Each entry is replaced in one step, so consumers never miss it. Stop the\n" +
			"bridge of that owner first.\n\n" +
			"Without --yes, it only shows what it would do.",
	}
	cmd.Flags().StringVar(&o.Owner, "owner", "",
		"the owner of the entries: its name, or mark: and its mark as shown; required")
	return operationCommand(c, cmd, &o.Options, "do it", func(ctx context.Context) (*operation.Result, error) {
		return c.program().Release(ctx, o)
	})
}
