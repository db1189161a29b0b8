package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/config"
)

type healthOptions struct {
	telemetry string
	ready     bool
	timeout   time.Duration
}

func (c *cli) healthcheckCommand() *cobra.Command {
	var o healthOptions
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "Ask the running bridge whether it lives", Args: noArgs,
		Long: "healthcheck asks /livez of the running bridge, for containers without a shell.\n" +
			"It exits with 0 where it lives, 1 where it does not, 4 where it does not answer.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.healthcheck(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.telemetry, "telemetry", "", "host:port of the running bridge's probes; by default what the configuration says")
	cmd.Flags().BoolVar(&o.ready, "ready", false, "ask /readyz in place of /livez")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	return cmd
}

func (c *cli) healthcheck(ctx context.Context, o healthOptions) error {
	address, err := c.probes(o)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return usage("telemetry.address %q: no probes there; set host:port, or name another with --telemetry", address)
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	probe := "/livez"
	if o.ready {
		probe = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+probe, nil)
	if err != nil {
		return usage("telemetry address: %w", err)
	}
	client := straight(http.DefaultTransport)
	resp, err := client.Do(req)
	if err != nil {
		return unreachable("%w; is the bridge running, and is this its address?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return unreachable("read %s: %w", probe, err)
	}
	if resp.StatusCode != http.StatusOK {
		return exit{exitFindings, fmt.Errorf("%s: %s", probe, strings.TrimSpace(string(body)))}
	}
	c.say("%s", strings.TrimSpace(string(body)))
	return nil
}

// probes returns where the probes of the running bridge are.
func (c *cli) probes(o healthOptions) (string, error) {
	if o.telemetry != "" {
		return o.telemetry, nil
	}
	access, err := config.ReadAccess(c.file, c.env)
	if wrong := access.Faults.Under("telemetry"); err == nil && len(wrong) > 0 {
		err = wrong
	}
	return access.Telemetry.Address, err
}
