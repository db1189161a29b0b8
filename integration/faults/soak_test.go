//go:build soak

package faults_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/history"
)

// soak is a ZooKeeper that is kept in another, and instances that come and go
// in the first.
type soak struct {
	*history.Recorder

	from, to *harness.Znodes
	bridge   *harness.Bridge
	services int
	each     int // instances of a service
	watches  []*harness.ChildrenWatch
	lags     []time.Duration
}

// TestSoak has thousands of instances come and go, 30,000 in make soak and
// 1,500 else: memory and goroutines end where they were, and every history is
// as it has to be.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := &soak{Recorder: history.New(), services: 15, each: 100}
	cycles := 3
	if text := os.Getenv("XDS_BRIDGE_INSTANCES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("XDS_BRIDGE_INSTANCES: %v", err)
		}
		s.services, cycles = n/s.each, 6
	}
	s.start(t)
	var heap, goroutines []float64
	for cycle := range cycles {
		s.up(t)
		s.measure(t, cycle)
		s.down(t)
		s.Judge(t)
		heap = append(heap, faults.Metric(t, s.bridge, "go_memstats_heap_inuse_bytes"))
		goroutines = append(goroutines, faults.Metric(t, s.bridge, "go_goroutines"))
		t.Logf("cycle %d: slowest change %s, heap in use %.0f MiB, %v goroutines",
			cycle, slices.Max(s.lags[50*cycle:]), heap[cycle]/(1<<20), goroutines[cycle])
	}
	slices.Sort(s.lags)
	p99 := s.lags[len(s.lags)*99/100]
	t.Logf("%d instances up and down %d times: lag p50 %s, p99 %s; heap in use %.0f MiB after the first cycle, %.0f MiB after the last; %v and %v goroutines",
		s.services*s.each, cycles, s.lags[len(s.lags)/2], p99, heap[0]/(1<<20), heap[cycles-1]/(1<<20), goroutines[0], goroutines[cycles-1])
	if p99 > 5*time.Second {
		t.Errorf("the lag of one in a hundred changes is %s", p99)
	}
	if heap[cycles-1] > 1.5*slices.Max(heap[:cycles-1])+16<<20 {
		t.Errorf("heap in use after each cycle: %v", heap)
	}
	if goroutines[cycles-1] > goroutines[0]+10 {
		t.Errorf("goroutines after each cycle: %v", goroutines)
	}
}

func (s *soak) start(t *testing.T) {
	t.Helper()
	from, to := harness.StartZooKeeper(t, "-Xmx1g"), harness.StartZooKeeper(t, "-Xmx1g")
	s.from, s.to = harness.Connect(t, from.Address), harness.Connect(t, to.Address)
	for n := range s.services {
		s.from.Create(t, faults.ProvidersPath(s.iface(n)), "")
	}
	s.bridge = harness.ConfiguredBridge(t, fmt.Sprintf(`owner: soak
registries:
  near: { zookeeper: { servers: [%q] } }
  far: { zookeeper: { servers: [%q] } }
bridges:
  - { name: onward, from: near, to: far, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }`,
		from.Address, to.Address, harness.Swift))
	parents := make(map[string]string)
	for n := range s.services {
		parent := faults.ProvidersPath(s.iface(n))
		s.watches = append(s.watches, s.to.Watch(t, parent))
		s.Subscribe(s.iface(n), "consumer", s.watches[n])
		parents[parent] = s.iface(n)
	}
	s.Writes(harness.Log(to), parents, s.to)
	s.bridge.Start(t)
	s.bridge.AwaitReady(t)
}

func (*soak) iface(n int) string { return fmt.Sprintf("api.Soak%d", n) }

// instances are the ports of all instances of a service, and their paths.
func (s *soak) instances(n int) (ports []int, paths []string) {
	for i := range s.each {
		ports = append(ports, 10000+i)
		paths = append(paths, faults.Registered(s.iface(n), 10000+i))
	}
	return ports, paths
}

func (s *soak) up(t *testing.T) {
	t.Helper()
	for n := range s.services {
		ports, paths := s.instances(n)
		s.Has(s.iface(n), faults.Addresses(ports...)...)
		s.from.CreateAll(t, paths)
	}
	s.await(t)
}

func (s *soak) down(t *testing.T) {
	t.Helper()
	for n := range s.services {
		_, paths := s.instances(n)
		s.Has(s.iface(n))
		s.from.DeleteAll(t, paths)
	}
	s.await(t)
}

// await waits until a subscriber of every service sees what it has.
func (s *soak) await(t *testing.T) {
	t.Helper()
	for n := range s.services {
		harness.Eventually(t, 5*time.Minute, s.iface(n)+" is on the far side", func() error { return s.Shown(s.iface(n)) })
	}
}

// measure has single instances come while all the others are there, and records
// how long a subscriber waits for each.
func (s *soak) measure(t *testing.T, cycle int) {
	t.Helper()
	for k := range 50 {
		n, port := k%s.services, 30000+100*cycle+k
		watch, at := s.watches[n], faults.Registered(s.iface(n), port)
		ports, _ := s.instances(n)
		s.Has(s.iface(n), faults.Addresses(append(slices.Clone(ports), port)...)...)
		began := time.Now()
		s.from.Create(t, at, "")
		seen := watch.AwaitLatest(t, time.Minute, "the new one is seen", func(names []string) bool { return len(names) == s.each+1 })
		s.lags = append(s.lags, seen.Sub(began))
		s.Has(s.iface(n), faults.Addresses(ports...)...)
		s.from.Delete(t, at)
		watch.AwaitLatest(t, time.Minute, "it is gone", func(names []string) bool { return len(names) == s.each })
	}
}
