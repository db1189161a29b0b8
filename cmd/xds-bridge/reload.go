package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/app"
)

func (c *cli) reloadCommand() *cobra.Command {
	var o app.ClientOptions
	var form output
	cmd := &cobra.Command{
		Use: "reload", Short: "Have the running bridge read its configuration again", Args: noArgs,
		Long: "reload has the running bridge read its file again. What changed is restarted, and\n" +
			"everything else continues. A file that is wrong changes nothing: every fault of it\n" +
			"is printed, and the exit code is 2.\n\n" +
			"SIGHUP does the same, and so does a change of the file within reload.interval.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.reload(cmd.Context(), o, form) },
	}
	clientFlags(cmd, &o)
	outputFlag(cmd, &form)
	return cmd
}

func (c *cli) reload(ctx context.Context, o app.ClientOptions, form output) error {
	o.Timeout = max(o.Timeout, app.ReloadWait)
	o.AnyOwner = true // it reads its own file, in which the owner may be what changed
	client, err := c.program().Client(o)
	if err != nil {
		return err
	}
	r, err := client.Reload(ctx)
	if err != nil {
		return err
	}
	if form == outputJSON {
		if err := c.document(r); err != nil {
			return err
		}
	} else {
		c.printReload(r)
	}
	if !r.OK {
		return exit{exitUsage}
	}
	return nil
}

func (c *cli) printReload(r admin.Reload) {
	for _, err := range r.Errors {
		c.note("%s", c.withFile(err))
	}
	if !r.OK {
		c.note("nothing was changed; the configuration before continues")
		return
	}
	for _, what := range r.Changed {
		c.say("%s", what)
	}
	for _, what := range r.Waits {
		c.warn("%s: waits for a restart", what)
	}
	if len(r.Changed)+len(r.Waits) == 0 {
		c.say("nothing differs")
	}
}
