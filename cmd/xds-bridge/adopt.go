package main

import (
	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
)

func (c *cli) adoptCommand() *cobra.Command {
	var o app.AdoptOptions
	var form output
	cmd := &cobra.Command{
		Use: "adopt (--from OWNER | --unsigned | --unmarked)", Short: "Take entries over as our own", Args: noArgs,
		Long: "adopt puts the mark of the configuration's owner on entries that stay as they are\n" +
			"otherwise. Each is replaced in one step, so that consumers miss none.\n\n" +
			"  --from OWNER  those of another owner, such as the one before a new id; its bridge\n" +
			"                has to be stopped\n" +
			"  --unsigned    our own from before ownerKeyFile was set, or from before a key in it\n" +
			"                was dropped\n" +
			"  --unmarked    those without a mark that are what we would write but for it; this\n" +
			"                reads the sources\n\n" +
			"It only tells what it would do, unless --yes is given.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.program().Adopt(cmd.Context(), o)
			return c.operated(d, err, form)
		},
	}
	operationFlags(cmd, &o.OperationOptions, &form, "do it")
	cmd.Flags().StringVar(&o.From, "from", "", "whose entries")
	cmd.Flags().BoolVar(&o.Unsigned, "unsigned", false, "our own that are not signed by a key of ownerKeyFile")
	cmd.Flags().BoolVar(&o.Unmarked, "unmarked", false, "those without a mark that are what we would write")
	return cmd
}
