package projection

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestAuthor shows which bridge wrote an entry, by its mark and its location.
func TestAuthor(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{
		Registries: map[string]config.Registry{"zk": {ZooKeeper: &config.ZooKeeper{}}, "mesh": {Istiod: &config.Istiod{}}},
		Bridges: []config.Bridge{
			{Name: "orders", To: "zk", Formats: []config.Format{{Format: "dubbo-interface", Root: "/dubbo"}}},
			{Name: "back", To: "mesh", Listen: ":15010", Formats: []config.Format{{Format: "dubbo-interface", Root: "/dubbo"}}},
		},
	}
	written := func(by, kind, root string) registry.Entry {
		return registry.Entry{
			Group: registry.Group{Kind: kind, Namespace: root, Name: "api.A"},
			Value: "dubbo://10.0.0.1:20880/api.A?side=provider&xdsb=" + metadata.NewMark("me", by).String(),
		}
	}
	for name, test := range map[string]struct {
		at         config.TargetKey
		entry      registry.Entry
		of, author string
	}{
		"a bridge that writes the place":          {config.TargetKey{Registry: "zk"}, written("orders", "dubbo-interface", "/dubbo"), "orders", "orders"},
		"a bridge that writes another root":       {config.TargetKey{Registry: "zk"}, written("orders", "dubbo-interface", "/other"), "orders", "orders at dubbo-interface:/other/"},
		"a bridge that writes another format":     {config.TargetKey{Registry: "zk"}, written("orders", "kratos", "/dubbo"), "orders", "orders at kratos:/dubbo/"},
		"a bridge that is not configured":         {config.TargetKey{Registry: "zk"}, written("gone", "dubbo-interface", "/dubbo"), "gone", BridgeMark("gone")},
		"a bridge that leads to another registry": {config.TargetKey{Registry: "zk"}, written("back", "dubbo-interface", "/dubbo"), "back", BridgeMark("back")},
		"an entry of a mesh":                      {config.TargetKey{Registry: "mesh", Listen: ":15010"}, written("back", "service-entry", ""), "back", "back"},
		"an entry without a mark":                 {config.TargetKey{Registry: "zk"}, registry.Entry{Value: "dubbo://10.0.0.1:20880/api.A"}, "", ""},
	} {
		by := Author(cfg, test.at)(test.entry)
		if by != test.author {
			t.Errorf("%s: %q, want %q", name, by, test.author)
		}
		for _, bridge := range []string{"orders", "back", "gone"} {
			if SameBridge(by, bridge) != (bridge == test.of) {
				t.Errorf("%s: SameBridge(%q, %s) = %t, want %t", name, by, bridge, bridge != test.of, bridge == test.of)
			}
		}
	}
}
