package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
)

func (c *cli) healthcheckCommand() *cobra.Command {
	var o app.HealthOptions
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "Ask the running bridge whether it lives", Args: noArgs,
		Long: "healthcheck asks /livez of the running bridge, for containers without a shell.\n" +
			"It exits with 0 where it lives, 1 where it does not, 4 where it does not answer.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := c.program().Health(cmd.Context(), o)
			if err == nil {
				c.say("%s", answer)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Address, "telemetry", "", "host:port of the running bridge's probes; by default what the configuration says")
	cmd.Flags().BoolVar(&o.Ready, "ready", false, "ask /readyz in place of /livez")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	return cmd
}
