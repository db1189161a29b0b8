package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/internal/demo"
)

type demoOptions struct {
	demo.Options
	output output
	mesh   string // the file of Options.Mesh
}

func demoCommand(c *cli) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use: "demo", Short: "Show the bridge at work on an embedded mesh", Args: noArgs,
		Long: "demo starts a small mesh in this process and shows the entries that the bridge\n" +
			"writes into an embedded registry. With --zookeeper or --nacos, it writes to a\n" +
			"real registry and removes its entries at the end.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), c, o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().BoolVar(&o.Once, "once", false, "print the final state and exit")
	cmd.Flags().StringVar(&o.ZooKeeper, "zookeeper", "", "host:port of a real ZooKeeper to write to")
	cmd.Flags().StringVar(&o.Nacos, "nacos", "", "http://host:port of a real Nacos to write to, instead of a ZooKeeper")
	cmd.Flags().StringVar(&o.Root, "root", "", "the root path, or the group in a Nacos "+
		"(default: /dubbo in memory; in a real registry xds-bridge-demo, which no consumer reads)")
	cmd.Flags().StringVar(&o.mesh, "mesh", "", "a file that describes the mesh, such as examples/mesh.yaml")
	cmd.Flags().DurationVar(&o.Interval, "interval", 0, "the time between two changes of the mesh; 0: as in the file")
	return cmd
}

func runDemo(ctx context.Context, c *cli, o demoOptions) error {
	if o.output == outputJSON && !o.Once {
		return usage("demo -o json prints one document and requires --once")
	}
	if o.ZooKeeper != "" && o.Nacos != "" {
		return usage("demo writes to one registry: give --zookeeper or --nacos")
	}
	var err error
	o.Out, o.JSON = c.out, o.output == outputJSON
	if o.Log, err = c.program().Logger(config.Log{Level: "warn", Format: "text"}); err != nil {
		return err
	}
	if o.mesh != "" {
		if o.Mesh, err = os.ReadFile(o.mesh); err != nil {
			return usage("--mesh: %w", err)
		}
	}
	switch err := demo.Run(ctx, o.Options); {
	case errors.Is(err, demo.ErrUnreachable):
		return &cause.Error{Kind: cause.Unreachable, Err: fmt.Errorf("demo: %w", err)}
	case err != nil:
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}
