package faults_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestScarce gives a bridge little memory and few files, and floods its ports.
func TestScarce(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	toZooKeeper := harness.StartProxy(t, server.Address)
	m := faults.StartMesh(t)
	const memory = 40 << 20
	config := strings.Replace(meshToZooKeeper(m, "", patient, toZooKeeper.Address), "guard:",
		`names: [{ host: "load-*.shop.svc.cluster.local", interface: "api.Load*" }], guard:`, 1)
	bridge := harness.ConfiguredBridge(t, config)
	bridge.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", memory)}
	const files = 48
	bridge.Before = []string{"prlimit", fmt.Sprintf("--nofile=%d:%[1]d", files)}
	keptBy(t, m, znodes, bridge, server)

	m.Try(t, faults.Fault{
		Name: "eight hundred services at once and little memory: all are written, and nobody else's suffer",
		Break: func(t *testing.T) {
			var services []harness.Service
			for n := range 800 {
				services = append(services, harness.Service{
					Host: fmt.Sprintf("load-%d.shop.svc.cluster.local", n), Port: 20000, Endpoints: harness.Local(14001, 14002, 14003),
				})
			}
			m.Services.ApplyTogether(t, "load", services...)
		},
		After: func(t *testing.T) {
			harness.Eventually(t, 2*faults.HealTime, "every entry is there", func() error {
				return harness.Same(entriesBelow(t, znodes, "/dubbo", "api.Load"), 2400)
			})
			harness.Eventually(t, 2*faults.HealTime, "the status reports every service as it is", func() error { return saysLoad(t, bridge, 800, 3) })
			used := faults.Metric(t, bridge, "go_memstats_sys_bytes") - faults.Metric(t, bridge, "go_memstats_heap_released_bytes")
			if used > 1.5*memory {
				t.Errorf("%.0f MiB are used", used/(1<<20))
			}
			t.Logf("%.0f MiB are used, %.0f with the program's text", used/(1<<20), faults.Metric(t, bridge, "process_resident_memory_bytes")/(1<<20))
		},
	})
	floods(t, m, bridge, toZooKeeper)
}

// saysLoad reports where the bridge does not say of so many services that each
// of them is there with so many entries.
func saysLoad(t *testing.T, b *harness.Bridge, services, entries int) error {
	t.Helper()
	all, err := faults.Says(t, b)
	if err != nil {
		return err
	}
	n := 0
	for _, s := range all {
		if !strings.HasPrefix(s.Service, "load-") {
			continue
		}
		if s.Reason != "synced" || s.Entries != entries {
			return fmt.Errorf("it says %+v", s)
		}
		n++
	}
	return harness.Same(n, services)
}

// floods opens connections to the ports of a bridge that has few files.
func floods(t *testing.T, m *faults.Mesh, bridge *harness.Bridge, toZooKeeper *harness.Proxy) {
	t.Helper()
	var opened []net.Conn
	var running sync.WaitGroup
	var asked atomic.Int64
	stop := make(chan struct{})
	before := faults.Metric(t, bridge, "go_goroutines")
	m.Try(t, faults.Fault{
		Name: "a flood of requests, slow ones and a huge one at the admin port hold nothing up",
		Break: func(t *testing.T) {
			opened = slowly(t, bridge.Admin, 10)
			for range 8 {
				running.Go(func() { flood(t, bridge.Admin, stop, &asked) })
			}
		},
		Change: func(t *testing.T) { // while it lasts
			flooding := func() error {
				if asked.Load() < 100 {
					return errors.New("there is no flood yet")
				}
				return nil
			}
			harness.Eventually(t, faults.HealTime, "the flood has begun", flooding)
			m.Change(t)
			harness.Eventually(t, faults.HealTime, "the change is written", func() error { return m.Shown(faults.MovingService) })
			asked.Store(0)
			harness.Eventually(t, faults.HealTime, "the flood continues", flooding)
		},
		Heal: func(*testing.T) {
			close(stop)
			running.Wait()
			hangUp(opened)
		},
		After: func(t *testing.T) {
			harness.Eventually(t, faults.HealTime, "the goroutines of the flood have ended", func() error {
				if n := faults.Metric(t, bridge, "go_goroutines"); n > before+20 {
					return fmt.Errorf("%v goroutines, before %v", n, before)
				}
				return nil
			})
		},
	})
	m.Try(t, faults.Fault{
		Name: "without a file left connections wait, and are made when there are some",
		Break: func(t *testing.T) {
			opened = slowly(t, bridge.Telemetry, 60)
			toZooKeeper.Reset()
			m.ToIstiod.Reset()
		},
		Lasts: 3 * time.Second,
		Heal:  func(*testing.T) { hangUp(opened) },
	})
}

// slowly opens connections that begin a request and never end it.
func slowly(t *testing.T, address string, n int) (opened []net.Conn) {
	t.Helper()
	for range n {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			break // there are no more
		}
		_, _ = io.WriteString(conn, "GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
		opened = append(opened, conn)
	}
	return opened
}

func hangUp(all []net.Conn) {
	for _, conn := range all {
		_ = conn.Close()
	}
}

// flood posts and counts until it is stopped; the bridge may refuse.
func flood(t *testing.T, address string, stop <-chan struct{}, asked *atomic.Int64) {
	t.Helper()
	for {
		select {
		case <-stop:
			return
		default:
		}
		body := io.LimitReader(zeros{}, 1<<30)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/v1/holds/none/approve", body)
		if err != nil {
			t.Error(err)
			return
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
		asked.Add(1)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// entriesBelow counts the providers of the interfaces whose names begin so.
func entriesBelow(t *testing.T, znodes *harness.Znodes, root, prefix string) (n int) {
	t.Helper()
	for _, iface := range znodes.Children(t, root) {
		if strings.HasPrefix(iface, prefix) {
			n += len(znodes.Children(t, root+"/"+iface+"/providers"))
		}
	}
	return n
}
