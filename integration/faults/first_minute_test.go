package faults_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/history"
)

// A trial is a bridge in both directions with the default timing and guard, between a
// service of its own in the mesh and one in ZooKeeper, that is killed again and
// again.
type trial struct {
	bridge  *harness.Bridge
	runs    []time.Duration // that are still to come, the present one first
	started time.Time
	out, in string // the interfaces of the mesh and of ZooKeeper
	base    int    // the first port of either
	first   int    // how many have gone of either
}

// Each service of a trial has 8 providers, of which the oldest goes and another
// comes in each run.
const providersOfTrial = 8

func (m *trial) outs() []int { return ports(m.base+m.first, providersOfTrial) }

func (m *trial) ins() []int { return ports(m.base+100+m.first, providersOfTrial) }

func ports(first, n int) (all []int) {
	for i := range n {
		all = append(all, first+i)
	}
	return all
}

// TestFirstMinute kills bridges at each second of their first minute, the first
// one ever of some among them. No live provider goes from any list. What went
// while five runs in a row were too short to let it go is a loss of a third, and may
// be held: an operator approves that, and all agree.
func TestFirstMinute(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const bridges, minute = 12, 60
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	services, record := harness.NewMesh(t), history.New()
	put := faults.InZooKeeper(znodes)
	host := func(m *trial) string { return m.out + ".shop.svc.cluster.local" }
	provide := func(m *trial, before []int) {
		services.Apply(t, harness.Service{Host: host(m), Port: 20000, Endpoints: harness.Local(m.outs()...)})
		put(t, m.in, before, m.ins())
		record.Has(m.out, faults.Addresses(m.outs()...)...)
		record.Has(m.in, faults.Addresses(m.ins()...)...)
	}
	xds, debug := harness.Address(t), harness.Address(t)
	keys := make(map[string]string)
	var trials []*trial
	for n := range bridges {
		m := &trial{out: fmt.Sprintf("out%d", n), in: fmt.Sprintf("in%d", n), base: 20000 + 1000*n}
		for second := n + 1; second <= minute; second += bridges {
			m.runs = append(m.runs, time.Duration(second)*time.Second)
		}
		listen := harness.Address(t)
		m.bridge = harness.ConfiguredBridge(t, fmt.Sprintf(`owner: trial-%d
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q] } } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface], select: { include: [%q], allow: [127.0.0.0/8] } }
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [dubbo-interface], select: { include: [%q], allow: [127.0.0.0/8] } }
`, n, xds, debug, server.Address, host(m), listen, m.in))
		services.From(listen)
		provide(m, nil)
		keys[faults.Key(m.out)] = host(m) + ":20000"
		record.Subscribe(m.out, "a consumer", znodes.Watch(t, faults.ProvidersPath(m.out)))
		trials = append(trials, m)
	}
	for _, m := range trials {
		m.bridge.Start(t)
		m.started = time.Now()
	}
	istiod := harness.StartIstiodAt(t, services, xds, debug)
	harness.Publish(t, istiod.GRPC, "shop", keys)
	for _, m := range trials {
		record.Subscribe(m.in, "a client of istiod", harness.WatchEndpoints(t, istiod.GRPC, faults.ImportedCluster("zk", m.in)))
	}
	for dying := bridges; dying > 0; <-time.NewTimer(50 * time.Millisecond).C {
		for _, m := range trials {
			if len(m.runs) == 0 || time.Since(m.started) < m.runs[0] {
				continue
			}
			m.bridge.Kill()
			before := m.ins()
			m.first++
			provide(m, before)
			m.bridge.Start(t)
			m.started = time.Now()
			if m.runs = slices.Delete(m.runs, 0, 1); len(m.runs) == 0 {
				dying--
			}
		}
	}
	defer record.Judge(t)
	harness.Eventually(t, 4*time.Minute, "every list is whole", func() error {
		var failed error
		for _, m := range trials {
			held, err := faults.Holds(t, m.bridge)
			if failed = errors.Join(failed, err); len(held) == 0 {
				continue
			}
			if code, out, errOut := m.bridge.Do(t, "approve", held[0]); code != 0 {
				failed = errors.Join(failed, fmt.Errorf("approve: %s%s", out, errOut))
			}
		}
		for name := range record.Truth() {
			failed = errors.Join(failed, record.Shown(name))
		}
		return failed
	})
}
