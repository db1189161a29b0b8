package main

import (
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
)

func clientFlags(cmd *cobra.Command, o *app.ClientOptions) {
	cmd.Flags().StringVar(&o.Address, "admin", "", "host:port of the running bridge's status API; by default what the configuration says")
	cmd.Flags().StringVar(&o.Owner, "owner", "", "the owner of the bridge that is asked; by default what the configuration says")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 10*time.Second, "how long to wait for an answer")
}

// sameBridge returns the flags by which another command asks the same bridge,
// with a space before each.
func (c *cli) sameBridge(o app.ClientOptions) string {
	file := c.file
	if file == defaultConfig {
		file = ""
	}
	var flags strings.Builder
	for _, f := range []struct{ name, value string }{{"-f", file}, {"--admin", o.Address}, {"--owner", o.Owner}} {
		if f.value != "" {
			flags.WriteString(" " + f.name + " " + shellWord(f.value))
		}
	}
	return flags.String()
}

// shellWord returns a text as a shell takes it for one word.
func shellWord(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-:@%+=,", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
