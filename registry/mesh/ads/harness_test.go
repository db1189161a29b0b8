package ads_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

const (
	cds = istiodfake.ClusterType
	eds = istiodfake.EndpointType
)

// variants are the two protocols, for stories that both have to report.
func variants() map[string]ads.Mode {
	return map[string]ads.Mode{"delta": ads.Delta, "state of the world": ads.StateOfTheWorld}
}

// inBoth runs a story in virtual time, once in each variant.
func inBoth(t *testing.T, story func(t *testing.T, m ads.Mode)) {
	t.Helper()
	for name, m := range variants() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { story(t, m) })
		})
	}
}

// in lets virtual time pass.
func in(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

// network is a listener in memory that counts and can freeze its connections.
type network struct {
	mu     sync.Mutex
	lis    *bufconn.Listener
	dials  int
	open   int
	frozen chan struct{}
	down   error
	wires  []*wire
}

// reset breaks every connection.
func (n *network) reset() {
	n.mu.Lock()
	wires := n.wires
	n.wires = nil
	n.mu.Unlock()
	for _, w := range wires {
		_ = w.Close()
	}
	synctest.Wait()
}

// freeze makes every connection a half-open one: nothing arrives any more.
func (n *network) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.frozen)
}

// heal makes connections dialled from now on work.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen, n.down = make(chan struct{}), nil
}

func (n *network) cut(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = err
}

func (n *network) counts() (dials, open int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials, n.open
}

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	n.mu.Lock()
	down, lis, frozen := n.down, n.lis, n.frozen
	n.dials++
	n.mu.Unlock()
	if down != nil {
		return nil, down
	}
	conn, err := lis.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open++
	w := &wire{Conn: conn, network: n, frozen: frozen, closed: make(chan struct{})}
	n.wires = append(n.wires, w)
	return w, nil
}

type wire struct {
	net.Conn
	network *network
	frozen  chan struct{}
	once    sync.Once
	closed  chan struct{}
}

func (w *wire) isFrozen() bool {
	select {
	case <-w.frozen:
		return true
	default:
		return false
	}
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if w.isFrozen() {
		<-w.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	if w.isFrozen() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *wire) Close() error {
	w.once.Do(func() {
		close(w.closed)
		w.network.mu.Lock()
		w.network.open--
		w.network.mu.Unlock()
	})
	return w.Conn.Close()
}

// serve runs a gRPC server in memory until the test ends.
func serve(t *testing.T, register func(*grpc.Server), o ...grpc.ServerOption) *network {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	server := grpc.NewServer(o...)
	register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return &network{lis: lis, frozen: make(chan struct{})}
}

// istiod runs the fake.
func istiod(t *testing.T) (*istiodfake.Server, *network) {
	t.Helper()
	s := istiodfake.NewServer()
	return s, serve(t, func(g *grpc.Server) { s.Register(g) }, istiodfake.ServerOptions()...)
}

func node() *corev3.Node { return named("bridge-0") }

func named(pod string) *corev3.Node {
	n, err := ads.Identity{Type: "router", IP: "10.0.0.1", Name: pod, Namespace: "istio-system", Cluster: "Kubernetes"}.Node()
	if err != nil {
		panic(err)
	}
	return n
}

// connect runs a client until the test ends.
func connect(t *testing.T, n *network, change ...func(*ads.Options)) *ads.Client {
	t.Helper()
	o := ads.Options{Address: "istiod.test:15010", Node: node(), Dialer: n.dial}
	for _, f := range change {
		f(&o)
	}
	c, err := ads.New(o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, c)
	return c
}

func run(t *testing.T, c *ads.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
}

func speaking(m ads.Mode) func(*ads.Options) { return func(o *ads.Options) { o.Mode = m } }

// clusters reads clusters; the value is the connect timeout's seconds, so that
// tests have something to change.
func clusters(decoded *[]string) ads.Kind[int64] {
	return ads.Kind[int64]{URL: cds, Full: true, Decode: func(data []byte) (string, int64, error) {
		var c clusterv3.Cluster
		if err := proto.Unmarshal(data, &c); err != nil {
			return "", 0, err
		}
		if decoded != nil {
			*decoded = append(*decoded, c.GetName())
		}
		if c.GetAltStatName() == "invalid" {
			return c.GetName(), 0, errors.New("marked invalid")
		}
		if c.GetAltStatName() == "panic" {
			panic("decoder bug")
		}
		return c.GetName(), int64(c.GetPerConnectionBufferLimitBytes().GetValue()), nil
	}}
}

// endpoints reads endpoints as their addresses.
func endpoints() ads.Kind[string] {
	return ads.Kind[string]{URL: eds, Decode: func(data []byte) (string, string, error) {
		var c endpointv3.ClusterLoadAssignment
		if err := proto.Unmarshal(data, &c); err != nil {
			return "", "", err
		}
		var all []string
		for _, l := range c.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				all = append(all, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
			}
		}
		return c.GetClusterName(), strings.Join(all, ","), nil
	}}
}

