package bench_test

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestSync writes a whole mesh into a real ZooKeeper, next to a bare writer of
// the same nodes, and then continues from it.
func TestSync(t *testing.T) {
	for _, size := range []struct{ services, rounds int }{{1_000, 5}, {10_000, 3}} {
		t.Run(fmt.Sprintf("%d services", size.services), func(t *testing.T) {
			f := newFleet(t, size.services)
			p, server := initial(t, f, size.rounds)
			if size.services == 1_000 {
				single(t, f, p, server)
			}
			memory(t, f, p)
			restart(t, f, server)
		})
	}
}

// root is where the bridge writes.
const root = "/dubbo"

// initial measures the first writing in turns with the floor, each on a server of its own,
// and returns the last pipe and its server. Only times of one round are
// compared, because the machine is not equally busy in all of them: of the
// ratios of all rounds the middle one counts.
func initial(t *testing.T, f *fleet, rounds int) (p *pipe, server string) {
	t.Helper()
	var all []row
	for round := range rounds {
		z := empty(t)
		r := dialRaw(t, z.Address)
		began := time.Now()
		r.write(t, root, f.services)
		floor := time.Since(began)
		r.conn.Close()
		z.Kill()

		z = empty(t)
		server = z.Address
		before := cpu(t)
		began = time.Now()
		p = start(t, f, server)
		p.await(t, f.services*perService)
		ours, used := time.Since(began), short(cpu(t)-before)
		t.Logf("round %d: floor %s, ours %s, CPU %s, %s", round, short(floor), short(ours), used, load())
		what := fmt.Sprintf("initial sync, %d x %d (CPU, the mesh's included: %s)", f.services, perService, used)
		all = append(all, against(what, ours, floor, 1.5))
		r = dialRaw(t, server)
		if n := r.count(t, root, f.services); n != f.services*perService {
			t.Fatalf("a second client sees %d nodes", n)
		}
		r.conn.Close()
		if round < rounds-1 {
			p.end()
			z.Kill()
		}
	}
	slices.SortFunc(all, func(a, b row) int { return cmp.Compare(a.ratio, b.ratio) })
	results.add(t, all[len(all)/2])
	return p, server
}

// empty starts a server that holds next to nothing and has run before. It has room:
// one that collects garbage all the time is measured for that alone.
func empty(t *testing.T) *harness.ZooKeeper {
	t.Helper()
	z := harness.StartZooKeeper(t, "-Xmx2g")
	r := dialRaw(t, z.Address)
	r.write(t, "/first", 500)
	r.conn.Close()
	return z
}

// load reports how busy the machine is.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return "load " + strings.Join(strings.Fields(string(text))[:3], " ")
}

// memory measures what a bridge gives back when it ends, and ends it. Of
// that the ZooKeeper library uses 3 MB, however much there is to hold, so that
// a small mesh says nothing about an endpoint.
func memory(t *testing.T, f *fleet, p *pipe) {
	t.Helper()
	const aim = 1000
	with := heap()
	p.end()
	*p = pipe{}
	each := float64(int64(with)-int64(heap())) / float64(f.services*perService)
	r := row{
		what: fmt.Sprintf("memory per endpoint, %d x %d", f.services, perService),
		ours: fmt.Sprintf("%.0f B", each), floor: fmt.Sprintf("%d B", aim), ratio: each / aim,
	}
	if f.services >= 10_000 {
		r.limit = 1
	}
	results.add(t, r)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// restart measures a restart: a bridge that starts where all is as it should be.
func restart(t *testing.T, f *fleet, server string) {
	t.Helper()
	proxy := harness.StartZooKeeperProxy(t, server)
	r := dialRaw(t, proxy.Address)
	began := time.Now()
	r.count(t, root, f.services)
	floor := time.Since(began)

	proxy.Forget()
	began = time.Now()
	p := start(t, f, proxy.Address)
	p.await(t, f.services*perService)
	took := time.Since(began)
	p.end()
	what := fmt.Sprintf("restart, nothing changed, %d x %d", f.services, perService)
	writes := len(proxy.Writes("/"))
	results.add(t, row{what: what + ": writes", ours: strconv.Itoa(writes), floor: "0", over: writes != 0})
	results.add(t, against(what+": until in sync", took, floor, 0))
}
