package faults_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestZooKeeperToMesh has everything go wrong while providers of a ZooKeeper
// are served to istiod.
func TestZooKeeperToMesh(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	i, server, toZooKeeper := imported(t, "settle: 5s, lastEndpoint: 1s")
	znodes, bridge := harness.Connect(t, server.Address), i.Bridge

	i.Try(t, faults.Fault{
		Name:  "kill -9 of the bridge: istiod keeps what it has until the next one has read all",
		Break: func(*testing.T) { bridge.Kill() },
		Heal:  func(t *testing.T) { bridge.Start(t) },
	})
	i.Try(t, faults.Fault{
		Name:  "what changed while the connection was lost is read when it is back",
		Break: func(*testing.T) { toZooKeeper.Cut() },
		Heal:  func(*testing.T) { toZooKeeper.Heal() },
	})
	i.Try(t, faults.Fault{
		Name:  "what changed while the session ended is read in the next",
		Break: func(*testing.T) { toZooKeeper.BlackHole() },
		Lasts: session + 2*time.Second,
		Heal:  func(*testing.T) { toZooKeeper.Heal() },
	})
	i.Try(t, faults.Fault{
		Name:   "a ZooKeeper that is away removes nothing",
		Break:  func(*testing.T) { server.Kill() },
		Change: func(*testing.T) {},
		Lasts:  3 * time.Second,
		Heal: func(t *testing.T) {
			server.Start(t)
			server.AwaitServing(t)
		},
	})
	frozenSource(t, i, server)
	i.Try(t, faults.Fault{
		Name: "a parent znode that may no longer be read is kept, and the other follows",
		Break: func(t *testing.T) {
			znodes.Deny(t, faults.ProvidersPath(faults.SteadyInterface), zk.PermRead)
			toZooKeeper.Reset() // everything is read once more
		},
		Change: func(t *testing.T) {
			i.Change(t)
			harness.Eventually(t, faults.HealTime, "the other follows", func() error { return i.Shown(faults.MovingInterface) })
		},
		Heal: func(t *testing.T) { znodes.Allow(t, faults.ProvidersPath(faults.SteadyInterface)) },
	})
	i.Others = func(testing.TB) string { return "" } // they go with the root
	i.Try(t, faults.Fault{
		Name:   "a root that somebody deletes in one step is held: nothing is withdrawn",
		Break:  func(t *testing.T) { znodes.Prune(t, "/dubbo") },
		Change: func(*testing.T) {},
		Lasts:  3 * time.Second,
		Heal:   func(t *testing.T) { i.Again(t) },
	})
	t.Run("hostile names, metadata and addresses", func(t *testing.T) { hostile(t, i, znodes) })
	t.Run("services leave", func(t *testing.T) { leaves(t, i, znodes) })
}

