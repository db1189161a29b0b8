package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xzk "github.com/xds-bridge/xds-bridge/plugins/client/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// comesBackWith stops a server, changes what it has stored, and starts it again.
func comesBackWith(t *testing.T, server *harness.ZooKeeper, change func()) {
	t.Helper()
	server.Kill()
	change()
	server.Start(t)
	server.AwaitServing(t)
}

// TestZooKeeper_OlderSnapshot wipes a server, and restores it to
// what it held before: it refuses every session for having seen more than the
// server has. Whoever uses it continues with a new one.
func TestZooKeeper_OlderSnapshot(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server, f := harness.StartZooKeeper(t), dubboFormat(t)
	conn := zookeeper.Options{Servers: []string{server.Address}, SessionTimeout: 10 * time.Second}
	used := zookeeperClient(t, conn)
	const session = 1 // the target whose entries live as long as its session
	targets := []*zookeeper.Target{zookeeperTarget(t, used, f), zookeeperTarget(t, zookeeperClient(t, conn), f, zookeeperSession)}
	record, err := zookeeper.NewLeaseStore(zookeeperClient(t, conn), zookeeperOwner, "zk", zookeeper.Open)
	if err != nil {
		t.Fatal(err)
	}
	provides := providingClient(t, conn)
	write := func(t *testing.T, have int) {
		t.Helper()
		for i, target := range targets {
			harness.Eventually(t, soon, "the target is written", func() error {
				held, err := target.Read(t.Context(), f.group(i))
				ended := i == session && len(held) == 0 // what it wrote before went with it
				if err == nil && len(held) != have && !ended {
					err = fmt.Errorf("it holds %v", held)
				}
				if err != nil {
					return err
				}
				return target.Write(t.Context(), f.creates(i, len(held), 3))
			})
		}
		harness.Eventually(t, soon, "the record is written", func() error {
			_, version, err := record.Load(t.Context())
			if err != nil {
				return err
			}
			return record.Save(t.Context(), []byte("members"), version)
		})
		harness.Eventually(t, soon, "the id is kept", func() error {
			id, err := used.ID(t.Context(), "an-id", zookeeper.Open)
			if err != nil {
				return err
			}
			return harness.Same(id, "an-id")
		})
		harness.Eventually(t, soon, "what an application provides is there", func() error {
			return harness.Same(len(harness.Connect(t, server.Address).Children(t, "/dubbo/greeter/providers")), 1)
		})
		harness.Eventually(t, soon, "nothing is wrong with it", provides)
	}
	write(t, 0)
	t.Run("wiped", func(t *testing.T) {
		comesBackWith(t, server, func() { server.Wipe(t) })
		write(t, 0)
	})
	t.Run("restored", func(t *testing.T) {
		var stored string
		comesBackWith(t, server, func() { stored = server.Stored(t) })
		for i, target := range targets {
			harness.Eventually(t, soon, "more is written", func() error { return target.Write(t.Context(), f.creates(5+i, 0, 40)) })
		}
		comesBackWith(t, server, func() { server.Restore(t, stored) })
		write(t, 3)
	})
}

// providingClient is an application that provides a service, and returns what
// says whether that failed.
func providingClient(t *testing.T, conn zookeeper.Options) (fault func() error) {
	t.Helper()
	backend, err := xzk.New(xzk.Options{Conn: conn, Identity: "greeter"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(backend, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Register(client.Instance{Application: "greeter", Host: "10.0.0.1", Port: 20000, Protocol: "tri"}); err != nil {
		t.Fatal(err)
	}
	return func() error { return c.Status().Problem() }
}
