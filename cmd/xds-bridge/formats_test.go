package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// severalFormats is the world's mesh in ZooKeeper, in several formats at once.
func (w *world) severalFormats(formats, names string) string {
	return w.file("formats.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 50ms } } }
  zk: { zookeeper: { servers: [%q], timeout: 2s }, timing: { debounce: 1ms, retryMin: 10ms, retryMax: 100ms } }
bridges:
  - name: mesh-to-zk
    from: mesh
    to: zk
    formats: %s
    names: %s
    metadata: { drop: [meshClusterID], add: { side-of: mesh } }
    guard: { settle: 0s, lastEndpoint: 0s }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json, level: debug }
`, w.xds, strings.TrimPrefix(w.debug.URL, "http://"), w.zkAt, formats, names, w.dir))
}

// TestRun_PlainFormats: a host that no key is published for
// is in every format that has plain names, under the name of a rule, and one
// with a key is in Dubbo's besides.
func TestRun_PlainFormats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(greeter, "10.0.0.7")
	file := w.severalFormats(`[dubbo-interface, spring-cloud, kratos, { format: hertz, service: "hertz-*" }, plain]`,
		`[{ host: "*.shop.svc.cluster.local", service: "shop-*" }]`)
	w.start(file)
	parents := map[string][]string{
		"/services/shop-greeter":      {"xdsb-10.0.0.7:20880"},
		"/services/shop-orders":       {"xdsb-10.0.0.1:20880", "xdsb-10.0.0.2:20880"},
		"/microservices/shop-greeter": {"xdsb-10.0.0.7:20880"},
		"/hertz-shop-greeter":         {"10.0.0.7:20880"},
		"/plain/shop-greeter":         {"10.0.0.7:20880"},
	}
	for parent, want := range parents {
		eventually(t, parent, func() bool {
			got := slices.Sorted(slices.Values(w.zk.Children(parent)))
			return slices.Equal(got, want)
		})
	}
	eventually(t, "Dubbo's, of the one with a key", func() bool { return len(w.providers("api.Orders")) == 2 })
	if got := w.zk.Children("/dubbo"); !slices.Equal(got, []string{"api.Orders"}) {
		t.Errorf("interfaces %q", got)
	}
	node, _ := w.zk.Get("/services/shop-greeter/xdsb-10.0.0.7:20880")
	if data := string(node.Data); !strings.Contains(data, `"side-of":"mesh"`) || strings.Contains(data, "meshClusterID") {
		t.Errorf("the rules for attributes are not followed: %s", data)
	}
	do(t, "plan", "-f", file).want(t, exitOK, "Nothing differs")

	w.offer(greeter, "10.0.0.8")
	for parent, address := range map[string]string{"/services/shop-greeter": "xdsb-10.0.0.8:20880", "/hertz-shop-greeter": "10.0.0.8:20880"} {
		eventually(t, parent+" follows", func() bool { return slices.Equal(w.zk.Children(parent), []string{address}) })
	}
}

// TestRun_NameCollision: the second of two services that would be called
// the same is refused whole, and reported.
func TestRun_NameCollision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer("greeter.test.svc.cluster.local:20000", "10.0.0.8")
	w.offer(greeter, "10.0.0.7")
	file := w.severalFormats("[spring-cloud]", `[{ host: "greeter.*", port: 20000, service: greeter }]`)
	w.start(file)
	eventually(t, "one of them is there", func() bool { return len(w.zk.Children("/services/greeter")) == 1 })
	eventually(t, "the other is reported", func() bool {
		return strings.Contains(do(t, "status", "-f", file).out, "greeter.test.svc.cluster.local")
	})
	if got := w.zk.Children("/services/greeter"); !slices.Equal(got, []string{"xdsb-10.0.0.7:20880"}) {
		t.Errorf("the parent holds %q", got)
	}
}

// TestRun_ForeignFormatParent: where Dubbo's application-level discovery has a
// service of the same name, nothing is written and status says why.
func TestRun_ForeignFormatParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(greeter, "10.0.0.7")
	if err := w.zk.Put("/services/greeter/10.9.9.9:20880", []byte(`{"name":"greeter","id":"10.9.9.9:20880","address":"10.9.9.9","port":20880,`+
		`"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"10.9.9.9:20880","name":"greeter","metadata":{}}}`)); err != nil {
		t.Fatal(err)
	}
	file := w.severalFormats("[spring-cloud]", `[{ host: "greeter.*", service: greeter }]`)
	w.start(file)
	eventually(t, "why it is not there", func() bool {
		return strings.Contains(do(t, "why", greeter, "-f", file).out, "org.apache.dubbo.registry.zookeeper.ZookeeperInstance")
	})
	if got := w.zk.Children("/services/greeter"); len(got) != 1 {
		t.Errorf("the parent holds %q", got)
	}
}
