package bench_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestSync writes a whole mesh into a real ZooKeeper, beside a bare writer of
// the same nodes, and then lives with it.
func TestSync(t *testing.T) {
	for _, size := range []struct{ services, rounds int }{{1_000, 5}, {10_000, 2}} {
		t.Run(fmt.Sprintf("%d services", size.services), func(t *testing.T) {
			f := newFleet(t, size.services)
			server := harness.StartZooKeeper(t).Address
			p, root := initial(t, f, server, size.rounds)
			if size.services == 1_000 {
				single(t, f, p, server)
			}
			memory(t, f, p)
			restart(t, f, server, root)
		})
	}
}

// initial measures P01 in turns with the floor, and returns the last pipe.
func initial(t *testing.T, f *fleet, server string, rounds int) (p *pipe, root string) {
	t.Helper()
	r := dialRaw(t, server)
	var ours, floor []time.Duration
	var used time.Duration
	for round := range rounds {
		if p != nil {
			p.end()
		}
		began := time.Now()
		r.write(t, fmt.Sprintf("/floor%d", round), f.services)
		floor = append(floor, time.Since(began))

		root = fmt.Sprintf("/bridge%d", round)
		before := cpu(t)
		began = time.Now()
		p = start(t, f, server, root)
		p.settle(t, f.services*perService)
		ours = append(ours, time.Since(began))
		used = cpu(t) - before
		if n := r.count(t, root, f.services); n != f.services*perService {
			t.Fatalf("a second client sees %d nodes", n)
		}
	}
	results.add(t, against("P01", fmt.Sprintf("initial sync, %d x %d (CPU, the mesh's included: %s)", f.services, perService, short(used)),
		quantile(ours, 0.5), quantile(floor, 0.5), 1.5))
	return p, root
}

// memory measures P07, what a bridge gives back when it ends, and ends it.
func memory(t *testing.T, f *fleet, p *pipe) {
	t.Helper()
	const limit = 1000
	with := heap()
	p.end()
	*p = pipe{}
	each := float64(int64(with)-int64(heap())) / float64(f.services*perService)
	results.add(t, row{
		id: "P07", what: fmt.Sprintf("memory per endpoint, %d x %d", f.services, perService),
		ours: fmt.Sprintf("%.0f B", each), floor: fmt.Sprintf("%d B", limit), ratio: each / limit,
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// restart measures P09: a bridge that starts where all is as it should be.
func restart(t *testing.T, f *fleet, server, root string) {
	t.Helper()
	proxy := harness.StartZooKeeperProxy(t, server)
	r := dialRaw(t, proxy.Address)
	began := time.Now()
	r.count(t, root, f.services)
	floor := time.Since(began)

	proxy.Forget()
	began = time.Now()
	p := start(t, f, proxy.Address, root)
	p.settle(t, f.services*perService)
	took := time.Since(began)
	p.end()
	what := fmt.Sprintf("restart, nothing changed, %d x %d", f.services, perService)
	writes := len(proxy.Writes("/"))
	results.add(t, row{id: "P09", what: what + ": writes", ours: strconv.Itoa(writes), floor: "0", over: writes != 0})
	results.add(t, against("P09", what+": until in sync", took, floor, 0))
}
