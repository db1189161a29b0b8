package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/registry"
)

// many returns a scrape of a bridge with n services, of which its source cannot
// report some.
func many(tb testing.TB, n, unknown int) func() {
	tb.Helper()
	table, services := registry.NewTable(), make([]*registry.Service, n)
	for i := range services {
		name := registry.Name(fmt.Sprintf("service-%05d.shop.svc.cluster.local:8080", i))
		services[i] = &registry.Service{Name: name, Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 80}}}
		if i < unknown {
			table.Unknown(string(name), errors.New("403"))
		}
	}
	table.Replace(slices.Values(services))
	project := func(s *registry.Service) ([]registry.Entry, error) {
		return []registry.Entry{{Group: registry.Group{Kind: "test", Name: string(s.Name)}, Key: "10.0.0.1:80"}}, nil
	}
	loop, err := bridge.New(memory.New(memory.Options{Owner: "me"}),
		[]bridge.Bridge{{Name: "b", Table: table, Project: project}}, bridge.Options{Owner: "me", Target: "zk", Workers: 64})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
	if _, err := loop.AwaitIdle(ctx); err != nil {
		tb.Fatal(err)
	}
	server, err := admin.New(ctx, admin.Options{
		Inputs:  []admin.Input{{Name: "mesh", Kind: "mesh", Table: table, State: func() admin.SourceState { return admin.SourceState{} }}},
		Targets: []admin.Target{{Name: "zk", Kind: "zookeeper", Loop: loop, State: func() admin.TargetState { return admin.TargetState{Connected: true} }}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	m := metrics.New(metrics.Build{})
	m.Watch(server.Overview)
	handler := m.Handler()
	return func() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics", nil))
		_, _ = io.Copy(io.Discard, w.Body)
	}
}

// TestScrape_Cost: a scrape reads a snapshot, whose size does not
// depend on how many services there are or are unknown.
func TestScrape_Cost(t *testing.T) {
	few := many(t, 10, 4)
	lots := many(t, 5000, 2000)
	small, large := testing.AllocsPerRun(20, few), testing.AllocsPerRun(20, lots)
	if large > small+small/10 { // numbers that are longer texts
		t.Errorf("%v allocations for 10 services, %v for 5000", small, large)
	}
}

// BenchmarkScrapeOfMany is a scrape at 50,000 services of which 20,000 are
// unknown. It never asks the loop, so that it delays no write.
func BenchmarkScrapeOfMany(b *testing.B) {
	scrape := many(b, 50_000, 20_000)
	b.ReportAllocs()
	for b.Loop() {
		scrape()
	}
}
