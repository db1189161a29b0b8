package integration_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestIstiodFaults uses the guards almost as they are by default: it is about
// safety.
func TestIstiodFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 18101, 18102)
	config := w.config()
	config.Guard = "settle: 5s"                         // a minute by default
	config.Mapping = w.overHTTP("connectionGrace: 15s") // applications connect anew meanwhile
	bridge := harness.NewBridge(t, config)
	bridge.Start(t)
	w.publish(t)

	t.Run("A02 a new service is written while istiod has just started", func(t *testing.T) {
		w.awaitEntries(t, providers, 18101, 18102)
	})
	t.Run("the bridge is ready once applications have had time to connect", func(t *testing.T) {
		bridge.AwaitReady(t)
	})

	t.Run("F14 a stream that is reset writes nothing", func(t *testing.T) {
		w.untouched(t, w.toIstiod.Reset)
	})
	t.Run("F20 without the debug API the known keys go on", func(t *testing.T) {
		w.toDebugAPI.Cut()
		w.untouched(t, func() {})
		w.greet(t, 18102, 18103)
		w.awaitEntries(t, providers, 18102, 18103)
		w.toDebugAPI.Heal()
	})
	t.Run("F15 what was removed while the stream was away is removed after it is back", func(t *testing.T) {
		w.toIstiod.Cut()
		w.greet(t, 18103)
		w.untouched(t, func() {})
		w.toIstiod.Heal()
		w.awaitEntries(t, providers, 18103)
	})
	t.Run("F11 an istiod that comes back empty takes nothing away", func(t *testing.T) {
		w.untouched(t, func() {
			w.istiod.Kill()
			w.mesh.Remove(t, greetHost)
			w.istiod.Start(t)
		})
		w.greet(t, 18103, 18104)
		w.publish(t)
		w.awaitEntries(t, providers, 18103, 18104)
	})
	t.Run("F11 an istiod that stays away takes nothing away", func(t *testing.T) {
		w.untouched(t, func() {
			w.istiod.Kill()
			bridge.Kill()
			bridge.Start(t)
		})
		w.istiod.Start(t)
		bridge.AwaitReady(t)
	})
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 18101, 18102, 18103)
	w.publish(t)
	bridge := harness.StartBridge(t, w.config())
	w.awaitEntries(t, providers, 18101, 18102, 18103)

	t.Run("F06 changes of its absence become one minimal difference", func(t *testing.T) {
		bridge.Stop(t)
		w.greet(t, 18102, 18103, 18104)
		kept := w.tree(t)
		w.writes.Forget()
		bridge.Start(t)
		w.awaitEntries(t, providers, 18102, 18103, 18104)
		harness.Quiet(t, "nothing more is written", func() int { return len(w.writes.Writes("/dubbo")) })
		if writes := w.writes.Writes("/dubbo"); len(writes) != 2 {
			t.Errorf("writes %v, want one create and one delete", writes)
		}
		for at, before := range kept {
			now, there := w.tree(t)[at]
			if at != providers && there && now != before {
				t.Errorf("%s was touched: %+v, before %+v", at, now, before)
			}
		}
	})
	t.Run("A44 entries of others stay", func(t *testing.T) {
		foreign := providers + "/" + url.QueryEscape("tri://127.0.0.1:19999/"+harness.DubboInterface+"?side=provider")
		w.znodes.Create(t, foreign, "somebody")
		w.greet(t, 18104)
		w.awaitEntries(t, providers, 18104, 19999)
		w.mesh.Remove(t, greetHost)
		w.awaitEntries(t, providers, 19999)
	})
}

