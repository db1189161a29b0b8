package main

import (
	"cmp"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build says what this binary is.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Date     string `json:"date"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// thisBuild reads what the linker noted.
func thisBuild() build {
	b := build{Version: "unknown", Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(version, b.Version)
		return b
	}
	if b.Version = cmp.Or(version, info.Main.Version); b.Version == "" || b.Version == "(devel)" {
		b.Version = "development"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		}
	}
	return b
}

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
	b := thisBuild()
	if o == outputJSON {
		return c.document(b)
	}
	c.say("xds-bridge %s (revision %s, %s, %s, %s)", b.Version, orDash(b.Revision), orDash(b.Date), b.Go, b.Platform)
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
