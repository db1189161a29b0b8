package main

import (
	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
)

func (c *cli) releaseCommand() *cobra.Command {
	var o app.ReleaseOptions
	var form output
	cmd := &cobra.Command{
		Use: "release --owner OWNER", Short: "Leave everything that one owner wrote to nobody", Args: noArgs,
		Long: "release takes the marks of an owner off and forgets the owner. The entries stay,\n" +
			"and no bridge changes or deletes them any more. Each is replaced in one step, so\n" +
			"that consumers miss none. Stop the bridge of that owner first. It only tells what\n" +
			"it would do, unless --yes is given.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.program().Release(cmd.Context(), o)
			return c.operated(d, err, form)
		},
	}
	operationFlags(cmd, &o.OperationOptions, &form, "do it")
	cmd.Flags().StringVar(&o.Owner, "owner", "", "whose entries, by its name or as mark: and the mark that is shown of it; required")
	return cmd
}
