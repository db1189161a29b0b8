// Command xds-bridge keeps service registries in sync with a mesh, and explains the state of
// each service.
package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
)

// version is set by the linker; empty: the version is in the build information.
var version string

func main() {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // first of all: without a handler SIGHUP ends the process
	ctx, stop := interruptible(context.Background(), os.Exit)
	code := execute(ctx, newCLI(os.Stdout, os.Stderr, os.LookupEnv, hup), os.Args[1:])
	stop()
	os.Exit(code)
}

func versionCommand(c *cli) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return printVersion(c, o) },
	}
	outputFlag(cmd, &o)
	return cmd
}

func printVersion(c *cli, o output) error {
	b := app.ReadBuild(version)
	return c.result(o, b, func() {
		c.say("xds-bridge %s (revision %s, %s, %s, %s)",
			b.Version, cmp.Or(b.Revision, "-"), cmp.Or(b.Date, "-"), b.Go, b.Platform)
	})
}
