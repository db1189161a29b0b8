package bench_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
)

// TestIstiod brings a registry of 5,000 services into a real istiod, both the
// bridge and istiod cold, and measures how much memory the bridge then uses.
func TestIstiod(t *testing.T) {
	const services = 5_000
	z := empty(t)
	r := dialRaw(t, z.Address)
	r.write(t, root, services)
	r.conn.Close()
	in := &imported{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	began := time.Now()
	in.listen(t, ctx, &running)
	in.follow(t, fromZooKeeper(t, z), func() { cancel(); running.Wait() })
	mesh := harness.NewMesh(t)
	mesh.From(in.address)
	istiod := harness.StartIstiod(t, mesh)
	serves := time.Since(began)
	harness.Eventually(t, time.Minute, "istiod has all services", func() error {
		n := 0
		for _, name := range harness.Clusters(t, istiod.GRPC, "router") {
			if strings.HasSuffix(name, "."+hosts().Suffix) {
				n++
			}
		}
		if n != services {
			return fmt.Errorf("%d of %d", n, services)
		}
		return nil
	})
	for _, i := range []int{0, services / 2, services - 1} {
		name := naming.MeshName{Key: naming.ServiceKey{Category: naming.Providers, Interface: iface(i)}, Protocol: "tri"}
		var want []string
		for n := range perService {
			want = append(want, fmt.Sprintf("10.%d.%d.%d:20000", i>>8, i&255, n+1))
		}
		harness.WatchEndpoints(t, istiod.GRPC, "outbound|50051||"+hosts().Of(name)).AwaitPush(t, time.Minute, want...)
	}
	what := fmt.Sprintf("a registry of %d x %d in a real istiod, from cold; istiod was ready after %s", services, perService, short(serves))
	results.add(t, against(what, time.Since(began), 20*time.Second, 1))
	const aim = 1000
	with := heap()
	in.pipe.end()
	*in = imported{}
	each := float64(int64(with)-int64(heap())) / (services * perService)
	results.add(t, row{
		what: fmt.Sprintf("memory per endpoint of a registry in the mesh, %d x %d", services, perService),
		ours: fmt.Sprintf("%.0f B", each), floor: fmt.Sprintf("%d B", aim), ratio: each / aim, limit: 1,
	})
}
