package bench_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestImport reads a whole ZooKeeper and serves it to a client that does what
// istiod does, beside a bare reader of the same nodes.
func TestImport(t *testing.T) {
	for _, services := range []int{1_000, 10_000} {
		t.Run(fmt.Sprintf("%d services", services), func(t *testing.T) {
			z := empty(t)
			r := dialRaw(t, z.Address)
			r.write(t, root, services)
			began := time.Now()
			r.count(t, root, services)
			floor := time.Since(began)

			began = time.Now()
			in := serveZooKeeper(t, z)
			in.await(t, services)
			ours := time.Since(began)
			results.add(t, row{
				id: "P03", what: fmt.Sprintf("import, %d x %d: until istiod has the set", services, perService),
				ours: short(ours), floor: short(floor) + " to read", ratio: float64(ours) / float64(floor),
			})
			if services == 1_000 {
				in.singles(t, r)
			}
		})
	}
}

// imported is the whole way from a ZooKeeper to an istiod.
type imported struct {
	pipe *pipe

	mu     sync.Mutex
	sets   int
	size   int
	got    chan struct{} // ready after a set arrived
	pushed chan time.Time
}

func serveZooKeeper(t *testing.T, z *harness.ZooKeeper) *imported {
	t.Helper()
	vips := netip.MustParsePrefix("240.64.0.0/12")
	codec, err := serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}, Namespace: "xds-bridge", Mark: mark(), VIPs: vips,
	})
	must(t, err)
	in := &imported{got: make(chan struct{}, 1), pushed: make(chan time.Time, 16)}
	target, err := mcp.NewTarget(mcp.Options{Owner: mark().Owner, VIPs: vips, Observe: func(o mcp.Observation) {
		if o.Kind == mcp.ObservedPush {
			select {
			case in.pushed <- time.Now():
			default:
			}
		}
	}})
	must(t, err)
	format, err := dubbo.NewZooKeeper(dubbo.Options{Root: root})
	must(t, err)
	source, err := zookeeper.NewSource(zookeeper.Options{Servers: []string{z.Address}}, zookeeper.SourceOptions{Formats: []zookeeper.Format{format}})
	must(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { check(t, target.Run(ctx)) })
	running.Go(func() { check(t, mcp.NewServer(target, mcp.ServerOptions{}).Serve(ctx, l)) })
	in.read(t, ctx, &running, l.Addr().String())
	in.pipe = run(t, source, target, codec.Encode, func() { cancel(); running.Wait() })
	return in
}

// read is an istiod: it takes each set in and confirms it.
func (in *imported) read(t *testing.T, ctx context.Context, running *sync.WaitGroup, address string) { //nolint:revive // t comes first
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	must(t, err)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	must(t, err)
	const kind = "networking.istio.io/v1/ServiceEntry"
	must(t, stream.Send(&discovery.DiscoveryRequest{TypeUrl: kind, ResponseNonce: "made up"}))
	running.Go(func() {
		defer conn.Close() //nolint:errcheck // the stream has ended
		for {
			res, err := stream.Recv()
			if err != nil {
				return
			}
			in.mu.Lock()
			in.sets, in.size = in.sets+1, len(res.GetResources())
			in.mu.Unlock()
			select {
			case in.got <- struct{}{}:
			default:
			}
			if stream.Send(&discovery.DiscoveryRequest{TypeUrl: kind, VersionInfo: res.GetVersionInfo(), ResponseNonce: res.GetNonce()}) != nil {
				return
			}
		}
	})
}

// await waits until the istiod has so many ServiceEntries.
func (in *imported) await(t *testing.T, services int) {
	t.Helper()
	timer := time.NewTimer(3 * time.Minute)
	defer timer.Stop()
	for {
		in.mu.Lock()
		size := in.size
		in.mu.Unlock()
		if size == services {
			return
		}
		select {
		case <-in.got:
		case <-timer.C:
			t.Fatalf("istiod has %d of %d", size, services)
		}
	}
}

// singles measures P04 backwards: from the creation of a node until the set
// was handed to the streams, with what ZooKeeper takes for it.
func (in *imported) singles(t *testing.T, r raw) {
	t.Helper()
	const n = 300
	var took []time.Duration
	for i := range n {
		for len(in.pushed) > 0 {
			<-in.pushed
		}
		path := folder(root, i) + "/" + provider(i, 100)
		began := time.Now()
		must(t, r.create(path))
		select {
		case at := <-in.pushed:
			took = append(took, at.Sub(began))
		case <-time.After(10 * time.Second):
			t.Fatal("a change was not pushed")
		}
		time.Sleep(60 * time.Millisecond) // the next one is a first change again
	}
	for _, q := range []struct {
		q     float64
		name  string
		limit time.Duration
	}{{0.5, "p50", 2 * time.Millisecond}, {0.99, "p99", 10 * time.Millisecond}} {
		v := quantile(took, q.q)
		results.add(t, row{
			id: "P04", what: "single change, ZooKeeper to istiod, until pushed, " + q.name,
			ours: short(v), floor: short(q.limit), ratio: float64(v) / float64(q.limit),
		})
	}
}

// TestServing measures P11: one of many ServiceEntries changes while several
// istiods are served.
func TestServing(t *testing.T) {
	const services = 10_000
	codec, err := serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}, Namespace: "xds-bridge", Mark: mark(),
	})
	must(t, err)
	target, err := mcp.NewTarget(mcp.Options{Owner: mark().Owner})
	must(t, err)
	put := func(i, version int) {
		s := &registry.Service{Name: registry.Name(iface(i)), Protocol: "tri", Interfaces: []registry.Interface{{Name: iface(i)}}}
		for n := range perService {
			s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, n+1), Port: 20000, Weight: uint32(version)})
		}
		entries, err := codec.Encode(s)
		must(t, err)
		held, err := target.Read(t.Context(), entries[0].Group)
		must(t, err)
		c := registry.Change{Group: entries[0].Group, Want: entries}
		for j, e := range entries {
			w := registry.Write{New: e}
			if len(held) > 0 {
				w.Old = &held[j]
			}
			c.Put = append(c.Put, w)
		}
		must(t, target.Write(t.Context(), c))
	}
	for i := range services {
		put(i, 1)
	}
	const rounds = 200
	before := cpu(t)
	for i := range rounds {
		put(i, 2)
	}
	each := (cpu(t) - before) / rounds
	results.add(t, row{id: "P11", what: fmt.Sprintf("encoding of one changed ServiceEntry of %d, CPU", services), ours: short(each), floor: "1ms", ratio: float64(each) / float64(time.Millisecond)})
}
