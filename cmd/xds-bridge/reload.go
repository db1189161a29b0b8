package main

import (
	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/admin/client"
	"github.com/xds-bridge/xds-bridge/internal/app"
)

func reloadCommand(c *cli) *cobra.Command {
	var o clientOptions
	cmd := &cobra.Command{
		Use: "reload", Short: "Make the running bridge reload its configuration", Args: noArgs,
		Long: "reload makes the running bridge read its configuration file again. Only the\n" +
			"changed parts restart. If the file is invalid, nothing changes: reload prints\n" +
			"all errors and exits with 2.\n\n" +
			"SIGHUP has the same effect. A change of the file is also applied within\n" +
			"reload.interval.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Timeout = max(o.Timeout, app.ReloadWait)
			o.AnyOwner = true // the running bridge reads its own file, which may change the owner
			return query[admin.Reload]{
				ask:   (*client.Client).Reload,
				print: func(r admin.Reload) { printReload(c, r) },
				code:  func(r admin.Reload) int { return codeIf(!r.OK, exitUsage) },
			}.run(cmd.Context(), c, o)
		},
	}
	clientFlags(cmd, &o)
	return cmd
}

func printReload(c *cli, r admin.Reload) {
	for _, err := range r.Errors {
		c.remark("%s", c.withFile(err))
	}
	if !r.OK {
		c.remark("configuration rejected, the previous one remains in use")
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
