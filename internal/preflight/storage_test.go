package preflight

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
)

// TestCheckStorage shows that the check names each directory that cannot be written.
func TestCheckStorage(t *testing.T) {
	cfg, err := config.Parse("a.yaml", []byte("owner: shop\nregistries:\n  zk: { zookeeper: { servers: [127.0.0.1:1] } }\n  to: { zookeeper: { servers: [127.0.0.1:2] } }\nbridges:\n  - { name: b, from: zk, to: to, formats: [dubbo-interface] }\n"),
		func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	cfg.State.Dir, cfg.Audit.File = t.TempDir(), filepath.Join(t.TempDir(), "audit.ndjson")
	if errs := StorageErrors(cfg); len(errs) > 0 {
		t.Error(errs)
	}
	if left, _ := filepath.Glob(filepath.Join(cfg.State.Dir, ".*")); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
	cfg.State.Dir, cfg.Audit.File = filepath.Join(t.TempDir(), "nowhere"), filepath.Join(t.TempDir(), "nowhere", "audit.ndjson")
	errs := StorageErrors(cfg)
	if len(errs) != 2 || !strings.Contains(errs[0].Error(), "state.dir") || !strings.Contains(errs[1].Error(), "audit.file") {
		t.Errorf("CheckStorage() = %v, want one of each", errs)
	}
}