// imported serves the providers of a ZooKeeper to istiod through a bridge that
// reaches it by a proxy.
func imported(t *testing.T, guard string) (*faults.Imports, *harness.ZooKeeper, *harness.Proxy) {
	t.Helper()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	toZooKeeper := harness.StartProxy(t, server.Address)
	i := faults.NewImports(t, faults.InZooKeeper(znodes))
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: faults
registries:
  mesh: { istiod: { address: "127.0.0.1:1", import: { keys: "off" } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: %s, timeout: 2s } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }`,
		toZooKeeper.Address, session, i.Listen, guard))
	bridge.Start(t)
	oracle := faults.NewOracle(bridge, faults.Below(znodes, faults.ProvidersPath(faults.SteadyInterface)))
	oracle.Heads = 1
	i.Serve(t, oracle, "zk")
	i.Agree(t)
	return i, server, toZooKeeper
}

// TestChurn has one provider come and go as fast as ZooKeeper lets it, and
// looks at how often istiod is notified.
func TestChurn(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	i, server, _ := imported(t, harness.Swift)
	znodes := harness.Connect(t, server.Address)
	flap := func(n int, pause time.Duration) func(*testing.T) {
		return func(t *testing.T) {
			before, at := len(i.Notifications(faults.MovingInterface)), faults.Registered(faults.MovingInterface, 18999)
			began := time.Now()
			for range n {
				znodes.Create(t, at, "")
				<-time.NewTimer(pause).C
				znodes.Delete(t, at)
				<-time.NewTimer(pause).C
			}
			took := time.Since(began)
			if pushed := len(i.Notifications(faults.MovingInterface)) - before; pushed > 5+25*int(took.Seconds()+1) {
				t.Errorf("istiod was notified %d times in %s", pushed, took)
			}
		}
	}
	i.Try(t, faults.Fault{
		Name:   "a reader of ours that never reads holds nobody up",
		Break:  func(t *testing.T) { harness.Stall(t, i.Listen) },
		Change: func(t *testing.T) { manyChanges(t, i) },
	})
	i.Try(t, faults.Fault{
		Name:  "hundreds of changes a second are gathered, and the end is right",
		Break: flap(1500, time.Millisecond),
		After: func(t *testing.T) {
			cluster := faults.ImportedCluster("zk", faults.MovingInterface)
			harness.WatchEndpoints(t, i.Istiod.GRPC, cluster).AwaitPush(t, faults.HealTime, i.Truth()[faults.MovingInterface]...)
		},
	})
}

func manyChanges(t *testing.T, i *faults.Imports) {
	t.Helper()
	for range 30 {
		i.Change(t)
	}
}

// leaves has a service leave the registry, and then most of a large one.
func leaves(t *testing.T, i *faults.Imports, znodes *harness.Znodes) {
	t.Helper()
	const mass = 30
	for port := range mass {
		znodes.Create(t, faults.Registered("api.Mass", 17000+port), "")
	}
	znodes.Create(t, faults.Registered("api.Leaves", 16001), "")
	massive := harness.WatchEndpoints(t, i.Istiod.GRPC, faults.ImportedCluster("zk", "api.Mass"))
	served := func(iface string) error {
		for _, cluster := range harness.Clusters(t, i.Istiod.GRPC, "router") {
			if cluster == faults.ImportedCluster("zk", iface) {
				return nil
			}
		}
		return fmt.Errorf("no cluster of %s", iface)
	}
	all := func(n int) func() error {
		return func() error { return harness.Same(massive.Endpoints(), n) }
	}
	harness.Eventually(t, faults.HealTime, "both are served", func() error {
		if err := served("api.Leaves"); err != nil {
			return err
		}
		return all(mass)()
	})

	t.Run("a service that leaves the registry leaves the mesh, and no other does", func(t *testing.T) {
		znodes.Prune(t, "/dubbo/api.Leaves")
		harness.Eventually(t, faults.HealTime, "its cluster is gone", func() error {
			if served("api.Leaves") == nil {
				return errors.New("it is still served")
			}
			return nil
		})
		i.Agree(t)
	})
	t.Run("a mass of deletions is held, and goes when approved", func(t *testing.T) {
		for port := range mass - 2 {
			znodes.Delete(t, faults.Registered("api.Mass", 17000+port))
		}
		hold := func() (string, error) {
			holds, err := faults.Holds(t, i.Bridge)
			if err == nil && len(holds) != 1 {
				err = fmt.Errorf("holds %v", holds)
			}
			return strings.Join(holds, " "), err
		}
		harness.Eventually(t, faults.HealTime, "a hold", func() error { _, err := hold(); return err })
		harness.Stays(t, 2*time.Second, "more stay than the guard lets go", func() error {
			if n := massive.Endpoints(); n < mass/2 { // ten, or three in ten of all entries, may go
				return fmt.Errorf("%d are left", n)
			}
			return nil
		})
		held, err := hold() // now of all services
		if err != nil {
			t.Fatal(err)
		}
		if answer := faults.Post(t, i.Bridge, "/api/v1/holds/"+held+"/approve"); !strings.Contains(answer, "approved") {
			t.Errorf("approval: %s", answer)
		}
		harness.Eventually(t, faults.HealTime, "the rest", all(2))
	})
}
