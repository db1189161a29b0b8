package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
	"github.com/xds-bridge/xds-bridge/registry"
)

// operation has a command carry an operation out: its flags, and what it prints of it.
func operation(c *cli, cmd *cobra.Command, o *app.OperationOptions, yes string, run func(context.Context) (*app.Operation, error)) *cobra.Command {
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
	cmd.Flags().StringVar(&o.Target, "target", "", "only this registry of the configuration")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, yes+"; without it nothing is written")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long it may take")
	return cmd
}

func printOperation(t *terminal, d *app.Operation) {
	done, left := d.Entries, d.Left
	printSteps(t, done)
	if len(left) > 0 {
		t.warn("unchanged, or not known:")
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
		t.say("%s%s would be %s; give --yes to do it.", n, of, d.After)
	}
}

func adoptCommand(c *cli) *cobra.Command {
	var o app.AdoptOptions
	cmd := &cobra.Command{
		Use: "adopt (--from OWNER | --unsigned | --unmarked)", Short: "Adopt entries as our own",
		Long: "adopt puts the mark of the configuration's owner on entries, which do not change\n" +
			"otherwise. Each is replaced in one step, so that consumers miss none.\n\n" +
			"  --from OWNER  those of another owner, such as the one before a new id; its bridge\n" +
			"                has to be stopped\n" +
			"  --unsigned    our own from before ownerKeyFile was set, or from before a key in it\n" +
			"                was dropped\n" +
			"  --unmarked    those without a mark that are what we would write but for it; this\n" +
			"                reads the sources\n\n" +
			"It only shows what it would do, unless --yes is given.",
	}
	cmd.Flags().StringVar(&o.From, "from", "", "whose entries")
	cmd.Flags().BoolVar(&o.Unsigned, "unsigned", false, "our own that are not signed by a key of ownerKeyFile")
	cmd.Flags().BoolVar(&o.Unmarked, "unmarked", false, "those without a mark that are what we would write")
	return operation(c, cmd, &o.OperationOptions, "do it", func(ctx context.Context) (*app.Operation, error) { return c.program().Adopt(ctx, o) })
}

func purgeCommand(c *cli) *cobra.Command {
	var o app.PurgeOptions
	cmd := &cobra.Command{
		Use: "purge (--owner OWNER | --bridge BRIDGE)", Short: "Delete everything that one owner or one bridge wrote",
		Long: "purge lists everything that carries the mark of an owner in the targets of the\n" +
			"configuration, and deletes it where --yes is given. Consumers lose these\n" +
			"addresses at once. Stop the process of that owner first: it would write them\n" +
			"again.\n\n" +
			"With --bridge it deletes only what carries the mark of that bridge, of the owner of\n" +
			"the configuration unless --owner is given. The process may run if the\n" +
			"configuration has no bridge of that name.",
	}
	cmd.Flags().StringVar(&o.Owner, "owner", "", "whose entries, by its name or as mark: and the mark that is shown of it")
	cmd.Flags().StringVar(&o.Bridge, "bridge", "", "only what this bridge wrote, by its name or as holds shows its mark")
	return operation(c, cmd, &o.OperationOptions, "delete", func(ctx context.Context) (*app.Operation, error) { return c.program().Purge(ctx, o) })
}

func releaseCommand(c *cli) *cobra.Command {
	var o app.ReleaseOptions
	cmd := &cobra.Command{
		Use: "release --owner OWNER", Short: "Leave everything that one owner wrote to nobody",
		Long: "release removes the marks of an owner and forgets the owner. The entries stay,\n" +
			"and no bridge changes or deletes them any more. Each is replaced in one step, so\n" +
			"that consumers miss none. Stop the bridge of that owner first. It only shows what\n" +
			"it would do, unless --yes is given.",
	}
	cmd.Flags().StringVar(&o.Owner, "owner", "", "whose entries, by its name or as mark: and the mark that is shown of it; required")
	return operation(c, cmd, &o.OperationOptions, "do it", func(ctx context.Context) (*app.Operation, error) { return c.program().Release(ctx, o) })
}
