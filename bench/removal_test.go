package bench_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

const (
	losing = 100 // services that lose endpoints
	held   = 3   // endpoints of each of them
)

// TestRemoval measures the whole way of a removal from a registry through the program
// into each target, next to that of an addition in the same run. No service loses its
// last endpoint, which waits by design.
func TestRemoval(t *testing.T) {
	t.Run("ZooKeeper", func(t *testing.T) {
		server := harness.StartZooKeeper(t)
		removals(t, "ZooKeeper", server.Process(), fmt.Sprintf("zookeeper: { servers: [%q] }", server.Address), func(t *testing.T, s *shown) {
			t.Helper()
			s.inZooKeeper(t, server.Address)
		})
	})
	for _, version := range harness.NacosVersions() {
		t.Run(fmt.Sprintf("Nacos %d", version), func(t *testing.T) {
			server := harness.StartNacos(t, harness.NacosOptions{Version: version})
			removals(t, fmt.Sprintf("Nacos %d", version), server.Process(), fmt.Sprintf("nacos: { %s }", server.Settings()), func(t *testing.T, s *shown) {
				t.Helper()
				s.inNacos(t, server)
			})
		})
	}
	t.Run("Kubernetes", func(t *testing.T) {
		server := harness.StartKubernetes(t)
		server.InstallIstio(t)
		server.Namespace(t, "xds-bridge")
		settings := fmt.Sprintf("kubernetes: { kubeconfig: %q }", server.Kubeconfig(t, harness.Administrator))
		removals(t, "Kubernetes", server.Process(), settings, func(t *testing.T, s *shown) {
			t.Helper()
			s.inKubernetes(t, server)
		})
	})
}

// removals measures one target: one endpoint of each service at once, and then changes
// one after the other.
func removals(t *testing.T, name string, server *harness.Process, settings string, show func(*testing.T, *shown)) {
	t.Helper()
	p := newProviders(t)
	p.start(t, settings)
	s := &shown{added: make(map[string]time.Time), gone: make(map[string]time.Time), now: make([]map[string]bool, losing)}
	show(t, s)
	for i := range losing {
		for n := range held {
			s.await(t, s.added, provided(i, n))
		}
	}
	contest{
		what: fmt.Sprintf("one endpoint of each of %d services goes at once from %s, beside as many that come", losing, name), rounds: 5, limit: 1.5,
		floor: func(int) spent { return apart(t, server, func() { p.allAt(t, s, true) }) },
		ours:  func(int) spent { return apart(t, server, func() { p.allAt(t, s, false) }) },
	}.run(t)
	p.churn(t, s, name)
}

// apart is a turn that timing.debounce of the changes before it does not delay.
func apart(t *testing.T, server *harness.Process, do func()) spent {
	t.Helper()
	time.Sleep(200 * time.Millisecond)
	return turn(t, server, do)
}

// providers register in a ZooKeeper, from which a bridge copies.
type providers struct {
	source      *harness.Znodes
	first, next [losing]int // of each service: its oldest endpoint, and the one that comes next
}

func provided(i, n int) string { return fmt.Sprintf("10.1.%d.%d:20880", i, n+1) }

func losingIface(i int) string { return fmt.Sprintf("removal.Api%03d", i) }

func registered(i, n int) string {
	return "/dubbo/" + losingIface(i) + "/providers/" + url.QueryEscape(fmt.Sprintf("tri://%s/%s?application=shop&category=providers&interface=%[2]s&side=provider", provided(i, n), losingIface(i)))
}

func newProviders(t *testing.T) *providers {
	t.Helper()
	p := &providers{}
	for i := range losing {
		p.next[i] = held
	}
	return p
}

