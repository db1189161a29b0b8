package replicas

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

// round is one manner in which replicas come and go: the leader, where it is one.
type round struct {
	name string
	do   func(t *testing.T, w *world)
}

// replacements are all of them; each leaves as many replicas as there were.
func replacements() []round {
	return []round{
		{"SIGTERM and start", func(t *testing.T, w *world) {
			b := w.replicas[w.leader(t)]
			b.Stop(t)
			b.Start(t)
			b.AwaitReady(t)
		}},
		{"kill -9 and start", func(t *testing.T, w *world) {
			b := w.replicas[w.leader(t)]
			b.Kill()
			b.Start(t)
			b.AwaitReady(t)
		}},
		{"a rolling update", func(t *testing.T, w *world) {
			for i, old := range w.replicas {
				next := w.replica(t)
				next.Start(t)
				next.AwaitReady(t)
				old.Stop(t)
				w.replicas[i] = next
			}
		}},
		{"SIGSTOP past the ttl", func(t *testing.T, w *world) {
			b := w.replicas[w.leader(t)]
			b.Signal(t, syscall.SIGSTOP)
			timer := time.NewTimer(2 * w.ttl)
			<-timer.C
			b.Signal(t, syscall.SIGCONT)
		}},
		{"kill -9 without a replacement, for as long as the next leader is awaited", func(t *testing.T, w *world) {
			b := w.replicas[w.leader(t)]
			began := time.Now()
			b.Kill()
			w.leader(t)
			t.Logf("led after %s, the ttl is %s", time.Since(began).Truncate(time.Millisecond), w.ttl)
			b.Start(t)
			b.AwaitReady(t)
		}},
	}
}

// play goes through the rounds while providers come and go, and has each
// judged.
func (w *world) play(t *testing.T) {
	t.Helper()
	w.judge(t)
	all := replacements()
	for n := range rounds(t) {
		next := all[n%len(all)]
		done := make(chan struct{})
		go func() { // one provider comes and goes meanwhile; three are always there
			defer close(done)
			w.add(t, n%interfaces, 100+n)
		}()
		next.do(t, w)
		<-done
		w.awaitReady(t)
		w.judge(t)
		w.remove(t, n%interfaces, 100+n)
		w.judge(t)
		if t.Failed() {
			t.Fatalf("in round %d: %s", n, next.name)
		}
		t.Logf("round %d: %s", n, next.name)
	}
}

func parent(i int) string { return "/dubbo/" + name(i) + "/providers" }

// watchZooKeeper watches parent znodes as Dubbo's consumers do, from when they hold
// all on, and has what is written there recorded.
func (w *world) watchZooKeeper(t *testing.T, servers ...*harness.ZooKeeper) {
	t.Helper()
	znodes, parents := harness.Connect(t, harness.Addresses(servers...)...), make(map[string]string)
	for i := range interfaces {
		harness.Eventually(t, soon, "all entries of "+name(i), func() error {
			return harness.Same(len(znodes.Children(t, parent(i))), providers)
		})
		w.Subscribe(name(i), "consumer", znodes.Watch(t, parent(i)))
		parents[parent(i)] = name(i)
	}
	w.Writes(harness.Log(servers...), parents, znodes)
}

// TestZooKeeper shows it on a real ensemble of three servers,
// with entries that outlive the bridge and with entries of its session.
func TestZooKeeper(t *testing.T) {
	t.Parallel()
	for _, lifetime := range []string{"persistent", "session"} {
		t.Run(lifetime, func(t *testing.T) {
			if lifetime == "session" {
				harness.Long(t)
			}
			t.Parallel()
			nodes := harness.StartEnsemble(t)
			addresses := harness.Addresses(nodes...)
			w := newWorld(t, fmt.Sprintf("zookeeper: { servers: [%s], lifetime: %s, sessionTimeout: 10s }", strings.Join(addresses, ", "), lifetime), "zookeeper: to")
			w.start(t, 3)
			if lifetime == "session" {
				// Entries go with the session that made them: the next one that
				// writes a service makes each again, instead of the old one.
				defer w.Allow([]guarantees.Guarantee{guarantees.NoSpuriousWrite})()
			}
			w.watchZooKeeper(t, nodes...)
			w.play(t)
		})
	}
}

// watchNacos watches services as consumers with the SDK do.
func (w *world) watchNacos(t *testing.T, server *harness.Nacos) {
	t.Helper()
	client := nacossdk.ConnectTo(t, server)
	for i := range interfaces {
		watch := client.Subscribe(t, "providers:"+name(i)+"::")
		watch.Await(t, soon, w.Truth()[name(i)]...)
		w.Subscribe(name(i), "consumer", watch)
	}
}

// TestNacos shows it on the real servers of both versions, in
// which an entry exists only as long as a connection that publishes it.
func TestNacos(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for _, version := range harness.NacosVersions() {
		t.Run(fmt.Sprintf("Nacos %d", version), func(t *testing.T) {
			t.Parallel()
			server := harness.SharedNacos(t, version)
			w := newWorld(t, "nacos: { "+server.Settings()+" }", "zookeeper: from")
			w.start(t, 3)
			w.watchNacos(t, server)
			w.play(t)
		})
	}
}
