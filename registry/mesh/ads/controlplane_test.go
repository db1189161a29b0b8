package ads_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// plane is a control plane with settable resources.
type plane interface {
	set(t *testing.T, version string, resources ...proto.Message)
}

type snapshots struct{ cache cache.SnapshotCache }

func (s snapshots) set(t *testing.T, version string, resources ...proto.Message) {
	t.Helper()
	byType := map[resource.Type][]types.Resource{resource.ClusterType: nil, resource.EndpointType: nil}
	for _, r := range resources {
		url := resource.EndpointType
		if _, ok := r.(*clusterv3.Cluster); ok {
			url = resource.ClusterType
		}
		byType[url] = append(byType[url], r)
	}
	snapshot, err := cache.NewSnapshot(version, byType)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cache.SetSnapshot(t.Context(), node().GetId(), snapshot); err != nil {
		t.Fatal(err)
	}
}

type linears struct{ clusters, endpoints *cache.LinearCache }

func (l linears) set(t *testing.T, _ string, resources ...proto.Message) {
	t.Helper()
	for c, isOf := range map[*cache.LinearCache]func(proto.Message) bool{
		l.clusters:  func(m proto.Message) bool { _, ok := m.(*clusterv3.Cluster); return ok },
		l.endpoints: func(m proto.Message) bool { _, ok := m.(*clusterv3.Cluster); return !ok },
	} {
		update, gone := map[string]types.Resource{}, []string{}
		for _, m := range resources {
			if isOf(m) {
				update[istiodfake.NameOf(m)] = m
			}
		}
		for name, old := range c.GetResources() {
			if update[name] == nil {
				gone = append(gone, name)
			} else if proto.Equal(old, update[name]) {
				delete(update, name)
			}
		}
		if err := c.UpdateResources(update, gone); err != nil {
			t.Fatal(err)
		}
	}
}

// planes are the caches of go-control-plane behind its stock server.
func planes() map[string]func(t *testing.T) (plane, *network) {
	return map[string]func(t *testing.T) (plane, *network){
		"SnapshotCache": func(t *testing.T) (plane, *network) {
			t.Helper()
			c := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
			return snapshots{c}, controlPlane(t, c)
		},
		"LinearCache": func(t *testing.T) (plane, *network) {
			t.Helper()
			l := linears{cache.NewLinearCache(resource.ClusterType), cache.NewLinearCache(resource.EndpointType)}
			mux := &cache.MuxCache{
				Classify:      func(r *cache.Request) string { return r.GetTypeUrl() },
				ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
				Caches:        map[string]cache.Cache{resource.ClusterType: l.clusters, resource.EndpointType: l.endpoints},
			}
			return l, controlPlane(t, mux)
		},
	}
}

func controlPlane(t *testing.T, c cache.Cache) *network {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s := server.NewServer(ctx, c, nil)
	return serve(t, func(g *grpc.Server) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s) }, istiodfake.ServerOptions()...)
}

func TestGoControlPlane(t *testing.T) {
	for cacheName, start := range planes() {
		for variant, m := range variants() {
			t.Run(cacheName+" "+variant, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { storyOfAPlane(t, start, m) })
			})
		}
	}
}

func storyOfAPlane(t *testing.T, start func(*testing.T) (plane, *network), m ads.Mode) {
	p, n := start(t)
	p.set(t, "1", cluster("a", 1), cluster("b", 1), load("a", "10.0.0.1"), load("b", "10.0.0.1"))
	c := connect(t, n, speaking(m))
	v, _ := watch(c, clusters(nil), ads.Wildcard)
	w, sub := watch(c, endpoints(), "a")
	synctest.Wait()
	e := v.one(t)
	equal(t, "changed", changed(e), "a", "b")
	is(t, "complete", e.Complete, true)
	equal(t, "endpoints", w.names(), "a")

	sub.Set("a", "b")
	synctest.Wait()
	equal(t, "endpoints", w.names(), "a", "b")
	p.set(t, "2", cluster("a", 2), cluster("b", 1), load("a", "10.0.0.2"), load("b", "10.0.0.1"))
	synctest.Wait()
	equal(t, "changed", changed(v.one(t)), "a")
	is(t, "endpoints of a", w.held["a"], "10.0.0.2")

	p.set(t, "3", cluster("a", 2), cluster("b", 1), cluster("c", 1), load("a", "10.0.0.2"), load("b", "10.0.0.1"))
	synctest.Wait()
	equal(t, "changed", changed(v.one(t)), "c")
	p.set(t, "4", cluster("a", 2), cluster("b", 1), load("a", "10.0.0.2"), load("b", "10.0.0.1"))
	synctest.Wait()
	equal(t, "removed", v.one(t).Removed, "c")
	in(16 * time.Second)
	w.heard()

	n.reset() // nothing changed in the gap
	in(20 * time.Second)
	var confirmed []string
	complete := false
	for _, e := range v.heard() {
		is(t, "clusters: news", len(e.Changed)+len(e.Removed)+len(e.Unknown), 0)
		confirmed = append(confirmed, e.Confirmed...)
		complete = complete || e.Complete
	}
	equal(t, "clusters confirmed", confirmed, "a", "b")
	is(t, "complete", complete, true)
	confirmed = nil
	for _, e := range w.heard() {
		is(t, "endpoints: news", len(e.Changed)+len(e.Removed)+len(e.Unknown), 0)
		confirmed = append(confirmed, e.Confirmed...)
	}
	equal(t, "endpoints confirmed", confirmed, "a", "b")

	n.cut(errors.New("no route")) // a change and a removal in the gap
	n.reset()
	p.set(t, "5", cluster("a", 3), load("a", "10.0.0.3"))
	n.heal()
	in(31 * time.Second)
	equal(t, "clusters", v.names(), "a")
	is(t, "a", v.held["a"], 3)
	is(t, "endpoints of a", w.held["a"], "10.0.0.3")
	var removed []string
	for _, e := range v.heard() {
		removed = append(removed, e.Removed...)
	}
	equal(t, "removed", removed, "b")
}

func TestFakeIstiod(t *testing.T) {
	inBoth(t, func(t *testing.T, m ads.Mode) {
		s, n := istiod(t)
		s.Set(cluster("a", 1), cluster("b", 1), load("a", "10.0.0.1"))
		c := connect(t, n, speaking(m))
		v, _ := watch(c, clusters(nil), ads.Wildcard)
		w, _ := watch(c, endpoints(), "a", "b")
		synctest.Wait()
		equal(t, "changed", changed(v.one(t)), "a", "b")
		equal(t, "endpoints", w.names(), "a", "b")
		s.Remove(cds, "a")
		s.Remove(eds, "a")
		synctest.Wait()
		equal(t, "removed", v.one(t).Removed, "a")
		is(t, "endpoints of a removed cluster are empty", w.held["a"], "")
		s.Push()
		synctest.Wait()
		v.none(t)
		s.Drop(istiodfake.ErrNotReady)
		in(2 * time.Second)
		e := v.one(t)
		equal(t, "confirmed", e.Confirmed, "b")
		is(t, "complete", e.Complete, true)
		obedient(t, s)
	})
}