// start starts the source and a bridge from it.
func (p *providers) start(t *testing.T, target string) {
	t.Helper()
	from := harness.StartZooKeeper(t)
	p.source = harness.Connect(t, from.Address)
	var all []string
	for i := range losing {
		p.source.Create(t, "/dubbo/"+losingIface(i)+"/providers", "")
		for n := range held {
			all = append(all, registered(i, n))
		}
	}
	p.source.CreateAll(t, all)
	b := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: removal
registries:
  from: { zookeeper: { servers: [%q] } }
  to: { %s }
bridges:
  - { name: copy, from: from, to: to, formats: [dubbo-interface] }
`, from.Address, target))
	b.Start(t)
	b.AwaitReady(t)
}

// allAt registers one endpoint of each service at once, or removes the oldest, and waits
// until the target shows that.
func (p *providers) allAt(t *testing.T, s *shown, comes bool) { //nolint:revive // what happens, not a mode
	t.Helper()
	var paths, addresses []string
	for i := range losing {
		n := p.step(i, comes)
		paths, addresses = append(paths, registered(i, n)), append(addresses, provided(i, n))
	}
	seen := s.gone
	if comes {
		seen = s.added
		p.source.CreateAll(t, paths)
	} else {
		p.source.DeleteAll(t, paths)
	}
	for _, a := range addresses {
		s.await(t, seen, a)
	}
}

// step returns which endpoint of a service comes or goes next.
func (p *providers) step(i int, comes bool) int { //nolint:revive // as above
	n := &p.first[i]
	if comes {
		n = &p.next[i]
	}
	*n++
	return *n - 1
}

// churn has endpoints go and come in turn, each of another service.
func (p *providers) churn(t *testing.T, s *shown, name string) {
	t.Helper()
	const (
		rate    = 20 // changes a second
		changes = 60 * rate
	)
	leftAt, cameAt := make(map[string]time.Time, changes), make(map[string]time.Time, changes)
	began := time.Now()
	for k := range changes {
		if ahead := time.Duration(k)*time.Second/rate - time.Since(began); ahead > 0 {
			time.Sleep(ahead)
		}
		i, comes := k/2%losing, k%2 == 1
		if comes {
			i = (i + losing/2) % losing // so that no service does both at once
		}
		n := p.step(i, comes)
		if comes {
			cameAt[provided(i, n)] = time.Now()
			p.source.CreateAll(t, []string{registered(i, n)})
		} else {
			leftAt[provided(i, n)] = time.Now()
			p.source.DeleteAll(t, []string{registered(i, n)})
		}
	}
	lags := func(seen, since map[string]time.Time) (all []time.Duration) {
		for address, at := range since {
			all = append(all, s.await(t, seen, address).Sub(at))
		}
		return all
	}
	gone, came := lags(s.gone, leftAt), lags(s.added, cameAt)
	what := fmt.Sprintf("%d changes a second for a minute into %s, until an endpoint is gone beside until one is there, ", rate, name)
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
		limit := 0.0 // of the tail: some removals wait until Nacos shows a record, which takes up to a second
		if q.q == 0.5 {
			limit = 1.5
		}
		results.add(t, against(what+q.name, quantile(gone, q.q), quantile(came, q.q), limit))
	}
	results.add(t, against(what+"p99 against three seconds", quantile(gone, 0.99), 3*time.Second, 1))
}

// shown is when a client of a target saw endpoints come and go, by their addresses. None
// does either twice.
type shown struct {
	mu          sync.Mutex
	added, gone map[string]time.Time
	now         []map[string]bool // by service
}

// show records what a service has.
func (s *shown) show(i int, addresses []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, before := time.Now(), s.now[i]
	s.now[i] = make(map[string]bool, len(addresses))
	for _, a := range addresses {
		if s.now[i][a] = true; !before[a] {
			s.added[a] = at
		}
	}
	for a := range before {
		if !s.now[i][a] {
			s.gone[a] = at
		}
	}
}

// await waits until an address is seen and returns when it was.
func (s *shown) await(t *testing.T, in map[string]time.Time, address string) time.Time {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		at, seen := in[address]
		s.mu.Unlock()
		if seen {
			return at
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%s is not seen", address)
		}
	}
}

// inZooKeeper watches the parent of each service, as a consumer does.
func (s *shown) inZooKeeper(t *testing.T, server string) {
	t.Helper()
	r := dialRaw(t, server)
	for i := range losing {
		go func() {
			for {
				names, _, changed, err := r.conn.ChildrenW("/dubbo/" + losingIface(i) + "/providers")
				if errors.Is(err, zk.ErrNoNode) {
					var there bool
					if there, _, changed, err = r.conn.ExistsW("/dubbo/" + losingIface(i) + "/providers"); there {
						continue // since a moment ago
					}
				}
				if err != nil {
					return
				}
				var addresses []string
				for _, name := range names {
					text, _ := url.QueryUnescape(name)
					if u, err := url.Parse(text); err == nil {
						addresses = append(addresses, u.Host)
					}
				}
				s.show(i, addresses)
				<-changed
			}
		}()
	}
}

// inNacos subscribes to each service, as a consumer does.
func (s *shown) inNacos(t *testing.T, server *harness.Nacos) {
	t.Helper()
	consumer := nacossdk.ConnectTo(t, server)
	for i := range losing {
		w := consumer.Subscribe(t, "providers:"+losingIface(i)+"::")
		go s.follow(t, func() { s.show(i, w.Last()) })
	}
}

// follow looks again and again until the test ends.
func (*shown) follow(t *testing.T, look func()) {
	t.Helper()
	const often = 20 * time.Millisecond
	for tick := time.NewTicker(often); t.Context().Err() == nil; <-tick.C {
		look()
	}
}

// inKubernetes lists the objects again and again.
func (s *shown) inKubernetes(t *testing.T, server *harness.Kubernetes) {
	t.Helper()
	go s.follow(t, func() {
		_, answer, err := server.Request(t, http.MethodGet, "/apis/networking.istio.io/v1/namespaces/xds-bridge/serviceentries", "", "")
		var list struct {
			Items []struct {
				Spec struct {
					Endpoints []struct{ Address string } `json:"endpoints"`
				} `json:"spec"`
			} `json:"items"`
		}
		if err != nil || json.Unmarshal([]byte(answer), &list) != nil {
			return
		}
		for _, o := range list.Items {
			var addresses []string
			i := -1
			for _, e := range o.Spec.Endpoints {
				addresses = append(addresses, e.Address+":20880")
				_, _ = fmt.Sscanf(strings.ReplaceAll(e.Address, ".", " "), "10 1 %d", &i)
			}
			if i >= 0 {
				s.show(i, addresses)
			}
		}
	})
}