// TestKilledWhileWriting kills the bridge before the k-th of many writes.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	const services = 60
	w := newWorld(t)
	keys := make(map[string]string)
	var all []harness.Service
	for i := range services {
		host := fmt.Sprintf("many-%d.shop.svc.cluster.local", i)
		keys[fmt.Sprintf("providers:org.bridge.Many%d::", i)] = host + ":20000"
		all = append(all, harness.Service{Host: host, Port: 20000, Endpoints: harness.Local(18301, 18302, 18303, 18304, 18305)})
	}
	w.mesh.ApplyTogether(t, "many", all...)
	harness.Publish(t, w.istiod.GRPC, "many", keys)
	bridge := harness.NewBridge(t, w.config())

	for _, k := range []int{1, 3, 10, 40} {
		t.Run(fmt.Sprintf("F02 killed at write %d", k), func(t *testing.T) {
			kill := make(chan struct{})
			w.writes.OnWrite(func(total int) {
				if total == k {
					close(kill)
				}
			})
			w.writes.Forget()
			bridge.Start(t)
			select {
			case <-kill:
				bridge.Kill()
			case <-bridge.Exited():
				t.Fatal("the bridge ended by itself")
			case <-time.After(time.Minute):
				t.Fatalf("only %d writes", len(w.writes.Writes("/")))
			}
		})
	}
	w.writes.OnWrite(func(int) {})
	w.writes.Forget()
	bridge.Start(t)
	for i := range services {
		w.awaitEntries(t, fmt.Sprintf("/dubbo/org.bridge.Many%d/providers", i), 18301, 18302, 18303, 18304, 18305)
	}
	for _, write := range w.writes.Writes("/dubbo") {
		if write.Operation == "delete" {
			t.Errorf("F02 %s was deleted, want what is there kept", write.Path)
		}
	}
	w.untouched(t, func() {
		bridge.Kill()
		bridge.Start(t)
		bridge.AwaitReady(t)
	})
}

func TestZooKeeperFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 18101, 18102)
	w.publish(t)
	config := w.config()
	config.Timing = "refresh: 2s"
	harness.StartBridge(t, config)
	w.awaitEntries(t, providers, 18101, 18102)

	t.Run("F32 a connection that is lost for less than the session writes nothing", func(t *testing.T) {
		w.untouched(t, func() {
			w.writes.Cut()
			harness.Eventually(t, soon, "the connection is lost", func() error { return harness.Same(w.writes.Connections(), 0) })
			w.writes.Heal()
			harness.Eventually(t, soon, "it is back", func() error { return harness.Same(w.writes.Connections() > 0, true) })
		})
	})
	t.Run("what others deleted while it was away is written again at the next refresh", func(t *testing.T) {
		w.writes.Cut()
		for _, name := range w.znodes.Children(t, providers)[:1] {
			w.znodes.Delete(t, providers+"/"+name)
		}
		w.writes.Heal()
		w.awaitEntries(t, providers, 18101, 18102)
	})
	t.Run("A48 F35 changes during an outage of ZooKeeper are written after it", func(t *testing.T) {
		w.zookeeper.Kill()
		w.greet(t, 18102, 18103)
		w.zookeeper.Start(t)
		w.zookeeper.AwaitServing(t)
		w.awaitEntries(t, providers, 18102, 18103)
	})
	t.Run("A48 a half-open connection is given up and the rest is written", func(t *testing.T) {
		w.writes.BlackHole()
		w.greet(t, 18103)
		harness.Stays(t, 8*time.Second, "nothing is written", func() error {
			return harness.Same(entryAddresses(w.znodes.Children(t, providers)), addresses([]int{18102, 18103}))
		})
		w.writes.Heal()
		w.awaitEntries(t, providers, 18103)
	})
}

func TestEnsemble(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := harness.StartEnsemble(t)
	w.znodes = harness.Connect(t, harness.Addresses(nodes...)...)
	w.greet(t, 18101, 18102)
	w.publish(t)
	config := w.config()
	config.ZooKeeper = harness.Addresses(nodes...)
	harness.StartBridge(t, config)
	w.awaitEntries(t, providers, 18101, 18102)

	t.Run("F35 the leader's death loses nothing", func(t *testing.T) {
		var leader *harness.ZooKeeper
		for _, n := range nodes {
			if n.Leads(t) {
				leader = n
			}
		}
		leader.Kill()
		w.greet(t, 18102, 18103)
		w.awaitEntries(t, providers, 18102, 18103)
		leader.Start(t)
		leader.AwaitServing(t)
	})
	t.Run("F35 without a quorum changes wait, and are written when it is back", func(t *testing.T) {
		nodes[0].Kill()
		nodes[1].Kill()
		w.greet(t, 18104)
		nodes[0].Start(t)
		nodes[1].Start(t)
		nodes[0].AwaitServing(t)
		w.awaitEntries(t, providers, 18104)
	})
}
