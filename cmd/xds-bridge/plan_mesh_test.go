package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestPlan_Mesh has a plan next to the bridge that serves the mesh: it
// requires neither the address nor an istiod, and says what it compares with.
func TestPlan_Mesh(t *testing.T) {
	t.Parallel()
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
	file := conf("")
	do(t, "plan", "-f", file).want(t, exitFindings, "2 to create")
	r := w.start(file)
	eventually(t, "plan compares with what was served", func() bool { return do(t, "plan", "-f", file).code == exitOK })
	r.stop()
	do(t, "plan", "-f", file).want(t, exitOK, "Nothing differs.")
}

// TestServed_Restart: mass deletions are held by default, also of
// what is served into a mesh, by a new process without the disk of the old one.
func TestServed_Restart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	parent := func(n int) string { return fmt.Sprintf("/dubbo/api.S%d/providers/", n) }
	provider := func(n int) string {
		return parent(n) + url.QueryEscape(fmt.Sprintf("tri://10.0.0.1:20001/api.S%d?interface=api.S%d&side=provider", n, n))
	}
	for n := range 40 {
		if err := w.zk.Put(provider(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	file := w.file("import.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, import: { keys: "off" } } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: "127.0.0.1:0", formats: [dubbo-interface] }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json, level: debug }
`, w.xds, w.zkAt, w.dir))
	r := w.start(file)
	eventually(t, "what is served is kept", func() bool { return do(t, "plan", "-f", file).code == exitOK })
	r.stop()
	for n := range 36 {
		w.zk.Delete(provider(n))
		w.zk.Delete(strings.TrimSuffix(parent(n), "/"))
	}
	held := do(t, "plan", "-f", file)
	held.want(t, exitFindings, "held", "kept for now: waiting: it is deleted with the last other entry of its group")
	if strings.Contains(held.out, "kept for now: : ") {
		t.Error("an entry stays without a reason")
	}
}
