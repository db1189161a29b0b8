package main

import (
	"fmt"
	"net/url"
	"testing"
)

// TestPlanIntoAMesh has a plan beside the bridge that serves the mesh: it
// needs neither the address nor an istiod, and says what it compares with.
func TestPlanIntoAMesh_A74(t *testing.T) {
	w := newWorld(t)
	provider := "/dubbo/api.Greeter/providers/" + url.QueryEscape("tri://10.0.0.1:20001/api.Greeter?interface=api.Greeter&side=provider")
	if err := w.zk.Put(provider, nil); err != nil {
		t.Fatal(err)
	}
	conf := func(state string) string {
		return w.file("import.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, import: { keys: "off" } } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: "127.0.0.1:0", formats: [dubbo-interface] }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json, level: debug }
%s`, w.xds, w.zkAt, w.dir, state))
	}
	do(t, "plan", "-f", conf("")).want(t, exitFindings, "2 to create", "everything counts as new", "with state.dir")
	file := conf(fmt.Sprintf("state: { dir: %q }", t.TempDir()))
	do(t, "plan", "-f", file).want(t, exitFindings, "2 to create", "everything counts as new")
	r := w.start(file)
	eventually(t, "plan compares with what was served", func() bool { return do(t, "plan", "-f", file).code == exitOK })
	r.stop()
	do(t, "plan", "-f", file).want(t, exitOK, "Nothing differs.")
}
