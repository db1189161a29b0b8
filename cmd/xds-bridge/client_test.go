package main

import (
	"os"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/admin/client"
)

// Whoever edits a file looks at what runs, and a probe must not end it.
func TestClient_InvalidFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick, file: "reload: { interval: 0s }"})
	r := w.start(file)
	eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
	telemetry := []string{"--telemetry", r.telemetry}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wrong := w.file("wrong.yaml", strings.Replace(string(whole), "from: mesh", "form: mash", 1)+"\nnonsense: 1\n")
	cut := w.file("cut.yaml", string(whole)+"\nregistries: {{\n")
	at := "unix:" + w.dir + "/a"
	for _, args := range [][]string{
		{"status", "-f", wrong},
		{"events", "-f", wrong},
		{"holds", "-f", wrong},
		{"why", orders, "-f", wrong},
		{"status", "-f", cut, "--admin", at},
		{"holds", "-f", cut, "--admin", at, "--owner", "shop"},
		append([]string{"healthcheck", "-f", wrong}, telemetry...),
	} {
		do(t, args...).want(t, exitOK)
	}
	do(t, "approve", "0000", "-f", wrong).want(t, exitFindings, "no such hold")
	do(t, "reload", "-f", wrong).want(t, exitOK, "nothing differs") // of its own file, which is right
	do(t, "approve", "0000", "-f", cut).want(t, exitUsage, "cut.yaml does not name the owner of the bridge; set --owner or --admin")
	byDefault := do(t, "status", "-f", cut) // who listens at the default ports of this machine is not this test's
	byDefault.want(t, byDefault.code, "warning: ", "cut.yaml", "using the default address 127.0.0.1:9901")
	byDefault = do(t, "healthcheck", "-f", cut)
	if byDefault.code != exitOK {
		byDefault.want(t, exitUnreachable, "9902")
	}
	do(t, "status", "-f", file, "--admin", r.telemetry).want(t, exitUnreachable, r.telemetry+" has no status API", "admin.address instead of telemetry.address")
	do(t, "status", "-f", file, "--timeout", "5").want(t, exitUsage, `"5"`, "add a unit, as in 5s")
	do(t, "status", "-f", w.dir+"/none.yaml").want(t, exitUsage, "none.yaml", "--config")
}

// Of two bridges on one machine the file says which is meant.
func TestClient_ForeignOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
	other := w.ownedBy("bank", "")
	const says = `the bridge that runs here has owner "shop"; `
	for _, command := range [][]string{{"status"}, {"holds"}, {"events"}, {"why", orders}, {"approve", "0000"}, {"deny", "0000"}} {
		r := do(t, append(command, "-f", other)...)
		r.want(t, exitUsage, says, `bank.yaml has owner "bank"; use that bridge's configuration with --config, or set --owner`)
		if r.out != "" {
			t.Errorf("%s shows %s", command[0], r.out)
		}
	}
	do(t, "status", "-f", other, "--owner", "shop").want(t, exitOK, "owner shop")
	do(t, "status", "-f", file, "--owner", "bank").want(t, exitUsage, says+"set --owner to the owner of the bridge that you mean")
}

// What holds prints is pasted into a shell.
func TestClient_PrintedCommands(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		file string
		o    client.Options
	}{
		"":                                {defaultConfig, client.Options{}},
		" -f a.yaml":                      {"a.yaml", client.Options{}},
		` -f 'my bridge'\''s.yaml'`:       {"my bridge's.yaml", client.Options{}},
		" --admin '[::1]:9901' --owner s": {defaultConfig, client.Options{Address: "[::1]:9901", Owner: "s"}},
	} {
		if got := (&cli{file: c.file}).sameBridge(c.o); got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
}
