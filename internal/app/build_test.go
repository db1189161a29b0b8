package app

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// The guard of a file that says nothing is the one that the bridge documents.
func TestGuardDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("../../config/testdata/smallest.yaml", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := guardOf(cfg.Bridges[0].Guard), bridge.DefaultGuard(); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestBuild_RefusedFile shows that a file of which no runtime can be made
// leaves what makes runtimes as it was.
func TestBuild_RefusedFile(t *testing.T) {
	t.Parallel()
	e := newEnsembles(t)
	p := e.program("shop", "")
	b, err := newBuilder(p, buildOptions{errorsOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.runtime.close()
	cfg, tables := b.cfg, maps.Clone(b.sourceTables)
	e.name = "other"
	refused, err := e.program("shop", ", user: shop, passwordFile: nowhere").load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.next(refused, nil); err == nil {
		t.Fatal("next without the password = nil, want an error")
	}
	if b.cfg != cfg || b.runtime.cfg != cfg || !maps.Equal(b.sourceTables, tables) {
		t.Errorf("after a refused file: owner %s, tables %v, want the builder unchanged", b.cfg.Owner, slices.Collect(maps.Keys(b.sourceTables)))
	}
}

// ensembles are two ZooKeepers, the first of which has a provider.
type ensembles struct {
	t        *testing.T
	from, to *zkfake.Server
	address  [2]string
	name     string // of the first
}

func newEnsembles(t *testing.T) *ensembles {
	t.Helper()
	e := &ensembles{t: t, name: "zk", from: zkfake.New(zkfake.Options{}), to: zkfake.New(zkfake.Options{})}
	for i, server := range []*zkfake.Server{e.from, e.to} {
		var err error
		if e.address[i], err = server.Listen(t.Context(), "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
	}
	provider := url.QueryEscape("tri://10.0.0.1:20880/api.Orders?interface=api.Orders&side=provider")
	if err := e.from.Put("/dubbo/api.Orders/providers/"+provider, nil); err != nil {
		t.Fatal(err)
	}
	return e
}

// program returns a program that copies the first into the second, with more
// settings of the second.
func (e *ensembles) program(owner, more string) *Program {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "config.yaml")
	text := fmt.Sprintf(`owner: %[1]s
registries:
  %[4]s: { zookeeper: { servers: [%[2]q] } }
  zk2: { zookeeper: { servers: [%[3]q] %[5]s }, timing: { retryMin: 10ms, retryMax: 100ms } }
bridges:
  - { name: copy, from: %[4]s, to: zk2, formats: [dubbo-interface] }
`, owner, e.address[0], e.address[1], e.name, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return &Program{File: file, Env: noEnv, LogOutput: io.Discard}
}
