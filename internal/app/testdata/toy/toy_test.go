package app

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/plain"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestToy bridges one toy into another.
func TestToy(t *testing.T) {
	from, to := kind.ToyTarget("a"), kind.ToyTarget("b")
	codec, err := plain.Format().Forms["toy"](format.Options{Root: "/plain", Protocol: "tcp"})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := codec.Encode(&registry.Service{
		Name: "orders", Application: "orders", Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 8080}},
	})
	if err != nil || len(entries) != 1 {
		t.Fatalf("Encode = %v, %v", entries, err)
	}
	from.Set(registry.Stored{Entry: entries[0]})
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := `owner: shop
registries:
  a: { toy: { name: a } }
  b: { toy: { name: b } }
bridges: [{ name: copy, from: a, to: b, formats: [plain] }]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Program{File: file, Env: noEnv, LogOutput: io.Discard}
	if _, err := p.RunOnce(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	got := to.Entries()
	if len(got) != 1 || got[0].Key != entries[0].Key || got[0].Group.String() != entries[0].Group.String() {
		t.Fatalf("the toy holds %v, want %v with a mark", got, entries)
	}
	if m, err := metadata.MarkOf(got[0]); err != nil || m.Owner != metadata.OwnerMark("shop") {
		t.Errorf("MarkOf = %v, %v", m, err)
	}
	findings, err := p.Preflight(t.Context(), time.Minute)
	if err != nil || len(findings) != 2 {
		t.Errorf("Preflight = %v, %v", findings, err)
	}
}
