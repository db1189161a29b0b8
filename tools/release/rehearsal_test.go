package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/modfile"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// TestRehearsal_FreshApplication rehearses a release. An application outside the repository has the
// go.mod and the program of its framework's page. It fetches the plugin only from the module proxy of
// the release, and a call finds a server through a registry.
func TestRehearsal_FreshApplication(t *testing.T) {
	if testing.Short() {
		t.Skip("downloads and builds every framework: make rehearsal runs it")
	}
	dist := filepath.Join(t.TempDir(), "dist")
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if err := run(t.Context(), []string{"-version", next, "-source", commitOfThisTree(t), "-out", dist, "-platforms", platform}, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Run("the binary knows its version and has its modules listed", func(t *testing.T) { checkBinary(t, dist) })

	zookeeper := zkfake.New(zkfake.Options{})
	t.Cleanup(func() { _ = zookeeper.Close() })
	address, err := zookeeper.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	environment := fresh(t, dist)
	for _, framework := range []string{"grpc", "kratos", "hertz", "kitex", "gozero", "gokit", "dubbogo"} {
		t.Run(framework, func(t *testing.T) {
			a := application{framework: framework, dir: t.TempDir(), environment: environment}
			a.write(t, filepath.Join(dist, "repository"))
			a.build(t, read(t, filepath.Join(dist, "go.sum")))
			a.try(t, "zookeeper://"+address)
			for _, version := range otherGoVersions(t) {
				a.run(t, "env", "GOTOOLCHAIN=go"+version+".0", "go", "build", "-o", os.DevNull, ".")
			}
		})
	}
	for _, version := range otherGoVersions(t) {
		a := application{dir: filepath.Join(dist, "repository"), environment: environment}
		a.run(t, "env", "GOTOOLCHAIN=go"+version+".0", "go", "build", "./...")
	}
}

func checkBinary(t *testing.T, dist string) {
	t.Helper()
	binary := filepath.Join(dist, "xds-bridge_"+next+"_"+runtime.GOOS+"_"+runtime.GOARCH)
	out, err := command(t.Context(), dist, nil, binary, "version")
	if err != nil || !strings.Contains(out, next) {
		t.Errorf("%s, %v", out, err)
	}
	bom := read(t, binary+".cdx.json")
	for _, part := range []string{root + "@" + next, "google.golang.org/grpc@v", "golang/std@"} {
		if !strings.Contains(bom, part) {
			t.Errorf("the SBOM has no %s", part)
		}
	}
}

// fresh returns the environment of a user who gets this repository's modules only from the release.
// Other modules come from earlier downloads and from the configured proxies.
func fresh(t *testing.T, dist string) []string {
	t.Helper()
	set := func(name string) string {
		value, err := command(t.Context(), ".", nil, "go", "env", name)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	downloaded := filepath.Join(set("GOMODCACHE"), "cache", "download")
	return []string{
		"GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "GOWORK=off",
		"GOPROXY=file://" + filepath.Join(dist, "proxy") + ",file://" + downloaded + "," + set("GOPROXY"),
		"GONOSUMDB=" + root, "GONOPROXY=none", "GOPRIVATE=",
	}
}

// otherGoVersions returns the supported minor versions except that of this Go.
func otherGoVersions(t *testing.T) (others []string) {
	t.Helper()
	row := regexp.MustCompile(`(?m)^\| Go \| ([\d., ]+) \|`).FindStringSubmatch(read(t, "../../docs/compatibility.md"))
	if row == nil {
		t.Fatal("docs/compatibility.md names no versions of Go")
	}
	for version := range strings.SplitSeq(row[1], ", ") {
		if !strings.HasPrefix(runtime.Version()+".", "go"+version+".") {
			others = append(others, version)
		}
	}
	return others
}

// application is an application of a framework.
type application struct {
	framework   string
	dir         string
	environment []string
}

func (a *application) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), a.dir, a.environment, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// write copies go.mod from the framework's page, and the program from the plugin's quickstart.
func (a *application) write(t *testing.T, repository string) {
	t.Helper()
	page := read(t, filepath.Join(repository, "docs", "plugins", a.framework+".md"))
	_, rest, _ := strings.Cut(page, "```gomod\n")
	mod, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page shows no go.mod")
	}
	program := read(t, filepath.Join(repository, "plugins", a.framework, "quickstart", "main.go"))
	for name, text := range map[string]string{"go.mod": mod, "main.go": program} {
		if err := write(filepath.Join(a.dir, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// build checks that the page's go.mod is sufficient, and that the linked modules are the released
// ones.
func (a *application) build(t *testing.T, sums string) {
	t.Helper()
	before := direct(t, filepath.Join(a.dir, "go.mod"))
	a.run(t, "go", "mod", "tidy")
	if after := direct(t, filepath.Join(a.dir, "go.mod")); after != before {
		t.Errorf("go.mod requires\n%sand not\n%s", after, before)
	}
	a.run(t, "go", "vet", ".")
	a.run(t, "go", "build", "-o", "app", ".")
	built, err := buildinfo.ReadFile(filepath.Join(a.dir, "app"))
	if err != nil {
		t.Fatal(err)
	}
	ours := 0
	for _, m := range built.Deps {
		if strings.HasPrefix(m.Path+"/", root+"/") {
			ours++
			if !strings.Contains(sums, m.Path+" "+next+" "+m.Sum+"\n") || m.Version != next || m.Replace != nil {
				t.Errorf("%s %s %s is linked but not released", m.Path, m.Version, m.Sum)
			}
		}
	}
	if ours < 2 {
		t.Errorf("%d modules of the release are linked", ours)
	}
}

// direct returns the direct requirements of a go.mod.
func direct(t *testing.T, name string) string {
	t.Helper()
	file, err := modfile.Parse(name, []byte(read(t, name)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, r := range file.Require {
		if !r.Indirect {
			lines.WriteString(r.Mod.String() + "\n")
		}
	}
	return lines.String()
}

// try starts a server of the application, calls it by a client, and stops it.
func (a *application) try(t *testing.T, registry string) {
	t.Helper()
	if a.framework == "dubbogo" {
		registry = "xdsbridge-" + registry // dubbo-go has its own registry of that name
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	app := filepath.Join(a.dir, "app")
	if out, err := command(ctx, a.dir, nil, app); err == nil || !strings.Contains(err.Error(), "exit status 2\nusage: ") {
		t.Errorf("without arguments: %s, %v", out, err)
	}
	var said bytes.Buffer
	server := exec.CommandContext(ctx, app, "serve", registry+"?identity=one", freeAddress(t))
	server.Dir, server.Stdout, server.Stderr = a.dir, &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	answered := regexp.MustCompile(`greeter (is SERVING|says (200 )?"?hello)`)
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		out, err := command(ctx, a.dir, nil, app, "call", registry)
		if err == nil && answered.MatchString(out) {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the client: %s, %v", out, err)
		case <-ticker.C:
		}
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server: %v\n%s", err, said.Bytes())
	}
}

// freeAddress returns a loopback address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
