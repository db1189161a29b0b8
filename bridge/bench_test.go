package bridge_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

const nServices, nEndpoints = 10_000, 10

// mesh returns services as a mesh has them, all of one weight.
func mesh(weight uint32) []*registry.Service {
	all := fleet(nServices, nEndpoints)
	for _, s := range all {
		for i := range s.Endpoints {
			s.Endpoints[i].Weight = weight
		}
	}
	return all
}

// dubboLike renders every endpoint to canonical text of about 250 bytes.
func dubboLike(s *registry.Service) ([]registry.Entry, error) {
	g := registry.Group{Kind: "dubbo-interface", Namespace: "/dubbo", Name: "org.example.api.Service-" + string(s.Name)}
	entries := make([]registry.Entry, len(s.Endpoints))
	for i, e := range s.Endpoints {
		key := "dubbo://" + e.Address()
		entries[i] = registry.Entry{Group: g, Key: key, Value: key + "/" + g.Name +
			"?application=app&deprecated=false&dubbo=2.0.2&dynamic=false&generic=false&interface=" + g.Name +
			"&methods=a,b,c,d&release=3.3.0&revision=1.0.0&side=provider&version=1.0.0&weight=" + strconv.Itoa(int(e.Weight)) +
			"&xdsb=0a1b2c3d4e5f6g7h8"}
	}
	return entries, nil
}

// sink is a target that keeps nothing and says when it was written to last.
type sink struct{ wrote chan time.Time }

func (sink) Groups(context.Context) ([]registry.Group, error) { return nil, nil }

func (sink) Read(context.Context, registry.Group) ([]registry.Held, error) { return nil, nil }

func (s sink) Write(context.Context, registry.Change) error {
	select {
	case s.wrote <- time.Now():
	default:
	}
	return nil
}

// running starts a loop in real time and waits until everything is written.
func running(b *testing.B, table *registry.Table, project bridge.Project) (*bridge.Loop, sink) {
	b.Helper()
	target := sink{wrote: make(chan time.Time, 1)}
	loop, err := bridge.New(target, []bridge.Bridge{{Name: "b", Table: table, Project: project}},
		bridge.Options{Owner: "me", Workers: 64, Debounce: time.Millisecond, Refresh: 24 * time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	idle(b, loop)
	<-target.wrote
	return loop, target
}

func idle(b *testing.B, loop *bridge.Loop) {
	b.Helper()
	if _, err := loop.AwaitIdle(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// full returns a table of a mesh, and a loop that wrote it.
func full(b *testing.B) (*registry.Table, *bridge.Loop, sink) {
	b.Helper()
	table := registry.NewTable()
	table.Replace(slices.Values(mesh(0)))
	loop, target := running(b, table, dubboLike)
	return table, loop, target
}

// BenchmarkLoop_Change is the own part of a single change: from Table.Put to the call of
// Target.Write.
func BenchmarkLoop_Change(b *testing.B) {
	weights := [][]*registry.Service{mesh(1), mesh(0)}
	table, _, target := full(b)
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		start := time.Now()
		table.Put(weights[n%2][n/2%nServices])
		took = append(took, (<-target.wrote).Sub(start))
		time.Sleep(2 * time.Millisecond) // the group is idle again
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkLoop_Push is a full push of 100,000 endpoints in which nothing changed, through
// table and loop.
func BenchmarkLoop_Push(b *testing.B) {
	same := mesh(0)
	table, loop, _ := full(b)
	b.ReportAllocs()
	for b.Loop() {
		table.Replace(slices.Values(same))
		if err := loop.Approve(b.Context(), "", ""); err == nil { // the loop has looked when it answers
			b.Fatal("Approve() = nil, want an error")
		}
	}
}

// BenchmarkLoop_Memory is the memory that table and loop use per endpoint, texts included.
func BenchmarkLoop_Memory(b *testing.B) {
	before := heap()
	table, loop, _ := full(b)
	loaded := heap() - before
	table.Replace(slices.Values(mesh(1)))
	idle(b, loop)
	churned := heap() - before
	for b.Loop() {
		runtime.KeepAlive(loop)
	}
	runtime.KeepAlive(table)
	b.ReportMetric(float64(loaded)/(nServices*nEndpoints), "B/endpoint")
	b.ReportMetric(float64(churned)/(nServices*nEndpoints), "B/endpoint-after-churn")
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkLoop_Status is what a question costs at 50,000 services of which 20,000
// cannot be known. A scrape reads Summary; Status is the whole document.
func BenchmarkLoop_Status(b *testing.B) {
	table, all := registry.NewTable(), fleet(50_000, 1)
	for _, s := range all[:20_000] {
		table.Unknown(string(s.Name), errDown)
	}
	table.Replace(slices.Values(all))
	loop, _ := running(b, table, perService)
	b.Run("summary", func(b *testing.B) {
		for b.Loop() {
			loop.Summary()
		}
	})
	b.Run("status", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			loop.Status()
		}
	})
}

// BenchmarkLoop_SharedGroup is a change of one service where 10,000 claim in one group,
// until status shows it.
func BenchmarkLoop_SharedGroup(b *testing.B) {
	table, all := registry.NewTable(), fleet(nServices, 1)
	for i := range all {
		all[i].Application = "app"
	}
	table.Replace(slices.Values(all))
	loop, _ := running(b, table, perService)
	for n := 0; b.Loop(); n++ {
		s := service("s0", fmt.Sprintf("10.0.0.1:80*%d", n%7+1))
		s.Application = "app"
		table.Put(s)
		idle(b, loop)
	}
}
