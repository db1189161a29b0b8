package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin/client"
	"github.com/xds-bridge/xds-bridge/internal/app"
	"github.com/xds-bridge/xds-bridge/internal/redact"
)

// defaultConfig is the path of the configuration in packages and images.
const defaultConfig = "/etc/xds-bridge/config.yaml"

// cli is what the commands share: the terminal, the environment and the global flags.
type cli struct {
	*terminal
	hup chan os.Signal // SIGHUP since the process started; nil: not caught

	file      string // --config
	logLevel  string // --log-level; empty: as configured
	logFormat string // --log-format; empty: as configured
}

func newCLI(out, err io.Writer, env config.Lookup, hup chan os.Signal) *cli {
	return &cli{terminal: &terminal{out: out, err: err, env: env}, hup: hup}
}

func execute(ctx context.Context, c *cli, args []string) int {
	root := newRoot(c) //nolint:contextcheck // each command has the context of its command
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !silent(err) {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			put(c.err, "xds-bridge: "+c.withFile(redact.Line(line)))
		}
	}
	return codeOf(ctx, err)
}

// withFile adds the flags of this command line to the xds-bridge commands in a text.
func (c *cli) withFile(text string) string {
	flags := c.sameBridge(client.Options{})
	return strings.NewReplacer(
		"xds-bridge adopt --", "xds-bridge adopt"+flags+" --",
		"xds-bridge release --", "xds-bridge release"+flags+" --",
	).Replace(text)
}

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "xds-bridge",
		Short: "Keep service registries and an Istio mesh in sync",
		Long: "xds-bridge copies the endpoints of services between an Istio mesh and the\n" +
			"service registries that RPC frameworks use. It never deletes entries because a\n" +
			"read failed.\n\n" +
			"Exit codes:\n" +
			"  0         success\n" +
			"  1         there is a difference or a problem\n" +
			"  2         invalid usage or configuration\n" +
			"  4         a registry or the bridge is unreachable\n" +
			"  5         the guard holds deletions\n" +
			"  130, 143  interrupted\n\n" +
			"Connection and output flags can also be set by environment variables: --config\n" +
			"by XDS_BRIDGE_CONFIG, for example.",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.hangUp(cmd.Name()); err != nil {
				return err
			}
			return c.fromEnvironment(cmd.Flags())
		},
	}
	root.SetOut(c.out)
	root.SetErr(c.err)
	flags := root.PersistentFlags()
	flags.StringVarP(&c.file, "config", "f", defaultConfig, "the configuration file")
	flags.StringVar(&c.color, "color", "auto", "colour on standard output: auto, always or never")
	flags.StringVar(&c.logLevel, "log-level", "", "debug, info, warn or error; overrides log.level")
	flags.StringVar(&c.logFormat, "log-format", "", "text, json or gost; overrides log.format")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		unit := ""
		if strings.Contains(err.Error(), "missing unit in duration") {
			unit = "; add a unit, as in 5s"
		}
		return usage("%w%s; see %s --help", err, unit, cmd.CommandPath())
	})
	addShortcuts(c, root)
	root.AddCommand(
		runCommand(c), reloadCommand(c), validateCommand(c), planCommand(c), preflightCommand(c),
		statusCommand(c), whyCommand(c), holdsCommand(c), eventsCommand(c), approveCommand(c), denyCommand(c),
		adoptCommand(c), releaseCommand(c), purgeCommand(c), demoCommand(c), healthcheckCommand(c), versionCommand(c),
	)
	return root
}

// addShortcuts adds --check, --dry-run and --version, which users of other tools try without a
// command.
func addShortcuts(c *cli, root *cobra.Command) {
	var check, dry, version bool
	root.Flags().BoolVar(&check, "check", false, "same as xds-bridge validate")
	root.Flags().BoolVar(&dry, "dry-run", false, "same as xds-bridge run --dry-run")
	root.Flags().BoolVar(&version, "version", false, "same as xds-bridge version")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(cmd, args[0])
		case version:
			return printVersion(c, outputText)
		case check:
			return runValidate(c, validateOptions{files: []string{c.file}, output: outputText})
		case dry:
			return runBridge(cmd.Context(), c, runOptions{dryRun: true})
		default:
			return cmd.Help()
		}
	}
	root.Args = cobra.ArbitraryArgs
}

func unknownCommand(root *cobra.Command, command string) error {
	for _, distance := range []int{1, 2} {
		root.SuggestionsMinimumDistance = distance
		for _, near := range root.SuggestionsFor(command) {
			if distance == 1 || near[0] == command[0] { // two typos, but not run for man
				return usage("unknown command %q, did you mean %q?", command, near)
			}
		}
	}
	return usage("unknown command %q; see xds-bridge --help", command)
}

// fromEnvironment sets each flag that is not on the command line from the variable
// XDS_BRIDGE_ and the flag's name.
func (c *cli) fromEnvironment(flags *pflag.FlagSet) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		name := environmentName(f)
		if name == "" {
			c.warnUnread(f)
			return
		}
		value, set := c.env(name)
		if !set || f.Changed || first != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			first = usage("environment variable %s: %w", name, err)
		}
	})
	if first == nil && !slices.Contains([]string{"auto", "always", "never"}, c.color) {
		first = usage("--color must be auto, always or never (got %q)", c.color)
	}
	return first
}

// warnUnread warns of a variable that may have been set to prevent run from writing.
func (c *cli) warnUnread(f *pflag.Flag) {
	if _, set := c.env("XDS_BRIDGE_DRY_RUN"); set && f.Name == "dry-run" && !f.Changed {
		c.remark("warning: XDS_BRIDGE_DRY_RUN is ignored; use --dry-run")
	}
}

// environmentName returns the variable that sets a flag; empty for flags that select what is
// done, which must be on the command line.
func environmentName(f *pflag.Flag) string {
	switch f.Name {
	case "config", "color", "log-level", "log-format", "admin", "telemetry", "output", "timeout":
		return "XDS_BRIDGE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	}
	return ""
}

// program returns the program with the configuration of the flags.
func (c *cli) program() *app.Program {
	return &app.Program{
		File: c.file, Env: c.env, Build: app.ReadBuild(version), Hangup: c.hup,
		LogOutput: c.err, LogLevel: c.logLevel, LogFormat: c.logFormat,
		Remark: func(line string) { c.remark("%s", line) },
	}
}

// noArgs rejects arguments, with an error of one line.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s accepts no argument, found %q", cmd.Name(), args[0])
	}
	return nil
}

// oneArg requires exactly one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%s requires one %s, found %d arguments", cmd.Name(), what, len(args))
		}
		return nil
	}
}

// output is the format of what a command prints.
type output string

const (
	outputText output = "text"
	outputJSON output = "json"
)

// String implements pflag.Value.
func (o *output) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	if s != string(outputText) && s != string(outputJSON) {
		return fmt.Errorf("must be text or json (got %q)", s)
	}
	*o = output(s)
	return nil
}

// Type implements pflag.Value: the word for the value in help.
func (*output) Type() string { return "form" }

func outputFlag(cmd *cobra.Command, o *output) {
	*o = outputText
	cmd.Flags().VarP(o, "output", "o", "text or json")
}
