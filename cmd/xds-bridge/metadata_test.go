package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// TestRun_MetadataRegistry: applications that store what they provide in another
// ZooKeeper are read once that is named.
func TestRun_MetadataRegistry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	servers := make(map[string]*zkfake.Server)
	at := make(map[string]string)
	for _, name := range []string{"to", "meta"} {
		servers[name] = zkfake.New(zkfake.Options{})
		address, err := servers[name].Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at[name] = address
		t.Cleanup(func() { _ = servers[name].Close() })
	}
	err := errors.Join(
		w.zk.Put("/services/shop/10.0.3.3:20880", []byte(`{"name":"shop","id":"10.0.3.3:20880","address":"10.0.3.3","port":20880,"payload":`+
			`{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"10.0.3.3:20880","name":"shop","metadata":`+
			`{"dubbo.metadata.revision":"r1","dubbo.metadata.storage-type":"remote"}}}`)),
		servers["meta"].Put("/centre/metadata/shop/r1", []byte(`{"app":"shop","revision":"r1","services":{"api.Shop:tri":`+
			`{"name":"api.Shop","path":"api.Shop","protocol":"tri","params":{}}}}`)))
	if err != nil {
		t.Fatal(err)
	}
	config := func(metadata string) string {
		return w.file("config.yaml", fmt.Sprintf(`owner: shop
registries:
  zk: { zookeeper: { servers: [%q] }%s }
  meta: { zookeeper: { servers: [%q] } }
  to: { zookeeper: { servers: [%q] } }
bridges:
  - { name: copy, from: zk, to: to, formats: [{ format: dubbo-application, metadataRoot: /centre }] }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json }
`, w.zkAt, metadata, at["meta"], at["to"], w.dir))
	}
	file := config("")
	w.start(file)
	eventually(t, "status names the setting", func() bool {
		out := do(t, "status", "-f", file).out
		return strings.Contains(out, "is not stored yet") && strings.Contains(out, "metadataRegistry")
	})
	config(", metadataRegistry: meta")
	do(t, "reload", "-f", file).want(t, exitOK, "source zk: restarted")
	eventually(t, "the application is copied", func() bool { return len(servers["to"].Children("/services/shop")) == 1 })
	if sessions := len(servers["meta"].Sessions()); sessions != 1 {
		t.Errorf("%d sessions at the registry of metadata, want 1", sessions)
	}
	config("")
	do(t, "reload", "-f", file).want(t, exitOK, "source zk: restarted")
	eventually(t, "the session ends with the source", func() bool { return len(servers["meta"].Sessions()) == 0 })
}
