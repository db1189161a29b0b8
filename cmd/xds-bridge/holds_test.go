package main

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
)

// Each command is on a line of its own, and none denies what is denied already.
func TestPrintHolds_Commands(t *testing.T) {
	t.Parallel()
	held := admin.Hold{Target: "zk", Hold: bridge.Hold{ID: "a-1", Bridge: "b", Count: 1}}
	denied := admin.Hold{Target: "zk", Hold: bridge.Hold{ID: "a-2", Bridge: "b", Count: 2, Denied: true}}
	for name, tt := range map[string]struct {
		holds []admin.Hold
		want  []string
	}{
		"one":          {[]admin.Hold{held}, []string{"approve xds-bridge approve -f x a-1", "deny xds-bridge deny -f x a-1"}},
		"a denied one": {[]admin.Hold{denied}, []string{"approve xds-bridge approve -f x a-2"}},
		"both": {[]admin.Hold{held, denied}, []string{
			"approve xds-bridge approve -f x a-1", "deny xds-bridge deny -f x a-1",
			"approve xds-bridge approve -f x a-2",
			"approve xds-bridge approve -f x a-1 a-2", "deny xds-bridge deny -f x a-1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			printHolds(&terminal{out: &out, color: "never"}, tt.holds, " -f x")
			var got []string
			for line := range strings.Lines(out.String()) {
				if line = strings.Join(strings.Fields(line), " "); strings.Contains(line, "xds-bridge") {
					got = append(got, line)
				}
			}
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("commands:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}
