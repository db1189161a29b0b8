package integration_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestKilledDuringChurn kills the bridge again and again while endpoints come
// and go. Three endpoints are there all the time and must never be touched;
// after each restart ZooKeeper has to hold what the mesh holds.
func TestKilledDuringChurn(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	steady := []int{18401, 18402, 18403}
	w := newWorld(t)
	w.greet(t, steady...)
	w.publish(t)
	bridge := harness.StartBridge(t, w.config())
	w.awaitEntries(t, providers, steady...)
	before := w.tree(t)
	children := w.znodes.Watch(t, providers)
	random := rand.New(rand.NewPCG(1, 1))
	churn := func() (ports []int) {
		for range 5 {
			ports = slices.Clone(steady)
			for port := 18411; port < 18420; port++ {
				if random.IntN(2) == 0 {
					ports = append(ports, port)
				}
			}
			w.greet(t, ports...)
			harness.Stays(t, time.Duration(random.IntN(150))*time.Millisecond, "the steady ones are there", func() error {
				return holdAll(w.znodes.Children(t, providers), steady)
			})
		}
		return ports
	}

	t.Run("a kill -9 in a loop while endpoints change loses nothing and doubles nothing", func(t *testing.T) {
		for range 8 {
			churn()
			bridge.Kill()
			ports := churn()
			bridge.Start(t)
			if random.IntN(2) == 0 { // every other time before it is ready
				bridge.AwaitReady(t)
				ports = churn()
			}
			w.awaitEntries(t, providers, ports...)
		}
	})
	if n := children.Fewest(); n < len(steady) {
		t.Errorf("at some time only %d entries were there", n)
	}
	for at, node := range w.tree(t) {
		if was, there := before[at]; there && at != providers && was != node {
			t.Errorf("%s was touched: %+v, before %+v", at, node, was)
		}
	}
	for at := range before {
		if _, there := w.tree(t)[at]; !there {
			t.Errorf("%s is gone", at)
		}
	}
}

// holdAll says which of the ports no entry names.
func holdAll(names []string, ports []int) error {
	held := entryAddresses(names)
	return harness.Same(slices.DeleteFunc(addresses(ports), func(a string) bool { return slices.Contains(held, a) }), []string{})
}
