package config_test

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
)

// TestWarnings shows that valid settings that are rarely meant are reported.
func TestWarnings(t *testing.T) {
	base := smallest(t)
	formats := func(with string) string {
		changed := strings.Replace(base, "formats: [dubbo-interface]", "formats: [{ format: dubbo-interface, "+with+" }]", 1)
		if changed == base {
			t.Fatal(base)
		}
		return changed
	}
	for name, tt := range map[string]struct{ text, want string }{
		"a protocol of a format":  {formats("protocol: dubo"), `bridges[0].formats[0].protocol: no framework knows the protocol "dubo"; did you mean "dubbo"?`},
		"a protocol of a rule":    {formats("rules: [{ port: 1, protocol: tir }]"), ""}, // two letters: not close enough to be sure
		"a protocol of one's own": {formats("protocol: acme"), ""},
		"a share that fits":       {strings.Replace(base, "formats: [dubbo-interface]", "formats: [dubbo-interface], guard: { share: 0.5 }", 1), ""},
		"a share of 0":            {strings.Replace(base, "formats: [dubbo-interface]", "formats: [dubbo-interface], guard: { share: 0 }", 1), "bridges[0].guard.share: 0 holds no deletion"},
		"two bridges that write the same": {
			base + "  - { name: again, from: mesh, to: zk, formats: [dubbo-interface] }\n", `bridges[1]: writes the same entries as bridges[0] "mesh-to-zk"`,
		},
		"two bridges of different services": {base + "  - { name: again, from: mesh, to: zk, formats: [dubbo-interface], select: { include: [\"*.shop\"] } }\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(t, tt.text, nil).Warnings()
			if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0].Error(), tt.want)) {
				t.Errorf("%v, want %s", got, tt.want)
			}
		})
	}
}

func TestWarnings_Percentage(t *testing.T) {
	_, err := config.Parse("c.yaml", []byte(strings.Replace(smallest(t), "formats: [dubbo-interface]", "formats: [dubbo-interface], guard: { share: 30% }", 1)), nil)
	if err == nil || !strings.Contains(err.Error(), `must be a number within range (got "30%"); write 0.3`) {
		t.Errorf("Parse = %v, want how to write the share", err)
	}
}