func cluster(name string, n int) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, PerConnectionBufferLimitBytes: wrapperspb.UInt32(uint32(n))}
}

func load(name string, addresses ...string) *endpointv3.ClusterLoadAssignment {
	c := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	l := &endpointv3.LocalityLbEndpoints{}
	for _, a := range addresses {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: a, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80}},
			}}},
		}})
	}
	if len(addresses) > 0 {
		c.Endpoints = append(c.Endpoints, l)
	}
	return c
}

// view is what a consumer makes of events.
type view[T any] struct {
	mu     sync.Mutex
	events []ads.Event[T]
	ended  []error // of streams that delivered; no other event reports so
	held   map[string]T
}

// subscription remembers its names.
type subscription[T any] struct {
	*ads.Subscription[T]
	names []string
}

func watch[T any](c *ads.Client, k ads.Kind[T], names ...string) (*view[T], *subscription[T]) {
	v := &view[T]{held: map[string]T{}}
	s := &subscription[T]{Subscription: ads.Subscribe(c, k, v.observe)}
	s.Watch(names...)
	return v, s
}

func (s *subscription[T]) Watch(names ...string) {
	s.names = append(s.names, names...)
	s.Subscription.Watch(names...)
}

// Set makes names the whole set.
func (s *subscription[T]) Set(names ...string) {
	removed := slices.DeleteFunc(s.names, func(name string) bool { return slices.Contains(names, name) })
	s.names = names
	s.Subscription.Watch(names...)
	s.Unwatch(removed...)
}

func (v *view[T]) observe(e ads.Event[T]) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.Ended != nil {
		v.ended = append(v.ended, e.Ended)
		return
	}
	v.events = append(v.events, e)
	for _, r := range e.Changed {
		v.held[r.Name] = r.Value
	}
	for _, name := range e.Removed {
		delete(v.held, name)
	}
}

// heard returns the events since it was last called.
func (v *view[T]) heard() []ads.Event[T] {
	v.mu.Lock()
	defer v.mu.Unlock()
	events := v.events
	v.events = nil
	return events
}

func (v *view[T]) one(t *testing.T) ads.Event[T] {
	t.Helper()
	events := v.heard()
	if len(events) != 1 {
		t.Fatalf("%d events, want one: %+v", len(events), events)
	}
	return events[0]
}

func (v *view[T]) none(t *testing.T) {
	t.Helper()
	if events := v.heard(); len(events) != 0 {
		t.Fatalf("events %+v, want none", events)
	}
}

func (v *view[T]) names() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.held))
}

func changed[T any](e ads.Event[T]) []string {
	var names []string
	for _, r := range e.Changed {
		names = append(names, r.Name)
	}
	return names
}

func keys(m map[string]error) []string { return slices.Sorted(maps.Keys(m)) }

func equal[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func is[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// obedient checks that the server had nothing to complain of.
func obedient(t *testing.T, s *istiodfake.Server) {
	t.Helper()
	for _, r := range s.Requests("") {
		if r.Verdict == istiodfake.Crash || r.Verdict == istiodfake.Mismatch {
			t.Errorf("%s: %+v", r.Verdict, r)
		}
	}
}
