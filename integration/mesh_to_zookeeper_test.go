package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// reaction is how soon after istiod's push ZooKeeper has to follow.
const reaction = 300 * time.Millisecond

// TestStory is the main job, from the first service to the last restart.
// It runs alone: it measures.
func TestStory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dubbo := harness.StartDubbo(t)
	first, second := dubbo.Provide(t, "tri"), dubbo.Provide(t, "tri")
	consumer := dubbo.Refer(t, "consumer", w.zookeeper.Address)

	w.greet(t, first, second)
	bridge := harness.StartBridge(t, w.config())
	w.publish(t)

	t.Run("two endpoints of the mesh are two entries in ZooKeeper once their key is published", func(t *testing.T) {
		w.awaitEntries(t, providers, first, second)
	})
	t.Run("a Java Dubbo consumer that knows only ZooKeeper calls both", func(t *testing.T) {
		consumer.AwaitOnly(t, soon, first, second)
	})
	t.Run("an endpoint that goes is gone from ZooKeeper within 300 ms of istiod's push", func(t *testing.T) {
		pushes := harness.WatchEndpoints(t, w.istiod.GRPC, greetCluster)
		children := w.znodes.Watch(t, providers)
		for range 5 {
			stopwatch := harness.StartStopwatch()
			w.greet(t, second)
			pushed := pushes.AwaitPush(t, soon, addresses([]int{second})...)
			gone := children.AwaitLatest(t, soon, "the entry goes", lacks(first))
			harness.AtMost(t, "from istiod's push until it is gone", stopwatch.Between(pushed, gone), reaction)
			w.greet(t, first, second)
			w.awaitEntries(t, providers, first, second)
		}
		w.greet(t, second)
		w.awaitEntries(t, providers, second)
	})
	t.Run("the consumer follows", func(t *testing.T) {
		consumer.AwaitOnly(t, soon, second)
		w.greet(t, first, second)
		consumer.AwaitOnly(t, soon, first, second)
	})
	t.Run("a kill -9 and a restart touch no znode", func(t *testing.T) {
		w.untouched(t, func() {
			bridge.Kill()
			consumer.CallEach(t, first, second)
			bridge.Start(t)
			bridge.AwaitReady(t)
		})
		consumer.CallEach(t, first, second)
	})
	t.Run("a SIGTERM and a restart touch no znode", func(t *testing.T) {
		w.untouched(t, func() {
			bridge.Stop(t)
			bridge.Start(t)
			bridge.AwaitReady(t)
		})
	})
	t.Run("after the restarts it still follows", func(t *testing.T) {
		w.greet(t, first)
		w.awaitEntries(t, providers, first)
		consumer.AwaitOnly(t, soon, first)
	})
}

func TestMesh(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 18101, 18102)
	harness.StartBridge(t, w.config())
	other := "/dubbo/org.bridge.demo.Other/providers"
	provider := harness.Publish(t, w.istiod.GRPC, "greet-1", map[string]string{
		greetKey:                            greetAddress,
		"providers:org.bridge.demo.Other::": greetAddress,
	})
	w.awaitEntries(t, providers, 18101, 18102)

	t.Run("two interfaces on one host both follow", func(t *testing.T) {
		w.awaitEntries(t, other, 18101, 18102)
		w.greet(t, 18101, 18103)
		w.awaitEntries(t, providers, 18101, 18103)
		w.awaitEntries(t, other, 18101, 18103)
	})
	t.Run("subsets double no entry", func(t *testing.T) {
		w.untouched(t, func() {
			w.mesh.Apply(t, harness.Service{
				Host: greetHost, Port: 20000, Endpoints: harness.Local(18101, 18103),
				Subsets: map[string]map[string]string{"all": {}, "none": {"version": "v9"}},
			})
			watch := harness.WatchEndpoints(t, w.istiod.GRPC, "outbound|20000|all|"+greetHost)
			watch.AwaitPush(t, soon, addresses([]int{18101, 18103})...)
		})
	})
	t.Run("pushes in which nothing changed write nothing", func(t *testing.T) {
		w.untouched(t, func() {
			for i := range 5 {
				w.mesh.Apply(t, harness.Service{Host: fmt.Sprintf("other-%d.shop.svc.cluster.local", i), Port: 80, Endpoints: harness.Local(18200)})
				w.greet(t, 18101, 18103)
			}
		})
	})
	t.Run("version and group of a key are in the entries", func(t *testing.T) {
		provider.Republish(t, map[string]string{"providers:" + harness.DubboInterface + ":1.0.0:blue": greetAddress})
		harness.Eventually(t, soon, "version and group", func() error {
			names := w.znodes.Children(t, providers)
			bad := slices.DeleteFunc(slices.Clone(names), holdsAll("version%3D1.0.0", "group%3Dblue"))
			if len(names) != 2 || len(bad) > 0 {
				return fmt.Errorf("entries %q", names)
			}
			return nil
		})
		w.awaitEntries(t, other) // the last ones of a service are marked as leaving before they go
	})
	t.Run("what another deletes is written again within a second", func(t *testing.T) {
		for what, remove := range map[string]func(){
			"an entry":       func() { w.znodes.Delete(t, providers+"/"+w.znodes.Children(t, providers)[0]) },
			"a parent znode": func() { w.znodes.Prune(t, providers) },
			"the root":       func() { w.znodes.Prune(t, "/dubbo") },
		} {
			harness.Unchanged(t, "what was written is read back", func() map[string]harness.Znode { return w.tree(t) })
			remove()
			took := harness.Eventually(t, soon, what, func() error {
				return harness.Same(entryAddresses(w.znodes.Children(t, providers)), addresses([]int{18101, 18103}))
			})
			harness.AtMost(t, "until "+what+" is written again", took, time.Second)
		}
	})
	t.Run("a service that leaves the mesh leaves ZooKeeper", func(t *testing.T) {
		w.mesh.Remove(t, greetHost)
		w.awaitEntries(t, providers)
	})
}

func TestKeys(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	blueAddress := "blue.shop.svc.cluster.local:20000"
	w.greet(t, 18101)
	w.mesh.Apply(t, harness.Service{Host: "blue.shop.svc.cluster.local", Port: 20000, Endpoints: harness.Local(18201)})
	harness.StartBridge(t, w.config())
	provider := w.publish(t)
	w.awaitEntries(t, providers, 18101)

	t.Run("a key that moves to another host is followed", func(t *testing.T) {
		provider.Republish(t, map[string]string{greetKey: blueAddress})
		w.awaitEntries(t, providers, 18201)
	})
	t.Run("one key of two applications is the union of their hosts", func(t *testing.T) {
		second := harness.Publish(t, w.istiod.GRPC, "greet-2", map[string]string{greetKey: greetAddress})
		w.awaitEntries(t, providers, 18101, 18201)
		second.Leave()
		w.awaitEntries(t, providers, 18201)
	})
	t.Run("a key that is withdrawn is withdrawn after its grace", func(t *testing.T) {
		provider.Republish(t, map[string]string{})
		w.awaitEntries(t, providers)
	})
	t.Run("a key whose connection went is withdrawn after its grace", func(t *testing.T) {
		provider.Republish(t, map[string]string{greetKey: greetAddress})
		w.awaitEntries(t, providers, 18101)
		provider.Leave()
		w.awaitEntries(t, providers)
	})
}

func holdsAll(parts ...string) func(string) bool {
	return func(name string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(name, p) })
	}
}
