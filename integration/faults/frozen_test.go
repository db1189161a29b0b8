package faults_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// saysAway waits until the bridge says that a registry is away, though there is
// nothing to do there: the status is not in sync, and a metric is what it is
// not in good times.
func saysAway(t *testing.T, b *harness.Bridge, metric string, value float64) {
	t.Helper()
	harness.Eventually(t, faults.HealTime, metric+" and the status say that it is away", func() error {
		code, out, errOut := b.Do(t, "status")
		if code != 1 || strings.Contains(out, ", in sync") {
			return fmt.Errorf("status ended with %d, want 1:\n%s%s", code, out, errOut)
		}
		return harness.Same(faults.Metric(t, b, metric), value)
	})
}

// frozenZooKeeper stops the process of the target for longer than a session.
func frozenZooKeeper(t *testing.T, m *faults.Mesh, server *harness.ZooKeeper, znodes *harness.Znodes) {
	t.Helper()
	before := znodes.Tree(t, faults.ProvidersPath(faults.SteadyInterface))
	m.Try(t, faults.Fault{
		Name:  "a frozen ZooKeeper is reported while there is nothing to do, loses nothing, and is written to when it continues",
		Break: func(t *testing.T) { server.Process().Signal(t, syscall.SIGSTOP) },
		Change: func(t *testing.T) {
			saysAway(t, m.Bridge, `xdsbridge_registry_up{direction="target",kind="zookeeper",listen="",registry="zk"}`, 0)
			m.Change(t)
		},
		Heal: func(t *testing.T) { server.Process().Signal(t, syscall.SIGCONT) },
		After: func(t *testing.T) {
			if err := harness.Same(znodes.Tree(t, faults.ProvidersPath(faults.SteadyInterface)), before); err != nil {
				t.Errorf("what did not change was touched: %v", err)
			}
		},
	})
}

// frozenSource stops the process of a ZooKeeper whose providers are served to
// istiod.
func frozenSource(t *testing.T, i *faults.Imports, server *harness.ZooKeeper) {
	t.Helper()
	i.Try(t, faults.Fault{
		Name:   "a ZooKeeper that is frozen is reported, removes nothing, and is followed when it continues",
		Break:  func(t *testing.T) { server.Process().Signal(t, syscall.SIGSTOP) },
		Change: func(t *testing.T) { saysAway(t, i.Bridge, `xdsbridge_source_stale{registry="zk"}`, 1) },
		Heal:   func(t *testing.T) { server.Process().Signal(t, syscall.SIGCONT) },
		After: func(t *testing.T) {
			i.Change(t)
			i.Agree(t)
		},
	})
}

// reset ends the streams to istiod and waits until there are others.
func reset(m *faults.Mesh, b *harness.Bridge) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		const opened = `xdsbridge_xds_streams_total`
		before := sum(t, b, opened)
		m.ToIstiod.Reset()
		harness.Eventually(t, faults.HealTime, "another stream", func() error {
			if n := sum(t, b, opened); n <= before {
				return fmt.Errorf("%v streams, before %v", n, before)
			}
			return nil
		})
	}
}

// sum returns the sum of a metric over its labels.
func sum(t *testing.T, b *harness.Bridge, name string) (total float64) {
	t.Helper()
	for line := range strings.Lines(b.Metrics(t)) {
		if strings.HasPrefix(line, name+"{") {
			var value float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value); err != nil {
				t.Fatal(err)
			}
			total += value
		}
	}
	return total
}

// recordWrites does something that may write nothing, and from then on records what is
// written.
func recordWrites(t *testing.T, m *faults.Mesh, target *harness.ZooKeeperProxy, do func(*testing.T)) {
	t.Helper()
	m.Agree(t)
	target.Forget()
	do(t)
	harness.Stays(t, 2*time.Second, "nothing is written", func() error {
		return harness.Same(target.Writes("/dubbo"), []harness.ZooKeeperWrite{})
	})
}

// wroteOneChange fails the test where more was written than a change: one entry
// less and one more.
func wroteOneChange(t *testing.T, target *harness.ZooKeeperProxy) {
	t.Helper()
	ops := make(map[string]int)
	for _, w := range target.Writes("/dubbo") {
		if !strings.HasPrefix(w.Path, faults.ProvidersPath(faults.MovingInterface)+"/") {
			t.Errorf("%s of %s", w.Operation, w.Path)
		}
		ops[w.Operation]++
	}
	if err := harness.Same(ops, map[string]int{"create": 1, "delete": 1}); err != nil {
		t.Errorf("writes: %v", err)
	}
}

// whole fails the test where a subscriber of a service was sent a part of it since a
// moment: some addresses, and fewer than entries.
func whole(t *testing.T, o *faults.Oracle, service string, since time.Time, entries int) {
	t.Helper()
	for _, list := range o.Notifications(service) {
		if n := len(list.Addresses); list.At.After(since) && n != 0 && n != entries {
			t.Errorf("a subscriber of %s saw a part of it after %s: %v", service, list.At.Sub(since), list.Addresses)
		}
	}
}
