package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/internal/fake/kubernetes"
	"github.com/xds-bridge/xds-bridge/internal/fake/pipe"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubelist"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// api is an API server of a test, connected within the bubble of its time.
type api struct {
	*kubernetes.Server

	server   *http.Server
	listener atomic.Pointer[pipe.Listener]
	dials    atomic.Int64
}

func serve(t *testing.T) *api {
	t.Helper()
	a := &api{Server: kubernetes.NewServer()}
	a.start(t)
	t.Cleanup(a.stop)
	return a
}

func (a *api) start(t *testing.T) {
	t.Helper()
	l := pipe.Listen()
	a.server = &http.Server{Handler: a.Server, ReadHeaderTimeout: time.Minute}
	a.listener.Store(l)
	go func() { _ = a.server.Serve(l) }()
}

// stop ends all connections, and refuses new ones.
func (a *api) stop() {
	a.listener.Store(nil)
	_ = a.server.Close()
}

func (a *api) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	l := a.listener.Load()
	if l == nil {
		return nil, errors.New("no route to the API server")
	}
	a.dials.Add(1)
	return l.Dial(ctx)
}

func (a *api) reader(t *testing.T, change ...func(*kube.Options)) *kube.Reader {
	t.Helper()
	o := kube.Options{Rules: rules(), Config: &rest.Config{Host: "http://kubernetes", Dial: a.dial}, Istio: true, Nodes: true}
	for _, c := range change {
		c(&o)
	}
	r, err := kube.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func source(t *testing.T, r *kube.Reader) *mesh.Source {
	t.Helper()
	all, err := naming.ParsePattern("*")
	if err != nil {
		t.Fatal(err)
	}
	s, err := mesh.New(mesh.Options{Clusters: r, Naming: mesh.Naming{Plain: []naming.Pattern{all}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// set makes hosts all that provide a service; with none of them it is gone.
func (a *api) set(t *testing.T, namespace, name string, hosts ...string) {
	t.Helper()
	if len(hosts) == 0 {
		a.Delete("services", namespace, name)
		a.Delete("endpointslices", namespace, name+"-1")
		return
	}
	var endpoints []any
	for _, h := range hosts {
		endpoints = append(endpoints, map[string]any{"addresses": []string{h}})
	}
	a.put(t, "services", map[string]any{
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"ports": []any{map[string]any{"port": 80}}},
		"kind":     "Service", "apiVersion": "v1",
	})
	a.put(t, "endpointslices", map[string]any{
		"metadata":    map[string]any{"namespace": namespace, "name": name + "-1", "labels": map[string]string{"kubernetes.io/service-name": name}},
		"addressType": "IPv4", "ports": []any{map[string]any{"port": 8080}}, "endpoints": endpoints,
		"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
	})
}

func (a *api) put(t *testing.T, resource string, o any) {
	t.Helper()
	if err := a.Put(resource, o); err != nil {
		t.Fatal(err)
	}
}

func nameOf(n int) registry.Name {
	return registry.Name("s" + strconv.Itoa(n) + ".shop.svc.cluster.local:80")
}

func TestReader_Conformance(t *testing.T) {
	conformance.Source(t, func(t *testing.T) conformance.SourceFixture {
		t.Helper()
		a := serve(t)
		s := source(t, a.reader(t))
		return conformance.SourceFixture{
			Source: s, Recheck: s.Recheck, Name: nameOf,
			Set: func(t *testing.T, n int, hosts ...string) {
				t.Helper()
				a.set(t, "shop", "s"+strconv.Itoa(n), hosts...)
			},
			Spoil: func(t *testing.T, n int) int {
				t.Helper()
				a.put(t, "services", map[string]any{
					"metadata": map[string]any{"namespace": "shop", "name": "alias"}, "kind": "Service", "apiVersion": "v1",
					"spec": map[string]any{"type": "ExternalName", "ports": []any{map[string]any{"port": n + 1}}},
				})
				return 1
			},
			Away: func() func() {
				a.stop()
				return func() { a.start(t) }
			},
			Dials: func() int { return int(a.dials.Load()) }, Requests: a.Requests,
		}
	})
}

// story runs a source over an API server in virtual time.
func story(t *testing.T, change func(*kube.Options), act func(a *api, table *registry.Table, r *kube.Reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := serve(t)
		r := a.reader(t, change)
		table := registry.NewTable()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		a.set(t, "shop", "s0", "10.0.0.1")
		a.set(t, "other", "s0", "10.0.0.2")
		time.AfterFunc(time.Millisecond, func() { done <- source(t, r).Run(ctx, table) })
		act(a, table, r)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func in(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

const other = registry.Name("s0.other.svc.cluster.local:80")

// TestReader_DeniedResource: what is missing is reported, with what to
// do, and what was known stays.
func TestReader_DeniedResource(t *testing.T) {
	story(t, func(*kube.Options) {}, func(a *api, table *registry.Table, r *kube.Reader) {
		in(time.Minute)
		a.Refuse("endpointslices", "", http.StatusForbidden, "Forbidden")
		in(2 * time.Minute)
		rows, k := table.Snapshot()
		if len(rows) != 2 || len(rows[nameOf(0)].Endpoints) != 1 {
			t.Errorf("%d services, want 2", len(rows))
		}
		want := "allow get, list and watch of endpointslices.discovery.k8s.io in all namespaces"
		if k.Stale == nil || !strings.Contains(k.Stale.Error(), want) {
			t.Errorf("Stale = %v, want one with %q", k.Stale, want)
		}
		for _, f := range r.Status() {
			if _, refused := errors.AsType[*kube.Forbidden](f.Err); refused != (f.Resource == "endpointslices.discovery.k8s.io") {
				t.Errorf("%s: %v", f.Resource, f.Err)
			}
		}
		a.Refuse("endpointslices", "", 0, "")
		in(2 * time.Minute)
		if _, k := table.Snapshot(); k.Stale != nil {
			t.Errorf("Stale = %v, want nil: %+v", k.Stale, r.Status())
		}
	})
}

// TestReader_DeniedPods: without the right to Pods a rolling update leaves no endpoint that
// works. What keeps the source from being in sync says so.
func TestReader_DeniedPods(t *testing.T) {
	story(t, func(*kube.Options) {}, func(a *api, table *registry.Table, _ *kube.Reader) {
		in(time.Minute)
		a.Refuse("pods", "", http.StatusForbidden, "Forbidden")
		in(2 * time.Minute)
		const costs = "until then 1 endpoint is not offered, because their Pods are unknown"
		if _, k := table.Snapshot(); k.Stale == nil || strings.Contains(k.Stale.Error(), "not offered") {
			t.Errorf("Stale = %v, want only that of the missing right", k.Stale)
		}
		a.put(t, "endpointslices", map[string]any{
			"metadata":    map[string]any{"namespace": "shop", "name": "s0-1", "labels": map[string]string{"kubernetes.io/service-name": "s0"}},
			"addressType": "IPv4", "ports": []any{map[string]any{"port": 8080}}, "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
			"endpoints": []any{map[string]any{"addresses": []string{"10.0.0.9"}, "targetRef": map[string]any{"kind": "Pod", "namespace": "shop", "name": "new"}}},
		})
		in(2 * time.Minute)
		_, k := table.Snapshot()
		if k.Stale == nil || !strings.Contains(k.Stale.Error(), "of pods in all namespaces; "+costs) {
			t.Errorf("Stale = %v, want one with %q", k.Stale, costs)
		}
		a.Refuse("pods", "", 0, "")
		in(2 * time.Minute)
		if _, k := table.Snapshot(); k.Stale != nil {
			t.Errorf("Stale = %v, want nil", k.Stale)
		}
	})
}

// TestReader_Namespaces: a namespace that may not be read affects only itself.
func TestReader_Namespaces(t *testing.T) {
	namespaces := func(o *kube.Options) { o.Namespaces = []string{"shop", "other"} }
	story(t, namespaces, func(a *api, table *registry.Table, _ *kube.Reader) {
		a.Refuse("pods", "other", http.StatusForbidden, "Forbidden")
		in(time.Minute)
		rows, k := table.Snapshot()
		if !k.Synced || k.Stale != nil || rows[nameOf(0)] == nil || rows[other] != nil || len(k.Unknown) != 1 {
			t.Errorf("from the start: %d services, %+v", len(rows), k)
		}
		a.Refuse("pods", "other", 0, "")
		in(2 * time.Minute)
		rows, k = table.Snapshot()
		if len(rows) != 2 || len(k.Unknown) != 0 {
			t.Errorf("allowed: %d services, unknown %v", len(rows), k.Unknown)
		}
		a.Refuse("services", "other", http.StatusForbidden, "Forbidden")
		in(2 * time.Minute)
		a.set(t, "shop", "s1", "10.0.0.3")
		in(time.Second)
		rows, k = table.Snapshot()
		if len(rows) != 3 || k.Stale != nil || k.Of(other) == nil || k.Of(nameOf(0)) != nil || k.Of(nameOf(1)) != nil {
			t.Errorf("refused later: %d services, %+v", len(rows), k)
		}
	})
}

// TestReader_ExpiredVersion: after 410 everything is listed, and what went
// meanwhile is found missing.
func TestReader_ExpiredVersion(t *testing.T) {
	story(t, func(*kube.Options) {}, func(a *api, table *registry.Table, r *kube.Reader) {
		in(time.Minute)
		reader := table.Reader()
		defer reader.Close()
		reader.Drain()
		a.stop()
		a.set(t, "shop", "s0")
		a.set(t, "shop", "s1", "10.0.0.3")
		a.Compact()
		a.start(t)
		in(2 * time.Minute)
		d := reader.Drain()
		if d.Stale != nil || d.Rows[nameOf(0)].Service != nil || !d.Rows[nameOf(0)].Found || d.Rows[nameOf(1)].Service == nil {
			t.Errorf("%+v", d)
		}
		for _, f := range r.Status() {
			if f.Err != nil || !f.Listed {
				t.Errorf("%+v", f)
			}
		}
	})
}

// TestReader_Heard: the server is last heard with its last list, watch or event.
func TestReader_Heard(t *testing.T) {
	story(t, func(*kube.Options) {}, func(a *api, _ *registry.Table, r *kube.Reader) {
		last := func() (at time.Time) {
			for _, f := range r.Status() {
				if at.Before(f.Heard) {
					at = f.Heard
				}
			}
			return at
		}
		in(time.Minute)
		before := last()
		if since := time.Since(before); before.IsZero() || since < 30*time.Second || since > time.Minute {
			t.Errorf("heard %v ago, want when the watches began", since)
		}
		a.set(t, "shop", "s1", "10.0.0.3")
		in(10 * time.Second)
		if since := time.Since(last()); since != 10*time.Second {
			t.Errorf("heard %v ago, want when the event came", since)
		}
	})
}

// TestReader_TooManyRequests: 429 is an outage that is reported, and no answer.
func TestReader_TooManyRequests(t *testing.T) {
	story(t, func(*kube.Options) {}, func(a *api, table *registry.Table, _ *kube.Reader) {
		a.Refuse("services", "", http.StatusTooManyRequests, "TooManyRequests")
		in(time.Minute)
		before := a.Requests()
		in(10 * time.Minute)
		if _, k := table.Snapshot(); k.Synced || k.Stale == nil || !strings.Contains(k.Stale.Error(), "list services") {
			t.Errorf("%+v", k)
		}
		if n := a.Requests() - before; n > 40 {
			t.Errorf("%d requests in ten minutes, want at most 40", n)
		}
		a.Refuse("services", "", 0, "")
		in(2 * time.Minute)
		if rows, k := table.Snapshot(); !k.Synced || k.Stale != nil || len(rows) != 2 {
			t.Errorf("%d services, %+v", len(rows), k)
		}
	})
}

// TestReader_WithoutIstio: kinds that the API does not have hold nothing,
// and one that is removed removes nothing else.
func TestReader_WithoutIstio(t *testing.T) {
	entry := map[string]any{
		"kind": "ServiceEntry", "apiVersion": "networking.istio.io/v1", "metadata": map[string]any{"namespace": "shop", "name": "a"},
		"spec": map[string]any{"hosts": []string{"a.example"}, "resolution": "DNS", "ports": []any{map[string]any{"number": 80, "name": "http", "protocol": "HTTP"}}},
	}
	story(t, func(*kube.Options) {}, func(a *api, table *registry.Table, r *kube.Reader) {
		a.Forget("serviceentries")
		a.Forget("workloadentries")
		in(time.Minute)
		if rows, k := table.Snapshot(); !k.Synced || k.Stale != nil || len(rows) != 2 {
			t.Errorf("without: %d services, %+v", len(rows), k)
		}
		_, before := table.Snapshot()
		in(time.Hour)
		if _, k := table.Snapshot(); k.Outages != before.Outages {
			t.Errorf("stale %d times in an hour, want never", k.Outages-before.Outages)
		}
		a.Define("serviceentries")
		a.put(t, "serviceentries", entry)
		in(2 * time.Minute)
		if rows, _ := table.Snapshot(); rows["a.example:80"] == nil {
			t.Error("no row of a.example:80, want one")
		}
		a.Forget("serviceentries")
		r.Recheck()
		in(2 * time.Minute)
		if rows, k := table.Snapshot(); rows["a.example:80"] == nil || k.Stale == nil {
			t.Errorf("the kind was removed: %+v", k)
		}
	})
}

// TestReader_KeysOnly: endpoints may come from elsewhere.
func TestReader_KeysOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := serve(t)
		a.put(t, "services", map[string]any{
			"metadata": map[string]any{"namespace": "shop", "name": "s0", "annotations": map[string]string{kube.DefaultKeys: "api.Greeter, ?"}},
			"spec":     map[string]any{"ports": []any{map[string]any{"port": 80}}}, "kind": "Service", "apiVersion": "v1",
		})
		r := a.reader(t, func(o *kube.Options) { o.Namespaces, o.Nodes = []string{"shop", "other"}, false })
		a.Refuse("pods", "other", http.StatusForbidden, "Forbidden")
		var last debug.Snapshot
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Mapping().Run(ctx, func(s debug.Snapshot) { last = s }) }()
		in(time.Minute)
		key := naming.ServiceKey{Category: naming.Providers, Interface: "api.Greeter"}
		if !last.Complete || len(last.Mapping.Hosts(key)) != 1 || len(last.Skipped) != 1 {
			t.Errorf("%+v", last)
		}
		if last.Unread == nil || !strings.Contains(last.Unread.Error(), "pods in namespace other") {
			t.Errorf("Unread = %v, want one with the pods of other", last.Unread)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestReader_LargePages: pages that are too large are read in parts.
func TestReader_LargePages(t *testing.T) {
	story(t, func(o *kube.Options) { o.Config.Wrap(kubelist.Bound(2000)) }, func(a *api, table *registry.Table, _ *kube.Reader) {
		for i := range 20 {
			a.set(t, "shop", fmt.Sprintf("s%d", i), "10.0.0.1")
		}
		in(time.Minute)
		if rows, k := table.Snapshot(); !k.Synced || k.Stale != nil || len(rows) < 20 {
			t.Errorf("%d services, %+v, want all", len(rows), k)
		}
	})
}

// TestReader_LargeAnswer: what a peer sends is bounded.
func TestReader_LargeAnswer(t *testing.T) {
	story(t, func(o *kube.Options) { o.Config.Wrap(kubelist.Bound(100)) }, func(_ *api, table *registry.Table, _ *kube.Reader) {
		in(time.Minute)
		if _, k := table.Snapshot(); k.Synced || k.Stale == nil || !strings.Contains(k.Stale.Error(), "limits.maxReceive") {
			t.Errorf("%+v", k)
		}
	})
}
