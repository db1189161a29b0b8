package kube_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// TestReader_DeniedReload: a source that replaces another knows nothing
// of a namespace that it may not read, and its services stay until it may.
func TestReader_DeniedReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, table := serve(t), registry.NewTable()
		a.set(t, "shop", "s0", "10.0.0.1")
		a.set(t, "other", "s0", "10.0.0.2")
		a.set(t, "other", "s1", "10.0.0.3")
		run := func() (stop func()) {
			r := a.reader(t, func(o *kube.Options) { o.Namespaces = []string{"shop", "other"} })
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- source(t, r).Run(ctx, table) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		stop := run()
		in(time.Minute)
		a.Refuse("pods", "other", http.StatusForbidden, "Forbidden")
		in(time.Minute)
		stop()
		table.Renew(errors.New("another source begins"))
		stop = run()
		defer stop()
		in(time.Minute)
		if rows, k := table.Snapshot(); rows[other] == nil || k.Of(other) == nil || !k.Synced || k.Stale != nil || k.Of(nameOf(0)) != nil {
			t.Errorf("while it may not be read: %v, %+v, want its service, of which nothing is known", rows[other], k)
		}
		a.set(t, "other", "s1")
		a.Refuse("pods", "other", 0, "")
		in(2 * time.Minute)
		if rows, k := table.Snapshot(); rows[other] == nil || len(rows) != 2 || len(k.Unknown) != 0 {
			t.Errorf("once it may be read: %d services, %+v, want the 2 that are there", len(rows), k)
		}
	})
}

func serviceEntry(spec map[string]any) map[string]any {
	spec["ports"] = []any{map[string]any{"number": 80, "name": "http", "protocol": "HTTP"}}
	return map[string]any{
		"kind": "ServiceEntry", "apiVersion": "networking.istio.io/v1",
		"metadata": map[string]any{"namespace": "shop", "name": "a"}, "spec": spec,
	}
}

// TestReader_InvalidNewEntry: whatever was never reported may be its.
func TestReader_InvalidNewEntry(t *testing.T) {
	story(t, func(*kube.Options) {}, func(a *api, table *registry.Table, _ *kube.Reader) {
		a.put(t, "serviceentries", serviceEntry(map[string]any{"hosts": []any{"a.example"}, "resolution": "OF_A_LATER_VERSION"}))
		in(time.Minute)
		if rows, k := table.Snapshot(); len(rows) != 2 || len(k.Unknown) != 1 || k.Stale != nil {
			t.Errorf("%d services, %+v, want 2, and that others may be missing", len(rows), k)
		}
		a.put(t, "serviceentries", serviceEntry(map[string]any{"hosts": []any{"a.example"}, "resolution": "DNS"}))
		in(time.Minute)
		if rows, k := table.Snapshot(); len(rows) != 3 || len(k.Unknown) != 0 {
			t.Errorf("once it can be read: %d services, %+v", len(rows), k)
		}
	})
}

// TestReader_InvalidWorkloadEntry: the services that it is an endpoint of stay
// as they were.
func TestReader_InvalidWorkloadEntry(t *testing.T) {
	const name = registry.Name("a.example:80")
	story(t, func(*kube.Options) {}, func(a *api, table *registry.Table, _ *kube.Reader) {
		labels := map[string]any{"app": "a"}
		a.put(t, "serviceentries", serviceEntry(map[string]any{"hosts": []any{"a.example"}, "resolution": "STATIC", "workloadSelector": map[string]any{"labels": labels}}))
		workload := func(weight any) map[string]any {
			return map[string]any{
				"kind": "WorkloadEntry", "apiVersion": "networking.istio.io/v1", "metadata": map[string]any{"namespace": "shop", "name": "w"},
				"spec": map[string]any{"address": "10.0.0.9", "labels": labels, "weight": weight},
			}
		}
		a.put(t, "workloadentries", workload(1))
		in(time.Minute)
		a.put(t, "workloadentries", workload("heavy"))
		in(time.Minute)
		rows, k := table.Snapshot()
		if s := rows[name]; s == nil || len(s.Endpoints) != 1 || k.Of(name) == nil || k.Of(nameOf(0)) != nil {
			t.Errorf("%+v, %+v, want its endpoint, of which nothing is known", s, k)
		}
		a.put(t, "workloadentries", workload(7))
		in(time.Minute)
		rows, k = table.Snapshot()
		if s := rows[name]; s == nil || len(s.Endpoints) != 1 || s.Endpoints[0].Weight != 7 || k.Of(name) != nil {
			t.Errorf("once it can be read: %+v, %+v", s, k)
		}
	})
}
