//go:build soak

package faults_test

import (
	"fmt"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/internal/soaktest"
)

// rounds is how often each method of replacing a bridge is tried: ten times, and
// a hundred in make soak.
func rounds(t *testing.T) int {
	t.Helper()
	return soaktest.Number(t, "XDS_BRIDGE_ROUNDS", 10)
}

// TestRounds has subscribers watch while bridges are killed, ended and
// replaced by others, and the mesh changes. Nobody may ever see fewer than
// what is there all the time.
func TestRounds(t *testing.T) {
	t.Parallel()
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		server := harness.StartZooKeeper(t)
		m := faults.StartMesh(t)
		bridge := kept(t, m, harness.Connect(t, server.Address), meshToZooKeeper(m, "", harness.Swift, server.Address), server)
		t.Run("killed and ended in turn", func(t *testing.T) {
			for round := range rounds(t) {
				if round%2 == 0 {
					bridge.Kill()
				} else {
					bridge.Stop(t)
				}
				m.Change(t)
				bridge.Start(t)
				m.Agree(t)
			}
		})
	})
	t.Run("Nacos", func(t *testing.T) {
		t.Parallel()
		m, server := faults.StartMesh(t), harness.SharedNacos(t, 3)
		config := fmt.Sprintf(`owner: faults
registries:
  %s
  nacos: { nacos: { %s } }
bridges:
  - { name: mesh-to-nacos, from: mesh, to: nacos, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }`,
			m.Registry(), server.Settings(), harness.Swift)
		sdk := nacossdk.ConnectTo(t, server)
		running := harness.ConfiguredBridge(t, config)
		oracle := faults.NewOracle(running, func(testing.TB) string { return "" })
		oracle.Subscribe(faults.SteadyService, "consumer", sdk.Subscribe(t, faults.Key(faults.SteadyInterface)))
		oracle.Subscribe(faults.MovingService, "consumer", sdk.Subscribe(t, faults.Key(faults.MovingInterface)))
		m.JudgedBy(oracle)
		running.Start(t)
		m.Agree(t)
		t.Run("a rolling update: the next one has published before the one before ends", func(t *testing.T) {
			next := harness.ConfiguredBridge(t, config)
			for round := range rounds(t) {
				next.Start(t)
				oracle.Bridge = next
				m.Change(t)
				m.Agree(t)
				if round%2 == 0 {
					running.Kill()
				} else {
					running.Stop(t)
				}
				running, next = next, running
				m.Change(t)
				m.Agree(t)
			}
		})
	})
}
