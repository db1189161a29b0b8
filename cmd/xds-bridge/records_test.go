package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

// TestServed_ReadOnlyRegistry: a bridge into a mesh works without the right
// to keep records. preflight says what is lost, and fails nothing.
func TestServed_ReadOnlyRegistry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.zk.Put("/dubbo/api.A/providers/"+url.QueryEscape("tri://10.0.0.1:20001/api.A?interface=api.A&side=provider"), nil); err != nil {
		t.Fatal(err)
	}
	listen := porttest.Address(t)
	file := w.importConfig(listen, "")
	do(t, "preflight", "-f", file).want(t, exitOK, "√ records in zk")
	if slices.Contains(w.zk.Paths("/"), "/xds-bridge/shop/served") {
		t.Error("preflight left something")
	}
	w.zk.Delete("/xds-bridge/shop")
	w.zk.Delete("/xds-bridge")
	if err := w.zk.SetACL("/", zkfake.WorldACL(zkfake.PermRead)); err != nil {
		t.Fatal(err)
	}
	do(t, "preflight", "-f", file).want(t, exitOK, "‼ records in zk", "after a restart, all served entries count as new", "create, write and delete below /xds-bridge/shop")
	var first []string
	for range 2 { // a restart serves it again
		r := w.start(file)
		eventually(t, "it is served", func() bool { first = servedAt(t, listen); return len(first) == 1 })
		if want := "api.x-a.k0-0-tri.zk.bridge.internal:50051=1"; first[0] != want {
			t.Errorf("served is %q, want %q", first, want)
		}
		eventually(t, "it is ready", func() bool { code, _ := r.probe(t, "/readyz"); return code == 200 })
		if r.stop(); !strings.Contains(r.log.String(), "could not persist what is served") {
			t.Error("it was not reported that nothing is kept")
		}
	}
}

// TestServed_ChangedAddress: a registry that shows a tenth
// after the change removes nothing from a mesh.
func TestServed_ChangedAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := func(n int) string {
		return fmt.Sprintf("/dubbo/api.S%d/providers/", n) + url.QueryEscape(fmt.Sprintf("tri://10.0.0.1:20001/api.S%d?interface=api.S%d&side=provider", n, n))
	}
	for n := range 10 {
		if err := w.zk.Put(path(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, before := range []int{10, 1} {
		listen := porttest.Address(t)
		file := w.importConfig(listen, "")
		r := w.start(file)
		var hosts []string
		eventually(t, fmt.Sprintf("all is served while the registry shows %d", before), func() bool { hosts = servedAt(t, listen); return len(hosts) > 0 })
		if r.stop(); len(hosts) != 10 {
			t.Errorf("%d hosts are served while the registry shows %d", len(hosts), before)
		}
		for n := 1; n < 10; n++ {
			w.zk.Delete(path(n))
		}
	}
}
