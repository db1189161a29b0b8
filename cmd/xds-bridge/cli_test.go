package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/app"
	"github.com/xds-bridge/xds-bridge/internal/operation"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
)

func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

const smallest = "../../config/testdata/smallest.yaml"

func TestShortcuts(t *testing.T) {
	t.Parallel()
	do(t, "--check", "-f", smallest).want(t, exitOK, "smallest.yaml: valid")
	do(t, "--version").want(t, exitOK, "xds-bridge ")
	var b app.Build
	if err := json.Unmarshal([]byte(do(t, "version", "-o", "json").out), &b); err != nil || b.Go == "" {
		t.Errorf("%+v, %v", b, err)
	}
	do(t).want(t, exitOK, "Usage:")
	do(t, "completion", "bash").want(t, exitOK, "bash completion")
	do(t, "--dry-run", "-f", "/none.yaml").want(t, exitUsage, "/none.yaml: no such file")
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"rnu":                                    `xds-bridge: unknown command "rnu", did you mean "run"?`,
		"man":                                    `unknown command "man"; see xds-bridge --help`,
		"satus":                                  `unknown command "satus", did you mean "status"?`,
		"frobnicate":                             `unknown command "frobnicate"`,
		"run --onze":                             "unknown flag: --onze",
		"run now":                                `accepts no argument, found "now"`,
		"why":                                    "requires one service, found 0 arguments",
		"plan -o yaml":                           `must be text or json (got "yaml")`,
		"validate --color pink":                  `--color must be auto, always or never (got "pink")`,
		"run --log-level loud -f " + smallest:    `--log-level "loud"`,
		"run --log-format xml -f " + smallest:    `--log-format "xml"`,
		"status --admin 10.0.0.1:9901":           "only loopback is accepted",
		"demo -o json":                           "requires --once",
		"healthcheck --telemetry off":            "no probes there",
		"validate -f /none.yaml":                 "/none.yaml: no such file or directory; name the configuration with --config",
		"demo --once --mesh /none.yaml":          "--mesh: open /none.yaml",
		"preflight -f testdata/unsupported.yaml": "is not supported in this version",
	} {
		t.Run(line, func(t *testing.T) {
			r := do(t, strings.Fields(line)...)
			r.want(t, exitUsage, want)
			if r.out != "" {
				t.Errorf("standard output has %s", r.out)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("owner: shop\nregistriez: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, "validate", smallest, bad).want(t, exitUsage, "smallest.yaml: valid", bad+`:2:1: registriez: unknown key "registriez", did you mean "registries"?`)
	r := do(t, "validate", "-o", "json", bad)
	r.want(t, exitUsage)
	var v []verdict
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v[0].Valid || len(v[0].Errors) != 3 || v[0].Errors[2].Line != 2 {
		t.Errorf("%+v, %v", v, err)
	}
	do(t, "validate", "../../config/testdata/design.yaml").want(t, exitUsage,
		"tokenFile: secret file")
	do(t, "validate", "testdata/unsupported.yaml").want(t, exitUsage,
		`unsupported.yaml:9:67: bridges[1].select: allow and skipMutualTLS must be the same as in bridges[0]`,
		`bridges[3].listen: bridges[2] already listens there for "mesh"`,
		`bridges[4].to: a bridge from a mesh into a mesh is not supported in this version`)
}

func TestFlags_Environment(t *testing.T) {
	t.Parallel()
	doIn(t, map[string]string{"XDS_BRIDGE_CONFIG": smallest}, "validate").want(t, exitOK, "smallest.yaml: valid")
	doIn(t, map[string]string{"XDS_BRIDGE_CONFIG": "/none.yaml"}, "validate", "-f", smallest).want(t, exitOK)
	doIn(t, map[string]string{"XDS_BRIDGE_OUTPUT": "json"}, "version").want(t, exitOK, `"version":`)
	doIn(t, map[string]string{"XDS_BRIDGE_VERSION": "1.2", "XDS_BRIDGE_YES": "true"}, "--check", "-f", smallest).want(t, exitOK, "valid")
	doIn(t, map[string]string{"XDS_BRIDGE_OUTPUT": "xml"}, "version").want(t, exitUsage, "environment variable XDS_BRIDGE_OUTPUT", "must be text or json")
}

// What is done is said on the command line alone: nobody inherits it unseen.
func TestFlags_IgnoreEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	r := w.start(file)
	isInSync(t, file)
	doIn(t, map[string]string{"XDS_BRIDGE_OWNER": "shop", "XDS_BRIDGE_BRIDGE": "mesh-to-zk"}, "purge", "--yes", "-f", file).want(t, exitUsage)
	r.stop()
	w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.9")
	doIn(t, map[string]string{"XDS_BRIDGE_DRY_RUN": "true"}, "run", "--once", "-f", w.config(fileOptions{bridge: quick})).
		want(t, exitOK, "3 own entries", "XDS_BRIDGE_DRY_RUN is ignored")
	eventually(t, "it was written", func() bool { return strings.Contains(strings.Join(w.providers("api.Orders"), " "), "10.0.0.9") })
}

// SIGHUP from before a command is known ends any but run.
func TestHangUp(t *testing.T) {
	t.Parallel()
	hup := make(chan os.Signal, 1)
	hup <- syscall.SIGHUP
	var out buffer
	if code := execute(t.Context(), newCLI(&out, &out, lookup(nil), hup), []string{"version"}); code != 129 || out.String() != "" {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

func TestOnce_RefusesNacos(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "nacos.yaml")
	text := "owner: shop\nregistries:\n  mesh: { istiod: { address: \"127.0.0.1:1\" } }\n  n: { nacos: { servers: [\"http://127.0.0.1:2\"] } }\n" +
		"bridges:\n  - { name: a, from: mesh, to: n, formats: [dubbo-interface] }\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, "run", "--once", "-f", file).want(t, exitUsage, "what it wrote would go with it")
	do(t, "plan", "-f", file, "--timeout", "2s").want(t, exitUnreachable, "target n")
}

// A name that an outsider chose must not drive the terminal.
func TestTerminal_EscapesControls(t *testing.T) {
	t.Parallel()
	var out buffer
	c := newCLI(&out, &out, lookup(nil), nil)
	evil := "evil\x1b]0;owned\x07\x1b[2J\u202e.svc"
	d := admin.Document{
		Owner: evil, Time: time.Now(),
		Sources: []admin.Source{{Name: evil, Stale: evil, Skipped: []admin.Skipped{{Input: evil, Reason: evil}}}},
		Loops:   []bridge.Status{{Target: evil, Services: []bridge.ServiceStatus{{Service: "s\x1b", Detail: evil}}, Holds: []bridge.Hold{{Reason: evil}}}},
	}
	printStatus(c.terminal, d, d, serviceFilter{all: true})
	printWhy(c.terminal, admin.Why{Sources: []admin.Seen{{Source: evil, Keys: []string{evil}, Endpoints: []admin.Endpoint{{Address: evil}}}}})
	printFindings(c, []preflight.Finding{{Registry: evil, Check: evil, Outcome: preflight.Failed, Detail: evil, Fix: evil}})
	printPlan(c.terminal, &operation.Difference{Changes: []operation.Step{{Op: "create", Group: evil, New: evil}}})
	if s := out.String(); strings.ContainsAny(s, "\x1b\x07\u202e") || !strings.Contains(s, `evil\x1b]0;owned\a`) {
		t.Errorf("printed %q", s)
	}
}

// Status names what a source leaves out, with the reason, and of many the
// first.
func TestStatus_SkippedInputs(t *testing.T) {
	t.Parallel()
	var out buffer
	c := newCLI(&out, &out, lookup(nil), nil)
	s := admin.Source{Name: "zk"}
	for i := range 12 {
		s.Skipped = append(s.Skipped, admin.Skipped{Input: fmt.Sprintf("node-%02d", i), Reason: "has no port"})
	}
	d := admin.Document{Sources: []admin.Source{s}}
	printStatus(c.terminal, d, d, serviceFilter{})
	text := out.String()
	for _, want := range []string{"skipped of zk: node-00: has no port", "node-09", "skipped of zk: 2 more; see status -o json"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "node-10") {
		t.Errorf("more than ten:\n%s", text)
	}
}

func TestColor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		color string
		env   map[string]string
		want  bool
	}{
		"no terminal":     {"auto", nil, false},
		"always":          {"always", map[string]string{"NO_COLOR": "1"}, true},
		"never":           {"never", nil, false},
		"NO_COLOR":        {"auto", map[string]string{"NO_COLOR": "1"}, false},
		"a dumb terminal": {"auto", map[string]string{"TERM": "dumb"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			out := &terminal{out: &buffer{}, env: lookup(tc.env), color: tc.color}
			if got := strings.Contains(out.paint(red, "x"), "\x1b"); got != tc.want {
				t.Errorf("coloured: %v", got)
			}
		})
	}
}

// flagsPage is the reference of commands and flags, as Markdown.
func flagsPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Command line reference\n\nFor operators who call `xds-bridge`. Generated from the commands by `make golden`; do not edit.\n\n" + markdown(root.Long) +
		"\n\n`run` exits with 0 after a signal. After a second signal, and for any other interrupted command, the exit code is 130 or 143.\n")
	flags := func(f *pflag.FlagSet) {
		if !f.HasFlags() {
			return
		}
		b.WriteString("\n| flag | environment | default | meaning |\n|---|---|---|---|\n")
		f.VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			env, def := "", ""
			if name := environmentName(f); name != "" {
				env = "`" + name + "`"
			}
			if f.DefValue != "" {
				def = "`" + f.DefValue + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, env, def, f.Usage)
		})
	}
	b.WriteString("\n## Flags of every command\n")
	flags(root.PersistentFlags())
	b.WriteString("\n## xds-bridge without a command\n")
	flags(root.LocalNonPersistentFlags())
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		fmt.Fprintf(&b, "\n## xds-bridge %s\n\n%s\n", cmd.Use, markdown(cmp.Or(cmd.Long, cmd.Short+".")))
		flags(cmd.LocalNonPersistentFlags())
	}
	return b.String()
}

// markdown returns a help text with its tables, whose lines are indented, as blocks of text.
func markdown(help string) string {
	text := regexp.MustCompile(`(?m)(?:^  (?:[^-\n]|--).*\n)+`).ReplaceAllStringFunc(help+"\n", func(table string) string {
		return "\n```text\n" + table + "```\n"
	})
	return strings.TrimSuffix(strings.NewReplacer("\n\n\n", "\n\n", ":\n  - ", ":\n\n  - ").Replace(text), "\n")
}

func TestGeneratedReference(t *testing.T) {
	t.Parallel()
	got := flagsPage(newRoot(newCLI(&buffer{}, &buffer{}, lookup(nil), nil)))
	file := filepath.Join("..", "..", "docs", "reference", "flags.md")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%s is stale (%v); run make golden", file, err)
	}
}
