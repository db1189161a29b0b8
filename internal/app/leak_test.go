package app

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"weak"
)

// TestReload_ReleasesRuntimes reloads a rule eight times: earlier runtimes are released, so that a
// process does not grow with each reload.
func TestReload_ReleasesRuntimes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := func(i int) string {
		return fmt.Sprintf(`owner: o
registries:
  mesh: { istiod: { address: "127.0.0.1:1", mapping: { from: none } } }
  zk: { zookeeper: { servers: ["127.0.0.1:1"] } }
bridges:
  - { name: a, from: mesh, to: zk, formats: [dubbo-interface], names: [{ host: h%d.x.svc.cluster.local, interface: a.B }] }
`, i)
	}
	write := func(i int) {
		if err := os.WriteFile(file, []byte(text(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	p := &Program{File: file, Env: func(string) (string, bool) { return "", false }, LogOutput: io.Discard}
	b, err := newBuilder(p, buildOptions{errorsOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	conns := func(r *runtime) (all []*targetConnection) {
		for _, s := range r.targets {
			all = append(all, s.targetConnection)
		}
		return all
	}
	var old []weak.Pointer[runtime]
	for i := 1; i <= 8; i++ {
		write(i)
		cfg, err := p.usableConfig()
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, weak.Make(b.runtime))
		if b, err = b.next(cfg, conns(b.runtime)); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		goruntime.GC()
	}
	alive := 0
	for _, w := range old {
		if w.Value() != nil {
			alive++
		}
	}
	if alive > 0 {
		t.Errorf("%d of %d earlier runtimes are still reachable", alive, len(old))
	}
	goruntime.KeepAlive(b)
	b.runtime.close()
}
