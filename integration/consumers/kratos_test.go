package consumers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kratos "github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/selector"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	"github.com/go-zookeeper/zk"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// These replace the registries of Kratos, which integration/plugins tries:
// they implement Kratos' own interface and look as the real ones do. All else is
// Kratos and gRPC.

// zooKratos discovers as the registry of Kratos in ZooKeeper does: it watches
// the names of a parent znode, and reads the data of all nodes when these change.
type zooKratos struct{ conn *zk.Conn }

// GetService implements kratos.Discovery. One node that is gone fails it.
func (z zooKratos) GetService(_ context.Context, name string) ([]*kratos.ServiceInstance, error) {
	parent := path.Join("/microservices", name)
	names, _, err := z.conn.Children(parent)
	if err != nil {
		return nil, err
	}
	var all []*kratos.ServiceInstance
	for _, n := range names {
		data, _, err := z.conn.Get(path.Join(parent, n))
		if err != nil {
			return nil, err
		}
		s := new(kratos.ServiceInstance)
		if err := json.Unmarshal(data, s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Watch implements kratos.Discovery.
func (z zooKratos) Watch(ctx context.Context, name string) (kratos.Watcher, error) {
	w := newWatcher(ctx, func() ([]*kratos.ServiceInstance, error) { return z.GetService(ctx, name) })
	w.wait.Go(func() {
		for w.ctx.Err() == nil {
			_, _, changed, err := z.conn.ChildrenW(path.Join("/microservices", name))
			if errors.Is(err, zk.ErrNoNode) {
				_, _, changed, err = z.conn.ExistsW(path.Join("/microservices", name))
			}
			if err != nil {
				return
			}
			select {
			case <-w.ctx.Done():
			case <-changed:
				w.notify()
			}
		}
	})
	return w, nil
}

// nacosKratos discovers as the registry of Kratos in Nacos does: it reads the
// whole list whenever the SDK reports another.
type nacosKratos struct {
	t   testing.TB
	sdk *nacossdk.Client
}

// GetService implements kratos.Discovery.
func (n nacosKratos) GetService(_ context.Context, name string) ([]*kratos.ServiceInstance, error) {
	return instancesOf(n.sdk.Subscribe(n.t, name), name), nil
}

func instancesOf(w *nacossdk.Watch, name string) (all []*kratos.ServiceInstance) {
	for _, in := range w.Instances() {
		all = append(all, &kratos.ServiceInstance{
			ID: in.InstanceId, Name: name, Version: in.Metadata["version"], Metadata: in.Metadata,
			Endpoints: []string{"grpc://" + net.JoinHostPort(in.Ip, strconv.FormatUint(in.Port, 10))},
		})
	}
	return all
}

// Watch implements kratos.Discovery.
func (n nacosKratos) Watch(ctx context.Context, name string) (kratos.Watcher, error) {
	subscribed := n.sdk.Subscribe(n.t, name)
	w := newWatcher(ctx, func() ([]*kratos.ServiceInstance, error) { return instancesOf(subscribed, name), nil })
	w.wait.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for before := 0; ; {
			select {
			case <-w.ctx.Done():
				return
			case <-tick.C:
			}
			if lists := len(subscribed.Lists()); lists != before {
				before = lists
				w.notify()
			}
		}
	})
	return w, nil
}

// watcher implements kratos.Watcher.
type watcher struct {
	ctx    context.Context //nolint:containedctx // Next has none
	cancel context.CancelFunc
	events chan struct{}
	get    func() ([]*kratos.ServiceInstance, error)
	wait   sync.WaitGroup
}

func newWatcher(ctx context.Context, get func() ([]*kratos.ServiceInstance, error)) *watcher {
	w := &watcher{events: make(chan struct{}, 1), get: get}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.notify()
	return w
}

func (w *watcher) notify() {
	select {
	case w.events <- struct{}{}:
	default:
	}
}

// Next implements kratos.Watcher.
func (w *watcher) Next() ([]*kratos.ServiceInstance, error) {
	select {
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	case <-w.events:
		return w.get()
	}
}

// Stop implements kratos.Watcher.
func (w *watcher) Stop() error {
	w.cancel()
	w.wait.Wait()
	return nil
}

// kratosConsumer is a client of Kratos that calls all the time.
type kratosConsumer struct {
	mu     sync.Mutex
	seen   []string
	failed []string
	calls  map[string]int // by port
}

// startKratosConsumer starts one that calls from two goroutines.
func startKratosConsumer(t *testing.T, name string, d kratos.Discovery) *kratosConsumer {
	t.Helper()
	c := &kratosConsumer{calls: make(map[string]int)}
	conn, err := kgrpc.DialInsecure(t.Context(), kgrpc.WithEndpoint("discovery:///"+name), kgrpc.WithDiscovery(d), kgrpc.WithTimeout(soon), kgrpc.WithNodeFilter(c.see))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { c.call(ctx, healthpb.NewHealthClient(conn)) })
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		_ = conn.Close()
	})
	return c
}

