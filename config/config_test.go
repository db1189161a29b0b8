package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
)

func load(t *testing.T, file string) *config.Config {
	t.Helper()
	c, err := config.Load(file, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func environment(vars map[string]string) config.Lookup {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func parse(t *testing.T, text string, vars map[string]string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text), environment(vars))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func smallest(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/smallest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDesignFile(t *testing.T) {
	c := load(t, "testdata/design.yaml")
	m := c.Registries["mesh"].Istiod
	if m.Address != "istiod.istio-system.svc:15012" || m.TLS.ServerName != "istiod.istio-system.svc" || m.Mapping.From != "debug-xds" {
		t.Errorf("Load: mesh = %+v, want the address, TLS and mapping of the file", m)
	}
	if got := fmt.Sprint(m.Import.VIPs, m.Import.Allow); got != "240.64.0.0/12 [10.0.0.0/8]" {
		t.Errorf("Load: import = %s, want the networks of the file", got)
	}
	if z := c.Registries["zk"].ZooKeeper; z.Servers[0] != "127.0.0.1:2181" || z.SessionTimeout.Std() != 30*time.Second {
		t.Errorf("Load: zk = %+v, want the servers and timeout of the file", z)
	}
	if n := c.Registries["nacos"].Nacos; n.Servers[0] != "http://127.0.0.1:8848" || n.PasswordFile == "" {
		t.Errorf("Load: nacos = %+v, want the servers and password file of the file", n)
	}
	if b := c.Bridges[0]; b.Formats[0].Format != "dubbo-interface" || b.Select.Include[0] != "*.shop.svc.cluster.local" || b.Guard.Mode != "enforce" {
		t.Errorf("Load: bridges[0] = %+v, want format, select and guard of the file", b)
	}
	if b := c.Bridges[1]; b.Listen != ":15031" || b.To != "mesh" {
		t.Errorf("Load: bridges[1] = %+v, want listen :15031 into mesh", b)
	}
}

func TestLoad_Defaults(t *testing.T) {
	c := load(t, "testdata/smallest.yaml")
	m := c.Registries["mesh"].Istiod
	if k := m.Mapping; k.From != "auto" || k.Interval.Std() != 5*time.Second || k.Timeout.Std() != 10*time.Second ||
		k.MaxAnswer != 16<<20 || k.Grace.Std() != 10*time.Second || k.ConnectionGrace.Std() != 5*time.Minute {
		t.Errorf("Parse: mapping = %+v, want its defaults", k)
	}
	if m.Limits.MaxReceive != 64<<20 || m.Node.Type != "router" || m.Node.Namespace != "istio-system" || m.ExportAll || m.Insecure {
		t.Errorf("Parse: istiod = %+v, want its defaults", m)
	}
	if z := c.Registries["zk"].ZooKeeper; z.Lifetime != "persistent" || z.ACL != "open" {
		t.Errorf("Parse: zookeeper = %+v, want persistent and open", z)
	}
	if f := c.Bridges[0].Formats[0]; f.Root != "/dubbo" || f.Protocol != "tri" {
		t.Errorf("Parse: format = %+v, want /dubbo and tri", f)
	}
	if c.Bridges[0].Policy != "sync" || c.Bridges[0].Guard.Mode != "enforce" || c.Admin.Address != "127.0.0.1:9901" {
		t.Errorf("Parse: bridges[0] = %+v, want its defaults", c.Bridges[0])
	}
}

func TestMetadata_Mapping(t *testing.T) {
	c := parse(t, strings.Replace(smallest(t), "15010 }", "15010, mapping: { from: debug-http, "+
		"addresses: [10.0.0.1:15014, istiod:8080], interval: 1s, timeout: 2s, maxAnswer: 1MiB, grace: 3s, legacyKeys: true, connectionGrace: 4m, "+
		"kubernetes: { context: c, namespaces: [shop], keys: { label: l } } } }", 1), nil)
	got := fmt.Sprint(c.Registries["mesh"].Istiod.Mapping)
	if want := "{debug-http [10.0.0.1:15014 istiod:8080] 1s 2s 1MiB 3s true 4m0s { c [shop] {xds-bridge/keys l}}}"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBadFiles(t *testing.T) {
	raw, err := os.ReadFile("testdata/bad.txtar")
	if err != nil {
		t.Fatal(err)
	}
	name, input := "", ""
	for section := range strings.SplitSeq(string(raw), "\n-- ") {
		title, body, _ := strings.Cut(section, " --\n")
		if title != "want" {
			name, input = title, body
			continue
		}
		t.Run(name, func(t *testing.T) {
			text := input + "\n"
			if !strings.HasPrefix(text, "owner") {
				text = smallest(t) + text
			}
			_, err := config.Parse("bad.yaml", []byte(text), environment(nil))
			if err == nil {
				t.Fatal("Parse of a bad file = nil, want errors")
			}
			if got, want := err.Error(), strings.TrimSuffix(body, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if _, ok := errors.AsType[config.Errors](err); !ok {
				t.Errorf("Parse = %T, want Errors", err)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	base := smallest(t)
	for name, tc := range map[string]struct{ written, want string }{
		"a value":                   {`"${DIR}"`, "/data"},
		"within a text":             {`"/x${DIR}/${DIR}"`, "/x/data//data"},
		"a default":                 {`"${NONE:-/fallback}"`, "/fallback"},
		"an empty default":          {`"${NONE:-}"`, ""},
		"a default for empty":       {`"${EMPTY:-/fallback}"`, "/fallback"},
		"empty is set":              {`"${EMPTY}"`, ""},
		"escaped":                   {`"$${DIR}"`, "${DIR}"},
		"a dollar without braces":   {`"$DIR"`, "$DIR"},
		"not expanded twice":        {`"${TRICK}"`, "${DIR}"},
		"a value with an anchor":    {`&d /anchored`, "/anchored"},
		"a number stays as written": {`1.10`, "1.10"},
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, base+"state: { dir: "+tc.written+" }\n", map[string]string{"DIR": "/data", "EMPTY": "", "TRICK": "${DIR}"})
			if c.State.Dir != tc.want {
				t.Errorf("got %q, want %q", c.State.Dir, tc.want)
			}
		})
	}
}

func TestVariableOutsideText(t *testing.T) {
	c := parse(t, smallest(t)+"telemetry: { address: \"${PORT:-:1234}\" }\nstate: &s { dir: /a }\n", nil)
	if c.Telemetry.Address != ":1234" || c.State.Dir != "/a" {
		t.Errorf("Parse = %+v, want the values of the environment", c)
	}
}

func TestLoad_ByteOrderMark(t *testing.T) {
	if c := parse(t, "\ufeff"+smallest(t), nil); c.Owner == "" {
		t.Errorf("Parse of a file with a byte order mark = %+v, want its owner", c)
	}
}

func TestLoad_JSON(t *testing.T) {
	c := parse(t, `{"owner":"shop","registries":{"mesh":{"istiod":{"address":"i:15010"}},"zk":{"zookeeper":{"servers":["z:2181"]}}},
		"bridges":[{"name":"b","from":"mesh","to":"zk","formats":[{"format":"dubbo-interface","root":"/shop"}]}]}`, nil)
	if c.Bridges[0].Formats[0].Root != "/shop" || c.Bridges[0].Formats[0].Protocol != "tri" {
		t.Errorf("Parse: bridges[0] = %+v, want root /shop and tri", c.Bridges[0])
	}
}

func TestLoad_UnreadableFiles(t *testing.T) {
	_, err := config.Load("testdata/none.yaml", environment(nil))
	if want := "testdata/none.yaml: no such file or directory; name the configuration with --config"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err = config.Load("testdata", environment(nil)); err == nil {
		t.Error("Load of a directory = nil, want an error")
	}
}

func TestMissingSecretFiles(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: "istiod:15012", tls: { caFile: %[2]s }, tokenFile: %[1]s/token } }
  zk: { zookeeper: { servers: ["zk:2181"], user: u, passwordFile: %[2]s, tls: { certFile: %[1]s/c, keyFile: %[1]s/k } } }
bridges:
  - { name: a, from: mesh, to: zk, formats: [dubbo-interface] }
`, dir, empty)
	got := parse(t, text, nil).CheckFiles().Error()
	want := strings.ReplaceAll(`test.yaml:3:46: registries.mesh.istiod.tls.caFile: DIR/empty has no PEM certificate
test.yaml:3:46: registries.mesh.istiod.tokenFile: secret file: open DIR/token: no such file or directory; put the secret there, or name another file
test.yaml:4:44: registries.zk.zookeeper.passwordFile: secret file DIR/empty is empty; put the secret there, or name another file
test.yaml:4:44: registries.zk.zookeeper.tls.certFile: open DIR/c: no such file or directory; put a PEM certificate and its key there`, "DIR", dir)
	if stripColumns(got) != stripColumns(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// stripColumns removes the columns, which depend on the length of a temporary
// directory's name.
func stripColumns(s string) string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		parts := strings.SplitN(line, ":", 4)
		out = append(out, parts[0]+":"+parts[1]+":"+parts[3])
	}
	return strings.Join(out, "\n")
}

func TestSecret_TrimsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("eyJ.x.y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := config.ReadSecret(file)
	if err != nil || s.Reveal() != "eyJ.x.y" {
		t.Errorf("ReadSecret = %q, %v, want eyJ.x.y", s.Reveal(), err)
	}
}

func TestSecret_NotPrinted(t *testing.T) {
	s := config.Secret("hunter2")
	var out bytes.Buffer
	fmt.Fprintf(&out, "%v %s %+v %#v %q %v", s, s, s, s, s, struct{ S config.Secret }{s})
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", s)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", s)
	if err := json.NewEncoder(&out).Encode(map[string]any{"s": s}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hunter2") || strings.Count(out.String(), "redacted") != 9 {
		t.Errorf("a secret prints as %s, want it hidden", out.String())
	}
}

func TestSizesAndDurations(t *testing.T) {
	for written, want := range map[string]string{"64MiB": "64MiB", "1024": "1KiB", "1500B": "1500B", "2GiB": "2GiB", "-1": "", "1MB": "", "": "", "9999999999GiB": "", "0": "0B"} {
		var s config.Size
		err := s.UnmarshalText([]byte(written))
		if (err != nil) != (want == "") || err == nil && s.String() != want {
			t.Errorf("%q: got %s, %v, want %q", written, s, err, want)
		}
	}
	for written, ok := range map[string]bool{"1m30s": true, "0s": true, "0": true, "30": false, "-1s": false, "": false, "1d": false} {
		var d config.Duration
		if err := d.UnmarshalText([]byte(written)); (err == nil) != ok {
			t.Errorf("UnmarshalText(%q) = %v, want valid %t", written, err, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range []string{"testdata/design.yaml", "testdata/smallest.yaml", "testdata/bad.txtar"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("a: &a [*a]\nbridges: *a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("fuzz.yaml", data, environment(nil))
		if err == nil && len(c.Validate()) > 0 {
			t.Errorf("Validate of a file that was parsed = %v, want nothing", c.Validate())
		}
	})
}

// update reports whether goldens are to be rewritten, as by make golden.
func update() bool { return os.Getenv("UPDATE_GOLDEN") != "" }

// annotated returns the whole file with which the reference begins.
func annotated(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/annotated.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestReference_WholeFile: the file is valid, without warnings, and has each section of the
// configuration.
func TestReference_WholeFile(t *testing.T) {
	c, err := config.Parse("annotated.yaml", []byte(annotated(t)), environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	if warnings := c.Warnings(); len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	if missing, err := config.MissingSections([]byte(annotated(t))); err != nil || len(missing) > 0 {
		t.Errorf("the file has no section %s (%v)", strings.Join(missing, ", "), err)
	}
}

func TestGeneratedDocuments(t *testing.T) {
	schema, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for file, got := range map[string]string{"config.schema.json": string(schema), "config.md": config.Reference(annotated(t))} {
		path := filepath.Join("..", "docs", "reference", file)
		if update() {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || string(want) != got {
			t.Errorf("%s is stale (%v); run make golden", path, err)
		}
	}
}

// TestLoad_SizeLimit shows that oversized and deeply nested files are refused
// before they use much memory.
func TestLoad_SizeLimit(t *testing.T) {
	t.Parallel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, text := range []string{strings.Repeat("[", 20000), strings.Repeat("{a: ", 20000), strings.Repeat("- ", 20000), strings.Repeat("&a ", 20000)} {
		if _, err := config.Parse("x", []byte("owner: "+text), environment(nil)); err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("Parse(%.6s…) = %v, want that it is nested too deep", text, err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 256 {
		t.Errorf("four bad files cost %d MiB, want at most 256", n)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(pipe, environment(nil)); err == nil || !strings.Contains(err.Error(), "must be a regular file") {
		t.Errorf("Load of a pipe = %v, want that it must be a regular file", err)
	}
}

// TestPasswordsInPlaintext shows that a password does not cross a network in
// plaintext unless the file allows it.
func TestPasswordsInPlaintext(t *testing.T) {
	const file = `owner: shop
registries:
  zk:    { zookeeper: { servers: ["127.0.0.1:2181", "%s:2181"], user: bridge, passwordFile: /etc/pw %s } }
  nacos: { nacos: { servers: ["http://localhost:8848", "http://%[1]s:8848"], username: nacos, passwordFile: /etc/pw %[2]s } }
bridges:
  - { name: a, from: zk, to: nacos, formats: [dubbo-interface] }
`
	for name, c := range map[string]struct {
		host, more string
		errors     int
	}{
		"to another machine":  {"prod.example", "", 2},
		"where it is allowed": {"prod.example", ", insecure: true", 0},
		"to this machine":     {"[::1]", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("x.yaml", fmt.Appendf(nil, file, c.host, c.more), environment(nil))
			if n := strings.Count(fmt.Sprint(err), "in plaintext"); n != c.errors || c.errors == 0 && err != nil {
				t.Errorf("%d errors, want %d: %v", n, c.errors, err)
			}
		})
	}
}

// TestSchema_FormatDefaults shows that the handwritten sentences about root and
// protocol name the defaults of every format.
func TestSchema_FormatDefaults(t *testing.T) {
	reference := config.Reference(annotated(t))
	row := func(key string) string {
		_, after, _ := strings.Cut(reference, "| `bridges[].formats[]."+key+"` |")
		line, _, _ := strings.Cut(after, "\n")
		return line
	}
	for _, d := range formats.All() {
		if !strings.Contains(row("format"), d.Name) {
			t.Errorf("the row of format does not allow %s: %s", d.Name, row("format"))
		}
		if d.Root != "" && !regexp.MustCompile(regexp.QuoteMeta(d.Root)+` for [^,]*\b`+d.Name).MatchString(row("root")) {
			t.Errorf("the row of root does not say %s for %s: %s", d.Root, d.Name, row("root"))
		}
		name := d.Name
		if d.Lookup != format.ByName {
			name = "Dubbo"
		}
		if !regexp.MustCompile(d.Protocol + ` for [^,]*\b` + name).MatchString(row("protocol")) {
			t.Errorf("the row of protocol does not say %s for %s: %s", d.Protocol, name, row("protocol"))
		}
	}
}
