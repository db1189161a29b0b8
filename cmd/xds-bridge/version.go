package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
)

func (c *cli) versionCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "version", Short: "Say what this binary is", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return c.version(o) },
	}
	outputFlag(cmd, &o)
	return cmd
}

func (c *cli) version(o output) error {
	b := app.ReadBuild(version)
	if o == outputJSON {
		return c.document(b)
	}
	c.say("xds-bridge %s (revision %s, %s, %s, %s)", b.Version, cmp.Or(b.Revision, "-"), cmp.Or(b.Date, "-"), b.Go, b.Platform)
	return nil
}
