package faults_test

import (
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestIstiod_Emptied uses the guards as they are by default: it is about
// safety alone. What is withdrawn in earnest waits a minute with them, so
// the mesh only grows here.
func TestIstiod_Emptied(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	m := faults.StartMesh(t)
	m.Grace = 5 * time.Minute
	bridge := kept(t, m, znodes, meshToZooKeeper(m, "", "", server.Address), server)

	m.Try(t, faults.Fault{
		Name: "an istiod that restarts and knows only a part at first removes nothing",
		Break: func(t *testing.T) {
			m.Istiod.Kill()
			m.Hide(t, faults.SteadyService)
			m.Restart(t)
		},
		Lasts:  3 * time.Second,
		Change: m.Grow,
		Heal: func(t *testing.T) {
			m.Show(t)
			m.Publish(t)
		},
	})
	m.Try(t, faults.Fault{
		Name: "an istiod that restarts and answers with no cluster at all removes nothing",
		Break: func(t *testing.T) {
			m.Istiod.Kill()
			m.Hide(t, faults.SteadyService, faults.MovingService)
			m.Restart(t)
		},
		Lasts:  3 * time.Second,
		Change: func(*testing.T) {},
		Heal: func(t *testing.T) {
			m.Show(t)
			m.Publish(t)
		},
	})
	m.Try(t, faults.Fault{
		Name: "an istiod that stays away while the bridge restarts removes nothing",
		Break: func(*testing.T) {
			m.Istiod.Kill()
			bridge.Kill()
			bridge.Start(t)
		},
		Lasts:  3 * time.Second,
		Change: func(*testing.T) {},
		Heal: func(t *testing.T) {
			m.Restart(t)
			m.Publish(t)
		},
	})
	m.Try(t, faults.Fault{
		Name:   "a half-open connection to istiod is found within 30 s",
		Break:  func(*testing.T) { m.ToIstiod.BlackHole() },
		Change: m.Grow,
		Heal: func(t *testing.T) {
			took := harness.Eventually(t, 45*time.Second, "the status says that the source is stale", func() error {
				code, out, _ := bridge.Do(t, "status", "-o", "json")
				if !strings.Contains(out, `"stale"`) {
					return harness.Same(code, "stale")
				}
				return nil
			})
			if took > 30*time.Second {
				t.Errorf("found after %s", took)
			}
			m.ToIstiod.Heal()
		},
	})
}
