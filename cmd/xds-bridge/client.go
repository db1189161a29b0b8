package main

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/admin/client"
)

// clientOptions are the flags of every command that queries the running bridge.
type clientOptions struct {
	client.Options
	output output
}

func clientFlags(cmd *cobra.Command, o *clientOptions) {
	outputFlag(cmd, &o.output)
	cmd.Flags().StringVar(&o.Address, "admin", "",
		"host:port of the status API of the running bridge (default: as configured)")
	cmd.Flags().StringVar(&o.Owner, "owner", "", "the owner of the running bridge (default: as configured)")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 10*time.Second, "how long to wait for an answer")
}

// A query queries the running bridge and prints the answer.
type query[T any] struct {
	ask   func(*client.Client, context.Context) (T, error)
	print func(answer T)
	code  func(answer T) int // the exit code; nil: 0
}

func (q query[T]) run(ctx context.Context, c *cli, o clientOptions) error {
	running, err := c.program().Client(o.Options)
	if err != nil {
		return err
	}
	answer, err := q.ask(running, ctx)
	if err != nil {
		return err
	}
	if err := c.result(o.output, answer, func() { q.print(answer) }); err != nil || q.code == nil {
		return err
	}
	return exitWith(q.code(answer))
}

// sameBridge returns the flags that make another command query the same bridge, each preceded
// by a space.
func (c *cli) sameBridge(o client.Options) string {
	file := c.file
	if file == defaultConfig {
		file = ""
	}
	var flags strings.Builder
	for _, f := range []struct{ name, value string }{{"-f", file}, {"--admin", o.Address}, {"--owner", o.Owner}} {
		if f.value != "" {
			flags.WriteString(" " + f.name + " " + shellQuote(f.value))
		}
	}
	return flags.String()
}

// shellQuote quotes a text so that a shell reads it as one argument.
func shellQuote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-:@%+=,", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func healthcheckCommand(c *cli) *cobra.Command {
	var o client.HealthOptions
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "Check whether the running bridge is alive", Args: noArgs,
		Long: "healthcheck requests /livez of the running bridge, for containers without a\n" +
			"shell. It exits with 0 if the bridge is alive, 1 if it is not, and 4 if it does\n" +
			"not answer.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := c.program().Health(cmd.Context(), o)
			if err == nil {
				c.say("%s", answer)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Address, "telemetry", "",
		"host:port of the probes of the running bridge (default: as configured)")
	cmd.Flags().BoolVar(&o.Ready, "ready", false, "request /readyz instead of /livez")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	return cmd
}
