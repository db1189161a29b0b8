package main

import (
	"fmt"
	"net/url"
	"slices"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// TestGuard_DeniedParent shows that after a restart a parent that
// may not be read keeps what came from it, and nothing else.
func TestGuard_DeniedParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := zkfake.New(zkfake.Options{})
	at, err := other.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	provider := func(name string) string {
		return "/dubbo/" + name + "/providers/" + url.QueryEscape("tri://10.0.0.1:20880/"+name+"?interface="+name+"&side=provider")
	}
	for _, name := range []string{"api.A", "api.B", "api.C"} {
		if err := w.zk.Put(provider(name), nil); err != nil {
			t.Fatal(err)
		}
	}
	file := w.file("config.yaml", fmt.Sprintf(`owner: shop
registries:
  zk: { zookeeper: { servers: [%q] } }
  zk2: { zookeeper: { servers: [%q] }, timing: { debounce: 1ms, retryMin: 10ms, retryMax: 100ms } }
bridges:
  - { name: copy, from: zk, to: zk2, formats: [dubbo-interface] %s }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json }
`, w.zkAt, at, quick, w.dir))
	has := func(want ...string) func() bool {
		return func() bool {
			var got []string
			for _, name := range []string{"api.A", "api.B", "api.C"} {
				if len(other.Children("/dubbo/"+name+"/providers")) > 0 {
					got = append(got, name)
				}
			}
			return slices.Equal(got, want)
		}
	}
	r := w.start(file)
	eventually(t, "all is copied", has("api.A", "api.B", "api.C"))
	isInSync(t, file)
	r.stop()
	if err := w.zk.SetACL("/dubbo/api.B/providers", []zkfake.ACL{{Perms: 0, Scheme: "world", ID: "anyone"}}); err != nil {
		t.Fatal(err)
	}
	w.zk.Delete(provider("api.A"))
	w.start(file)
	eventually(t, "what went goes", has("api.B", "api.C"))
}