// see is a filter of nodes that accepts each, and records what Kratos chooses from.
func (c *kratosConsumer) see(_ context.Context, nodes []selector.Node) []selector.Node {
	var seen []string
	for _, n := range nodes {
		_, port, _ := net.SplitHostPort(n.Address())
		m := n.Metadata()
		seen = append(seen, fmt.Sprintf("%s weight=%s zone=%s color=%s", port, m["weight"], m["zone"], m["color"]))
	}
	slices.Sort(seen)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = seen
	return nodes
}

func (c *kratosConsumer) call(ctx context.Context, client healthpb.HealthClient) {
	tick := time.NewTicker(4 * time.Millisecond)
	defer tick.Stop()
	for {
		var at peer.Peer
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&at))
		if ctx.Err() != nil {
			return
		}
		c.took(at, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *kratosConsumer) took(at peer.Peer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		_, port, _ := net.SplitHostPort(at.Addr.String())
		c.calls[port]++
	case len(c.calls) > 0:
		c.failed = append(c.failed, err.Error())
	}
}

func (c *kratosConsumer) Seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

// kratosNode is what a provider of Kratos says of itself.
func kratosNode(name string, port int, s state) string {
	zone := strings.Split(s.zone, "/")
	data, _ := json.Marshal(kratos.ServiceInstance{
		ID: "k" + strconv.Itoa(port), Name: name, Version: "v1",
		Metadata:  map[string]string{"weight": strconv.Itoa(s.weight), "region": zone[0], "zone": zone[1], "color": s.color},
		Endpoints: []string{"grpc://127.0.0.1:" + strconv.Itoa(port)},
	})
	return string(data)
}

// TestKratos: a change in place woke no running consumer of Kratos.
func TestKratos(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const name = "users"
	source := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, source.Address)
	var ports []int
	for range 3 {
		ports = append(ports, kratosServer(t))
	}
	slices.Sort(ports)
	for i, s := range states[0] {
		znodes.Create(t, "/microservices/"+name+"/k"+strconv.Itoa(ports[i]), kratosNode(name, ports[i], s))
	}
	follows := func(t *testing.T, c *kratosConsumer) {
		t.Helper()
		for i, all := range states {
			for j, s := range all {
				if i > 0 {
					znodes.Set(t, "/microservices/"+name+"/k"+strconv.Itoa(ports[j]), kratosNode(name, ports[j], s))
				}
			}
			harness.Eventually(t, soon, fmt.Sprintf("the consumer sees change %d", i), func() error { return harness.Same(c.Seen(), expectedKratos(ports, all)) })
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.failed) > 0 {
			t.Errorf("%d calls failed, of %v answered; the first: %s", len(c.failed), c.calls, c.failed[0])
		}
		t.Log("answered:", c.calls)
	}
	t.Run("at ZooKeeper", func(t *testing.T) {
		target := harness.StartZooKeeper(t)
		bridgeTo(t, source, "zookeeper: { servers: ["+target.Address+"] }")
		conn, _, err := zk.Connect([]string{target.Address}, 10*time.Second, zk.WithLogInfo(false))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		follows(t, startKratosConsumer(t, name, zooKratos{conn}))
	})
	t.Run("at Nacos", func(t *testing.T) {
		target := harness.SharedNacos(t, 2)
		bridgeTo(t, source, "nacos: { "+target.Settings()+" }")
		follows(t, startKratosConsumer(t, name+".grpc", nacosKratos{t, nacossdk.ConnectTo(t, target)}))
	})
}

func expectedKratos(ports []int, all []state) (out []string) {
	for i, s := range all {
		weight := strconv.Itoa(s.weight)
		if s.weight == 100 {
			weight = "" // the usual one is not registered
		}
		out = append(out, fmt.Sprintf("%d weight=%s zone=%s color=%s", ports[i], weight, strings.Split(s.zone, "/")[1], s.color))
	}
	return out
}

// kratosServer starts a server of Kratos on a free port, which registers
// nowhere, and returns the port.
func kratosServer(t *testing.T) int {
	t.Helper()
	port := harness.FreePort(t)
	s := kgrpc.NewServer(kgrpc.Address("127.0.0.1:" + strconv.Itoa(port)))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Start(t.Context()) // ends where it is stopped
	}()
	t.Cleanup(func() {
		_ = s.Stop(context.Background())
		<-ended
	})
	harness.Eventually(t, soon, "Kratos listens", func() error { return harness.Listens(t, "127.0.0.1:"+strconv.Itoa(port)) })
	return port
}
