package faults_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

// TestZooKeeperEnsemble keeps the mesh in three servers, in entries that go
// with the bridge's session.
func TestZooKeeperEnsemble(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	nodes := harness.StartEnsemble(t)
	znodes := harness.Connect(t, harness.Addresses(nodes...)...)
	m := faults.StartMesh(t)
	// A session has to outlast the wait for a quorum, on a busy machine too.
	const long = 3 * session
	config := strings.Replace(meshToZooKeeper(m, "lifetime: session", patient, harness.Addresses(nodes...)...),
		"sessionTimeout: "+session.String(), "sessionTimeout: "+long.String(), 1)
	bridge := kept(t, m, znodes, config, nodes...)
	restart := func(t *testing.T, killed ...*harness.ZooKeeper) {
		t.Helper()
		for _, n := range killed {
			n.Start(t)
		}
		for _, n := range killed {
			n.AwaitServing(t)
		}
	}

	var leader *harness.ZooKeeper
	m.Try(t, faults.Fault{
		Name: "the leader dies: the session continues, and changes are written under the next one",
		Break: func(t *testing.T) {
			for _, n := range nodes {
				if n.Leads(t) {
					leader = n
				}
			}
			leader.Kill()
		},
		Lasts: session,
		Heal:  func(t *testing.T) { restart(t, leader) },
	})
	m.Try(t, faults.Fault{
		Name: "without a quorum changes wait, and what is there stays",
		Break: func(*testing.T) {
			nodes[0].Kill()
			nodes[1].Kill()
		},
		Lasts: session,
		Heal:  func(t *testing.T) { restart(t, nodes[:2]...) },
	})
	m.Try(t, faults.Fault{
		Name: "all three die and come back with their data",
		Break: func(*testing.T) {
			for _, n := range nodes {
				n.Kill()
			}
		},
		Heal: func(t *testing.T) { restart(t, nodes...) },
	})
	var creates, deletes float64
	m.Try(t, faults.Fault{
		Name:  "frozen for longer than its session, the bridge writes its entries again, once",
		Loses: "entries of a session go with it",
		Break: func(t *testing.T) {
			creates, deletes = applied(t, bridge, "create"), applied(t, bridge, "delete")
			bridge.Process().Signal(t, syscall.SIGSTOP)
		},
		Change: func(t *testing.T) {
			m.Change(t)
			harness.Eventually(t, faults.HealTime, "the entries are gone with the session", func() error {
				return harness.Same(len(znodes.Children(t, faults.ProvidersPath(faults.MovingInterface))), 0)
			})
		},
		Heal: func(t *testing.T) { bridge.Process().Signal(t, syscall.SIGCONT) },
		After: func(t *testing.T) {
			if c, d := applied(t, bridge, "create")-creates, applied(t, bridge, "delete")-deletes; c != 6 || d != 0 {
				t.Errorf("%v entries were created and %v deleted, want six that had gone with the session, and none", c, d)
			}
			for _, iface := range []string{faults.SteadyInterface, faults.MovingInterface} {
				for at, node := range znodes.Tree(t, faults.ProvidersPath(iface)) {
					if node.Ephemeral && node.Modified != node.Created {
						t.Errorf("%s was written twice: %+v", at, node)
					}
				}
			}
		},
	})
	// The next process makes the entries of the old session again in its own.
	anew := m.Allow([]guarantees.Guarantee{guarantees.NoSpuriousWrite})
	m.Try(t, faults.Fault{
		Name:  "after a kill -9 the next process adopts what the old session holds",
		Break: func(*testing.T) { bridge.Kill() },
		Heal:  func(t *testing.T) { bridge.Start(t) },
		After: func(t *testing.T) {
			harness.Stays(t, long+time.Second, "the end of the old session removes nothing", func() error {
				return m.Shown(faults.MovingService)
			})
		},
	})
	anew()
	m.Try(t, faults.Fault{
		Name:  "on SIGTERM the entries of the session go at once, and those of others stay",
		Loses: "entries of a session go with it",
		Break: func(t *testing.T) { bridge.Stop(t) },
		Change: func(t *testing.T) {
			m.Change(t)
			harness.Eventually(t, faults.HealTime, "our entries are gone", func() error {
				return harness.Same(len(znodes.Children(t, faults.ProvidersPath(faults.MovingInterface))), 0)
			})
		},
		Heal: func(t *testing.T) { bridge.Start(t) },
	})
}

// applied is how many entries the bridge has created or deleted in ZooKeeper.
func applied(t *testing.T, b *harness.Bridge, op string) float64 {
	t.Helper()
	return faults.Metric(t, b, fmt.Sprintf(`xdsbridge_changes_applied_total{bridge="mesh-to-zk",listen="",op=%q,registry="zk"}`, op))
}
