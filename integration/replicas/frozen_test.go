package replicas

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestFrozenReplica_F04_A46 freezes a replica that has decided to delete the
// last entry of a service and only waits with it. What it knew is wrong by the
// time it goes on: the provider is back, another has come, and another replica
// has the work.
func TestFrozenReplica_F04_A46(t *testing.T) {
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
	w.awaitShared(t)
	w.watchZooKeeper(t, server)
	seen := target.Watch(t, folder(interfaces))
	seen.AwaitSettled(t, soon, "its only entry", func(nodes []string) bool { return len(nodes) == 1 })
	w.judge(t)

	frozen := w.decides(t, folder(interfaces), proxies)
	b, other := w.replicas[frozen], w.replicas[1-frozen]
	before, err := standingOf(t, b)
	if err != nil {
		t.Fatal(err)
	}
	w.znodes.Delete(t, single)
	due := time.Now().Add(waits)
	harness.Eventually(t, soon, "it waits with the deletion", func() error { return reasonOf(t, b, name(interfaces), "waiting") })
	b.Signal(t, syscall.SIGSTOP)
	w.znodes.Create(t, single, "")
	awaitAll(t, other)
	for i := range interfaces { // of each shard something that it has not heard of
		w.add(t, i, 80)
		w.remove(t, i, 1)
		w.await(t, i)
	}
	proxies[frozen].Forget()
	<-time.NewTimer(time.Until(due)).C
	b.Signal(t, syscall.SIGCONT)
	w.awaitShared(t)
	w.judge(t)
	harness.Stays(t, 3*time.Second, "what was frozen writes nothing", func() error {
		return harness.Same(proxies[frozen].Writes("/dubbo"), []harness.ZooKeeperWrite{})
	})
	if n := seen.Fewest(); n != 1 {
		t.Errorf("the only entry of a service was gone, %d were there", n)
	}
	if after, err := standingOf(t, b); err != nil || after.Lost <= before.Lost {
		t.Errorf("it lost its work %d times, before %d: %v", after.Lost, before.Lost, err)
	}
}

// decides returns which replica decides a folder: who writes there.
func (w *world) decides(t *testing.T, folder string, proxies []*harness.ZooKeeperProxy) (index int) {
	t.Helper()
	for _, p := range proxies {
		p.Forget()
	}
	w.znodes.Create(t, w.node(interfaces, 2), "")
	harness.Eventually(t, soon, "one of them writes to "+folder, func() error {
		for i, p := range proxies {
			if len(p.Writes(folder)) > 0 {
				index = i
				return nil
			}
		}
		return errors.New("nobody writes")
	})
	w.znodes.Delete(t, w.node(interfaces, 2))
	harness.Eventually(t, soon, "and takes it back", func() error {
		if n := len(proxies[index].Writes(folder)); n < 2 {
			return fmt.Errorf("%d writes", n)
		}
		return nil
	})
	return index
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
