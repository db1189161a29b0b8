package replicas

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// A subscriber watches all interfaces in the target.
type subscriber interface {
	fewest(i int) int                            // that it was ever told of since it saw all
	await(t *testing.T, i int, want []string)    // until it is told of exactly these
	settled(t *testing.T, i int, addrs []string) // what it is told of now, each once
}

// round is one way in which replicas come and go.
type round struct {
	name string
	do   func(t *testing.T, w *world)
}

// ways are all of them; each leaves as many replicas as there were.
func ways() []round {
	return []round{
		{"SIGTERM and start", func(t *testing.T, w *world) {
			b := w.replicas[0]
			b.Stop(t)
			b.Start(t)
			b.AwaitReady(t)
		}},
		{"kill -9 and start", func(t *testing.T, w *world) {
			b := w.replicas[rand.IntN(len(w.replicas))]
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
			b := w.replicas[0]
			b.Signal(t, syscall.SIGSTOP)
			timer := time.NewTimer(2 * w.ttl)
			<-timer.C
			b.Signal(t, syscall.SIGCONT)
		}},
		{"kill -9 without a replacement, for as long as a take-over takes", func(t *testing.T, w *world) {
			b, other := w.replicas[0], w.replicas[1]
			began := time.Now()
			b.Kill()
			awaitAll(t, other)
			t.Logf("taken over after %s, the ttl is %s", time.Since(began).Truncate(time.Millisecond), w.ttl)
			b.Start(t)
			b.AwaitReady(t)
		}},
	}
}

// awaitAll waits until a replica decides every shard.
func awaitAll(t *testing.T, b *harness.Bridge) {
	t.Helper()
	harness.Eventually(t, soon, "one replica takes everything over", func() error {
		s, err := standingOf(t, b)
		if err == nil && s.count("decider") != len(s.Shards) {
			err = fmt.Errorf("it decides %d", s.count("decider"))
		}
		return err
	})
}

// play goes through the rounds while providers come and go, and a subscriber
// must never see fewer than there truly are.
func (w *world) play(t *testing.T, s subscriber) {
	t.Helper()
	for i := range interfaces {
		s.await(t, i, w.truth(t, i))
	}
	all := ways()
	for n := range rounds() {
		way := all[n%len(all)]
		done := make(chan struct{})
		go func() { // one of them comes and goes meanwhile; three are always there
			defer close(done)
			w.add(t, n%interfaces, 100+n)
		}()
		way.do(t, w)
		<-done
		w.awaitShared(t)
		for i := range interfaces {
			s.await(t, i, w.truth(t, i))
		}
		w.remove(t, n%interfaces, 100+n)
		s.await(t, n%interfaces, w.truth(t, n%interfaces))
		for i := range interfaces {
			if got := s.fewest(i); got < providers {
				t.Fatalf("round %d, %s: of %s only %d were seen, and there were never fewer than %d", n, way.name, name(i), got, providers)
			}
		}
		t.Logf("round %d: %s", n, way.name)
	}
	for i := range interfaces {
		s.settled(t, i, w.truth(t, i))
	}
}

// zkSubscriber watches folders as Dubbo's consumers do.
type zkSubscriber struct {
	znodes  *harness.Znodes
	watches []*harness.ChildrenWatch
}

func folder(i int) string { return "/dubbo/" + name(i) + "/providers" }

func watchZooKeeper(t *testing.T, servers ...string) *zkSubscriber {
	t.Helper()
	s := &zkSubscriber{znodes: harness.Connect(t, servers...)}
	for i := range interfaces {
		harness.Eventually(t, soon, "all entries of "+name(i), func() error {
			return harness.Same(len(s.znodes.Children(t, folder(i))), providers)
		})
		s.watches = append(s.watches, s.znodes.Watch(t, folder(i)))
	}
	return s
}

func (s *zkSubscriber) fewest(i int) int { return s.watches[i].Fewest() }

func (s *zkSubscriber) await(t *testing.T, i int, want []string) {
	t.Helper()
	s.watches[i].AwaitSettled(t, soon, name(i), func(nodes []string) bool { return expect(addressesOf(nodes), want) == nil })
}

func (s *zkSubscriber) settled(t *testing.T, i int, want []string) {
	t.Helper()
	if err := expect(addressesOf(s.znodes.Children(t, folder(i))), want); err != nil {
		t.Error(err)
	}
}

// TestZooKeeper_F03_F04_A46_A47 shows it on a real ensemble of three servers,
// with entries that outlive the bridge and with entries of its session.
func TestZooKeeper_F03_F04_A46_A47(t *testing.T) {
	for _, lifetime := range []string{"persistent", "session"} {
		t.Run(lifetime, func(t *testing.T) {
			nodes := harness.StartEnsemble(t)
			addresses := harness.Addresses(nodes...)
			w := newWorld(t, fmt.Sprintf("zookeeper: { servers: [%s], lifetime: %s, sessionTimeout: 10s }", strings.Join(addresses, ", "), lifetime), "zookeeper: to")
			w.start(t, 2)
			w.play(t, watchZooKeeper(t, addresses...))
		})
	}
}

// sdkSubscriber watches services as consumers with the SDK do.
type sdkSubscriber struct{ watches []*nacossdk.Watch }

func watchNacos(t *testing.T, w *world, server string) *sdkSubscriber {
	t.Helper()
	client, s := nacossdk.Connect(t, server), &sdkSubscriber{}
	for i := range interfaces {
		watch := client.Subscribe(t, "providers:"+name(i)+"::")
		watch.Await(t, soon, w.truth(t, i)...)
		s.watches = append(s.watches, watch)
	}
	return s
}

func (s *sdkSubscriber) fewest(i int) int {
	fewest, all := providers, false
	for _, list := range s.watches[i].Lists() {
		all = all || len(list.Addresses) >= providers
		if all {
			fewest = min(fewest, len(list.Addresses))
		}
	}
	return fewest
}

func (s *sdkSubscriber) await(t *testing.T, i int, want []string) {
	t.Helper()
	s.watches[i].Await(t, soon, want...)
}

func (s *sdkSubscriber) settled(t *testing.T, i int, want []string) { t.Helper(); s.await(t, i, want) }

// TestNacos_F03_F04_A46_A47 shows it on the real servers of both versions, in
// which an entry lives only as long as a connection that publishes it.
func TestNacos_F03_F04_A46_A47(t *testing.T) {
	for _, version := range harness.NacosVersions() {
		t.Run(fmt.Sprintf("Nacos %d", version), func(t *testing.T) {
			server := harness.StartNacos(t, harness.NacosOptions{Version: version})
			w := newWorld(t, fmt.Sprintf("nacos: { servers: [%q] }", server.URL), "zookeeper: from")
			w.start(t, 2)
			w.play(t, watchNacos(t, w, server.URL))
		})
	}
}
