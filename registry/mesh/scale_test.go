package mesh_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// pods returns a cluster and its endpoints as istiod reports them of pods.
func pods(service, n int) (*clusterv3.Cluster, *endpointv3.ClusterLoadAssignment) {
	name := fmt.Sprintf("outbound|20880||service-%d.shop.svc.cluster.local", service)
	a := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for i := range n {
		if i%100 == 0 {
			a.Endpoints = append(a.Endpoints, &endpointv3.LocalityLbEndpoints{
				Locality: &corev3.Locality{Region: "region1", Zone: fmt.Sprintf("zone%d", i/100%3)},
			})
		}
		l := a.GetEndpoints()[len(a.GetEndpoints())-1]
		l.LbEndpoints = append(l.LbEndpoints, endpoint(fmt.Sprintf("10.%d.%d.%d", service%250, i/250%250, i%250), uint32(20880+i/62500),
			health(corev3.HealthStatus_HEALTHY), mutualTLS(),
			meta("istio", "workload", fmt.Sprintf("service-%d-abc-%d;shop;service;v1;Kubernetes", service, i))))
	}
	return edsCluster(name), a
}

// TestManyEndpoints: 50,000 endpoints in one response of well over
// 4 MiB, and what a row of them costs.
func TestManyEndpoints(t *testing.T) {
	const name = "outbound|20880||service-1.shop.svc.cluster.local"
	hosts := make([]string, 50_000)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("pod-%d.a-name-that-is-as-long-as-the-metadata-of-a-pod.and-has-to-be-read-too.example.com", i)
	}
	c, a := edsCluster(name), loadOf(name, hosts...)
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *mesh.Options) { o.Mapping, o.Naming = nil, everything(t) })
		if n := proto.Size(a); n < 4<<20 {
			t.Fatalf("a response of %d bytes, want 4 MiB at least", n)
		}
		b.set(c, a)
		b.start()
		s := b.table.Get("service-1.shop.svc.cluster.local:20880")
		if s == nil || len(s.Endpoints) != 50_000 {
			t.Fatalf("row = %v, want 50,000 endpoints", s)
		}
		b.expectKnown()
	})
	t.Run("at most 1 kB of memory for each", func(t *testing.T) {
		_, a := pods(2, 5_000)
		data := encode(t, a)
		before := heap()
		_, got, err := plain(t).DecodeAssignment(data)
		if err != nil {
			t.Fatal(err)
		}
		if each := (heap() - before) / 5_000; each > 500 {
			t.Errorf("%d bytes for each endpoint, want at most 500", each)
		}
		runtime.KeepAlive(got)
		runtime.KeepAlive(a)
		runtime.KeepAlive(data)
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkDecode: what a changed cluster of 100 endpoints costs, per
// endpoint.
func BenchmarkDecode(b *testing.B) {
	const n = 100
	_, a := pods(1, n)
	data := encode(b, a)
	r := plain(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := r.DecodeAssignment(data); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/endpoint")
}

// BenchmarkJoin joins 1,000 services of 10 endpoints each from nothing.
func BenchmarkJoin(b *testing.B) {
	v, r := emptyInput(), plain(b)
	for i := range 1000 {
		c, a := pods(i, 10)
		v.Clusters[c.GetName()], v.Assignments[c.GetName()] = decodeCluster(b, r, c), decodeAssignment(b, r, a)
	}
	n := everything(b)
	b.ReportAllocs()
	for b.Loop() {
		if j := n.Join(v); len(j.Services) != 1000 {
			b.Fatal(len(j.Services))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/endpoint")
}
