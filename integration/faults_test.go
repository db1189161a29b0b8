package integration_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

func TestRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 18101, 18102, 18103)
	w.publish(t)
	bridge := harness.StartBridge(t, w.config())
	w.awaitEntries(t, providers, 18101, 18102, 18103)

	t.Run("changes of its absence are one minimal difference", func(t *testing.T) {
		bridge.Stop(t)
		w.greet(t, 18102, 18103, 18104)
		kept := w.tree(t)
		w.writes.Forget()
		bridge.Start(t)
		w.awaitEntries(t, providers, 18102, 18103, 18104)
		harness.Unchanged(t, "nothing more is written", func() int { return len(w.writes.Writes("/dubbo")) })
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
	t.Run("entries of others stay", func(t *testing.T) {
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
		t.Run(fmt.Sprintf("killed at write %d", k), func(t *testing.T) {
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
			t.Errorf("%s was deleted, want what is there kept", write.Path)
		}
	}
	w.untouched(t, func() {
		bridge.Kill()
		bridge.Start(t)
		bridge.AwaitReady(t)
	})
}
