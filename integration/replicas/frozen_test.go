package replicas

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestFrozenReplica freezes a replica that has decided to delete the
// last entry of a service and only waits with it. What it knew is wrong by the
// time it continues: the provider is back, another has come, and another replica
// has the work.
func TestFrozenReplica(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const waits = 15 * time.Second // longer than a replica that is silent keeps its work
	server := harness.StartZooKeeper(t)
	target := harness.Connect(t, server.Address)
	w := newWorld(t, "", "zookeeper: to")
	w.guard = fmt.Sprintf("lastEndpoint: %s, settle: 0s, share: 1", waits)
	single := w.node(interfaces, 1) // a service of one provider
	w.znodes.Create(t, single, "")
	var proxies []*harness.ZooKeeperProxy
	for range 2 {
		p := harness.StartZooKeeperProxy(t, server.Address)
		proxies = append(proxies, p)
		w.registry = fmt.Sprintf("zookeeper: { servers: [%q], sessionTimeout: 10s }", p.Address)
		b := w.replica(t)
		b.Start(t)
		w.replicas = append(w.replicas, b)
	}
	w.awaitReady(t)
	w.watchZooKeeper(t, server)
	seen := target.Watch(t, parent(interfaces))
	seen.AwaitLatest(t, soon, "its only entry", func(nodes []string) bool { return len(nodes) == 1 })
	w.judge(t)

	frozen := w.leader(t)
	b, other := w.replicas[frozen], w.replicas[1-frozen]
	before, err := leadershipOf(t, b)
	if err != nil {
		t.Fatal(err)
	}
	w.znodes.Delete(t, single)
	due := time.Now().Add(waits)
	harness.Eventually(t, soon, "it waits with the deletion", func() error { return reasonOf(t, b, name(interfaces), "waiting") })
	b.Signal(t, syscall.SIGSTOP)
	w.znodes.Create(t, single, "")
	awaitLeader(t, other)
	for i := range interfaces { // things that it has not heard of
		w.add(t, i, 80)
		w.remove(t, i, 1)
		w.await(t, i)
	}
	proxies[frozen].Forget()
	<-time.NewTimer(time.Until(due)).C
	b.Signal(t, syscall.SIGCONT)
	w.awaitReady(t)
	w.judge(t)
	harness.Stays(t, 3*time.Second, "what was frozen writes nothing", func() error {
		return harness.Same(proxies[frozen].Writes("/dubbo"), []harness.ZooKeeperWrite{})
	})
	if n := seen.Fewest(); n != 1 {
		t.Errorf("the only entry of a service was gone, %d were there", n)
	}
	if after, err := leadershipOf(t, b); err != nil || after.Lost <= before.Lost {
		t.Errorf("it lost its work %d times, before %d: %v", after.Lost, before.Lost, err)
	}
}

// awaitLeader waits until a replica leads.
func awaitLeader(t *testing.T, b *harness.Bridge) {
	t.Helper()
	harness.Eventually(t, soon, "another replica leads", func() error {
		s, err := leadershipOf(t, b)
		if err == nil && !s.leads() {
			err = fmt.Errorf("%+v", s.Elections)
		}
		return err
	})
}

// reasonOf reports an error where a replica gives a service another reason.
func reasonOf(t *testing.T, b *harness.Bridge, service, reason string) error {
	t.Helper()
	_, out, errOut := b.Do(t, "status", "-o", "json")
	var d struct {
		Loops []struct {
			Services []struct {
				Service string `json:"service"`
				Reason  string `json:"reason"`
			} `json:"services"`
		} `json:"loops"`
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return fmt.Errorf("status: %w: %s", err, errOut)
	}
	for _, l := range d.Loops {
		for _, s := range l.Services {
			if strings.Contains(s.Service, service) && s.Reason == reason {
				return nil
			}
		}
	}
	return fmt.Errorf("%s is not %s: %s", service, reason, out)
}
