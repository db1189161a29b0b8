package integration_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestZooKeeperTarget_Conformance runs the suite of all targets against a real
// ZooKeeper, with entries as the bridge writes them. Each test has a root of
// its own.
func TestZooKeeperTarget_Conformance(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	var roots atomic.Int32
	for name, lifetime := range map[string]zookeeper.Lifetime{"persistent": zookeeper.Persistent, "session": zookeeper.Session} {
		t.Run(name, func(t *testing.T) {
			conformance.Target(t, func(t *testing.T) conformance.Fixture {
				t.Helper()
				return zookeeperFixture(t, server, fmt.Sprintf("/root%d", roots.Add(1)), lifetime)
			})
		})
	}
}

func zookeeperFixture(t *testing.T, server *harness.ZooKeeper, root string, lifetime zookeeper.Lifetime) conformance.Fixture {
	t.Helper()
	client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{server.Address}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ours, theirs := codec(t, root, "shop"), codec(t, root, "them")
	target, err := zookeeper.NewTarget(client, zookeeper.TargetOptions{
		Owner: "shop", Layouts: []zookeeper.Layout{ours}, Lifetime: lifetime,
	})
	if err != nil {
		t.Fatal(err)
	}
	entry := func(c *dubbo.ZooKeeper) func(n, i, v int) registry.Entry {
		return func(n, i, v int) registry.Entry { return provider(t, c, n, i, v) }
	}
	f := conformance.Fixture{
		Target: target, Owner: metadata.NewMark("shop", "").Owner,
		Group: func(n int) registry.Group { return provider(t, ours, n, 0, 0).Group },
		Entry: entry(ours), Foreign: entry(theirs),
		Hostile: func(text string) registry.Entry {
			e := provider(t, ours, 0, 0, 0)
			e.Value += "&comment=" + text
			return e
		},
	}
	if lifetime == zookeeper.Persistent { // a client of a test has a session of its own
		znodes := harness.Connect(t, server.Address)
		f.Set = func(t *testing.T, e registry.Entry) { t.Helper(); znodes.Create(t, znode(t, ours, e), "") }
		f.Drop = func(t *testing.T, e registry.Entry) { t.Helper(); znodes.Delete(t, znode(t, ours, e)) }
	}
	return f
}

func codec(t *testing.T, root, owner string) *dubbo.ZooKeeper {
	t.Helper()
	c, err := dubbo.NewZooKeeper(dubbo.Options{Root: root, Mark: metadata.NewMark(owner, "b")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// provider is entry i of group n in variant v.
func provider(t *testing.T, c *dubbo.ZooKeeper, n, i, v int) registry.Entry {
	t.Helper()
	entries, err := c.Encode(&registry.Service{
		Name:       "test",
		Interfaces: []registry.Interface{{Name: fmt.Sprintf("api.Group%d", n)}},
		Endpoints:  []registry.Endpoint{{Host: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Port: 20880, Weight: uint32(v + 1)}}, //nolint:gosec // small.
	})
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	return entries[0]
}

func znode(t *testing.T, c *dubbo.ZooKeeper, e registry.Entry) string {
	t.Helper()
	parent, err := c.Parent(e.Group)
	if err != nil {
		t.Fatal(err)
	}
	name, _, err := c.Node(e)
	if err != nil {
		t.Fatal(err)
	}
	return parent + "/" + name
}
