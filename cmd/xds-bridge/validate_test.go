package main

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestValidate_RulesFile: rules that data planes cannot follow are an error before the start.
func TestValidate_RulesFile(t *testing.T) {
	t.Parallel()
	dir := &world{t: t, dir: t.TempDir()}
	typo := dir.file("typo.yaml", "kind: DestinationRule\nspec:\n  host: a.zk.bridge.intern\n  subsets: [{ name: v1, labels: { version: v1 } }]\n")
	bad := dir.file("bad.yaml", "kind: DestinationRule\nspec: { host: a, trafficPolicy: { connectionPool: {} } }\n")
	good := dir.file("good.yaml", "kind: DestinationRule\nspec: { host: a.zk.bridge.internal, subsets: [{ name: v1, labels: { version: v1 } }] }\n")
	for _, tt := range []struct {
		rules string
		skip  bool
		code  int
		shows string
	}{
		{rules: good, code: exitOK, shows: "valid"},
		{rules: bad, code: exitUsage, shows: bad + `:2:33: DestinationRule of "a" is ignored: spec.trafficPolicy: only loadBalancer`},
		{rules: typo, code: exitOK, shows: "warning: " + typo + `:3:9: spec.host: no bridge serves the host "a.zk.bridge.intern" here: served hosts end in .zk.bridge.internal`},
		{rules: filepath.Join(dir.dir, "none.yaml"), code: exitUsage, shows: "rulesFile: open "},
		{rules: bad, skip: true, code: exitOK, shows: "valid"},
	} {
		file := dir.file("config.yaml", fmt.Sprintf(`
owner: shop
registries:
  mesh: { istiod: { import: { dataPlanes: true, rulesFile: %q } } }
  zk: { zookeeper: { servers: ["127.0.0.1:2181"] } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: ":15031", formats: [kratos] }
`, tt.rules))
		args := []string{"validate", file}
		if tt.skip {
			args = append(args, "--skip-files")
		}
		do(t, args...).want(t, tt.code, tt.shows)
	}
}
