package main

import (
	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
)

func (c *cli) purgeCommand() *cobra.Command {
	var o app.PurgeOptions
	var form output
	cmd := &cobra.Command{
		Use: "purge (--owner OWNER | --bridge BRIDGE)", Short: "Delete everything that one owner or one bridge wrote", Args: noArgs,
		Long: "purge lists everything that carries the mark of an owner in the targets of the\n" +
			"configuration, and deletes it where --yes is given. Consumers lose these\n" +
			"addresses at once. Stop the process of that owner first: it would write them\n" +
			"again.\n\n" +
			"With --bridge it takes only what carries the mark of that bridge, of the owner of\n" +
			"the configuration unless --owner is given. The process may run if the\n" +
			"configuration has no bridge of that name.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.program().Purge(cmd.Context(), o)
			return c.operated(d, err, form)
		},
	}
	operationFlags(cmd, &o.OperationOptions, &form, "delete")
	cmd.Flags().StringVar(&o.Owner, "owner", "", "whose entries, by its name or as mark: and the mark that is shown of it")
	cmd.Flags().StringVar(&o.Bridge, "bridge", "", "only what this bridge wrote, by its name or as holds shows its mark")
	return cmd
}
