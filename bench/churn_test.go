package bench_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/internal/admin"
)

// TestChurn keeps a whole mesh in a real ZooKeeper and lists its services. A thousand
// endpoints a second change, and then nothing does.
func TestChurn(t *testing.T) {
	const (
		services = 10_000
		rate     = 1_000 // changes a second
		lasting  = time.Minute
		idle     = 20 * time.Second
	)
	f := newFleet(t, services)
	server := empty(t).Address
	p := start(t, f, server)
	p.await(t, services*perService)
	list(t, p)

	c := &churn{pending: make(map[string]time.Time, services)}
	passed := make(chan passage, services)
	p.tap.report(passed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for w := range passed {
			c.written(w)
		}
	}()
	before, written := cpu(t), p.tap.written()
	began := time.Now()
	changes := 0
	for ; time.Since(began) < lasting; changes++ {
		if ahead := time.Duration(changes)*time.Second/rate - time.Since(began); ahead > 0 {
			time.Sleep(ahead)
		}
		i := changes % services
		c.change(iface(i), time.Now())
		f.change(i, weight(changes, services))
	}
	used := float64(cpu(t)-before) / float64(time.Since(began))
	p.await(t, services*perService)
	writes := p.tap.written() - written
	p.tap.report(nil)
	close(passed)
	<-ended

	what := fmt.Sprintf("%d changes at %d/s over %d x %d", changes, changes*int(time.Second)/int(lasting), services, perService)
	results.add(t, against(what+", own part until the write, p50", quantile(c.lags, 0.5), 500*time.Millisecond, 1))
	results.add(t, against(what+", own part until the write, p99", quantile(c.lags, 0.99), 500*time.Millisecond, 1))
	results.add(t, row{what: "writes for a change", ours: strconv.Itoa(writes), floor: strconv.Itoa(changes), ratio: float64(writes) / float64(changes)})
	results.add(t, row{what: "processors used, the mesh's included", ours: fmt.Sprintf("%.2f", used), floor: "1", ratio: used})
	lost := stale(t, server, services, changes)
	results.add(t, row{what: "services that show an earlier state afterwards", ours: strconv.Itoa(lost), floor: "0", over: lost > 0})

	time.Sleep(2 * time.Second)
	before, began = cpu(t), time.Now()
	time.Sleep(idle)
	share := float64(cpu(t)-before) / float64(time.Since(began))
	results.add(t, row{what: fmt.Sprintf("idle, %d x %d, of a processor, the mesh's included", services, perService), ours: fmt.Sprintf("%.2f %%", 100*share), floor: "0.5 %", ratio: share / 0.005, limit: 1})
}

// weight returns the weight that change n gives to its service: another each time.
func weight(n, services int) uint32 { return uint32(2 + n/services%90) }

// churn measures how long changes wait for their write.
type churn struct {
	mu      sync.Mutex
	pending map[string]time.Time // by interface: its first change that is not written
	lags    []time.Duration
}

func (c *churn) change(name string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.pending[name]; !ok {
		c.pending[name] = at
	}
}

func (c *churn) written(w passage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.pending[w.group.Name]; ok && at.Before(w.begun) {
		c.lags = append(c.lags, w.begun.Sub(at))
		delete(c.pending, w.group.Name)
	}
}

// stale returns how many services do not show the weight of their last change.
func stale(t *testing.T, server string, services, changes int) int {
	t.Helper()
	r := dialRaw(t, server)
	defer r.conn.Close()
	var mu sync.Mutex
	lost := 0
	each(t, services, func(i int) error {
		nodes, _, err := r.conn.Children(dir(root, i))
		last := (changes - 1 - i) / services * services // of the last round that reached i
		want := fmt.Sprintf("endPointWeight%%3D%d%%26", weight(last+i, services))
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(strings.Join(nodes, " "), want) {
			lost++
		}
		return err
	})
	return lost
}

// list measures what the API takes for a page of services and for the status.
func list(t *testing.T, p *pipe) {
	t.Helper()
	s, err := admin.New(t.Context(), admin.Options{Owner: "bench", Targets: []admin.Target{{
		Name: "zk", Kind: "zookeeper", Loop: p.loop, State: func() admin.TargetState { return admin.TargetState{Connected: true} },
	}}})
	must(t, err)
	handler := s.Admin()
	const limit = 50 * time.Millisecond // for a page; the status has all services
	for _, c := range []struct {
		path string
		most float64
	}{{"/api/v1/services?limit=100", 1}, {"/api/v1/status", 0}} {
		var took []time.Duration
		for range 200 {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
			r.Host = "127.0.0.1:9901"
			w := httptest.NewRecorder()
			began := time.Now()
			handler.ServeHTTP(w, r)
			took = append(took, time.Since(began))
			if w.Code != http.StatusOK {
				t.Fatalf("GET %s: %d %s", c.path, w.Code, w.Body)
			}
		}
		results.add(t, against("GET "+c.path+" over 10,000 services, p99", quantile(took, 0.99), limit, c.most))
	}
}

// TestGuard measures the decision on the loss of 10,000 endpoints at once.
func TestGuard(t *testing.T) {
	const services, rounds = 1_000, 5
	var took []time.Duration
	for range rounds {
		g := guard.New(bridge.DefaultGuard(), nil)
		now := time.Unix(1e9, 0)
		for i := range services {
			g.Observe(now, groupOf(i), guard.Counts{Claimed: perService})
		}
		g.Judge(now, 1)
		now = now.Add(2 * time.Hour)
		lost := make(map[string]guard.Report, perService)
		for n := range perService {
			lost[strconv.Itoa(n)] = guard.Withdrawn
		}
		runtime.GC()
		began := time.Now()
		for i := range services {
			g.Observe(now, groupOf(i), guard.Counts{Unclaimed: lost})
		}
		g.Judge(now, 1)
		held := g.Hold()
		took = append(took, time.Since(began))
		if held == nil || len(held.Keys) != services*perService {
			t.Fatalf("hold %v, want %d endpoints", held, services*perService)
		}
	}
	results.add(t, against("decision on 10,000 endpoints that are lost at once", quantile(took, 0.5), 10*time.Millisecond, 1))
}
