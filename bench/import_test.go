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
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestImport reads a whole registry and serves it to a client that does what
// istiod does, in turns with a bare reader of the same.
func TestImport(t *testing.T) {
	for _, size := range []struct{ services, rounds int }{{1_000, 5}, {10_000, 3}} {
		t.Run(fmt.Sprintf("%d services of ZooKeeper", size.services), func(t *testing.T) {
			z := empty(t)
			r := dialRaw(t, z.Address)
			r.write(t, root, size.services)
			source := func() registry.Source { return fromZooKeeper(t, z) }
			imports(t, "ZooKeeper", size.services, size.rounds, z.Process(), source, func() int { return dialRaw(t, z.Address).read(t, root) })
			if size.services == 1_000 {
				in := serve(t, source())
				in.await(t, size.services)
				in.singles(t, "ZooKeeper", 300, r.appears)
			}
		})
		t.Run(fmt.Sprintf("%d services of Nacos", size.services), func(t *testing.T) {
			const group = "DEFAULT_GROUP"
			server := harness.StartNacos(t, harness.NacosOptions{Version: 3, Heap: "4g"})
			r := dialNacos(t, server)
			r.write(t, group, size.services)
			source := func() registry.Source { return fromNacos(t, server) }
			imports(t, "Nacos", size.services, size.rounds, server.Process(), source, func() int {
				reader := dialNacos(t, server)
				defer reader.close()
				return reader.subscribe(t, group)
			})
			if size.services == 1_000 {
				in := serve(t, source())
				in.await(t, size.services)
				subscriber := dialNacos(t, server)
				subscriber.subscribe(t, group)
				in.singles(t, "Nacos", 60, func(t *testing.T, k int) time.Time {
					must(t, r.put(t.Context(), group, k, 7))
					return subscriber.notified(t, iface(k)+"\"", `"endPointWeight":"7"`)
				})
			}
		})
	}
}

// imports measures how long an import lasts until istiod has all of it.
func imports(t *testing.T, from string, services, rounds int, server *harness.Process, source func() registry.Source, read func() int) { //nolint:revive // all of one row
	t.Helper()
	contest{
		what:   fmt.Sprintf("import from %s, %d x %d: own time until istiod has the set", from, services, perService),
		rounds: rounds, beyond: 500 * time.Millisecond,
		floor: func(int) spent {
			return turn(t, server, func() {
				if n := read(); n != services*perService {
					t.Fatalf("%d endpoints read", n)
				}
			})
		},
		ours: func(int) spent {
			var in *imported
			took := turn(t, server, func() {
				in = serve(t, source())
				in.await(t, services)
			})
			in.pipe.end()
			return took
		},
	}.run(t)
}

// imported is the whole path from a registry to an istiod.
type imported struct {
	target  *mcp.Target
	address string // where istiods connect
	pipe    *pipe

	mu     sync.Mutex
	sets   int
	size   int
	got    chan struct{} // ready after a set arrived
	pushed chan time.Time
}

func fromZooKeeper(t *testing.T, z *harness.ZooKeeper) registry.Source {
	t.Helper()
	format, err := dubbo.NewZooKeeper(dubbo.Options{Root: root})
	must(t, err)
	source, err := zookeeper.NewSource(zookeeper.Options{Servers: []string{z.Address}}, zookeeper.SourceOptions{Formats: []zookeeper.Format{format}})
	must(t, err)
	return source
}

func fromNacos(t *testing.T, server *harness.Nacos) registry.Source {
	t.Helper()
	format, err := dubbo.NewNacos(dubbo.Options{})
	must(t, err)
	source, err := nacos.NewSource(nacos.Options{Servers: []string{server.URL}}, nacos.SourceOptions{Formats: []nacos.Format{format}})
	must(t, err)
	return source
}

// serve keeps a registry in a set that istiods are served, and reads that as
// one of them.
func serve(t *testing.T, source registry.Source) *imported {
	t.Helper()
	in := &imported{got: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	in.listen(t, ctx, &running)
	in.read(t, ctx, &running)
	in.follow(t, source, func() { cancel(); running.Wait() })
	return in
}

// listen serves istiods.
func (in *imported) listen(t *testing.T, ctx context.Context, running *sync.WaitGroup) { //nolint:revive // t comes first
	t.Helper()
	in.pushed = make(chan time.Time, 16)
	var err error
	in.target = mcp.NewTarget(mcp.Options{Owner: mark().Owner, VIPs: vips(), Observe: func(o mcp.Observation) {
		if o.Kind == mcp.ObservedPush {
			select {
			case in.pushed <- time.Now():
			default:
			}
		}
	}})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	must(t, err)
	in.address = l.Addr().String()
	running.Go(func() { check(t, in.target.Run(ctx)) })
	running.Go(func() { check(t, mcp.NewServer(in.target, mcp.ServerOptions{}).Serve(ctx, l)) })
}

func vips() netip.Prefix { return netip.MustParsePrefix("240.64.0.0/12") }

// follow keeps what is served in sync with a registry.
func (in *imported) follow(t *testing.T, source registry.Source, closed func()) {
	t.Helper()
	codec, err := serviceentry.New(serviceentry.Options{
		Hosts: hosts(), Namespace: "xds-bridge", Mark: mark(), VIPs: vips(),
	})
	must(t, err)
	in.pipe = run(t, source, in.target, codec.Encode, closed)
}

func hosts() naming.MeshHosts { return naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"} }

// read is an istiod: it reads each set and confirms it.
func (in *imported) read(t *testing.T, ctx context.Context, running *sync.WaitGroup) { //nolint:revive // t comes first
	t.Helper()
	conn, err := grpc.NewClient(in.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
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

// singles measures the return path, one change at a time: our own part is from
// when a bare client of the registry was notified of it, which knows that it was
// and still has to read what, until the set was handed to the streams.
func (in *imported) singles(t *testing.T, from string, n int, change func(t *testing.T, k int) (known time.Time)) {
	t.Helper()
	var own, whole []time.Duration
	for k := range n {
		for len(in.pushed) > 0 {
			<-in.pushed
		}
		began := time.Now()
		known := change(t, k)
		select {
		case at := <-in.pushed:
			own, whole = append(own, at.Sub(known)), append(whole, at.Sub(began))
		case <-time.After(10 * time.Second):
			t.Fatal("a change was not pushed")
		}
		time.Sleep(60 * time.Millisecond) // the next one is a first change again
	}
	for _, l := range []struct {
		name  string
		q     float64
		limit time.Duration
	}{{"p50", 0.5, 2 * time.Millisecond}, {"p99", 0.99, 10 * time.Millisecond}} {
		v := quantile(own, l.q)
		results.add(t, against("single change, "+from+" to istiod, own part until pushed, "+l.name, v, l.limit, 0))
		results.add(t, row{what: "single change, " + from + " to istiod, its write to the registry included, " + l.name, ours: short(quantile(whole, l.q))})
	}
}
