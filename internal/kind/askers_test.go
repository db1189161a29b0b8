package kind

import (
	"errors"
	"net"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestAskers_Allow shows that what a bridge lets pass is so where that bridge reads.
func TestAskers_Allow(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("t.yaml", []byte(`owner: shop
registries:
  zk: { zookeeper: { servers: ["10.0.0.1:2181"] } }
  zk2: { zookeeper: { servers: ["10.0.0.2:2181"] } }
bridges:
  - { name: a, from: zk, to: zk2, formats: [{ format: dubbo-application, root: /local }], select: { allow: [127.0.0.0/8] } }
  - { name: b, from: zk, to: zk2, formats: [{ format: dubbo-application, root: /other }] }
`), unset)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for root, refused := range map[string]bool{"/local": false, "/other": true, "/none": true} {
		_, err := newAskers(cfg, "zk").Ask(t.Context(), metadata.Ref{
			Group: registry.Group{Kind: dubbo.KindApplication, Namespace: root, Name: "shop"},
			Key:   "#service/tri://" + closed.Addr().String() + "?application=shop&revision=r&version=2.0.0",
		})
		if err == nil || errors.Is(err, registry.ErrRefused) != refused {
			t.Errorf("Ask under %s = %v, refused %t, want %t", root, err, !refused, refused)
		}
	}
}

// unset is an environment without variables.
func unset(string) (string, bool) { return "", false }
