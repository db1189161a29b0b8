package keys_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in lets virtual time pass, and everything that happens within it.
func in(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

// istiod is a fake istiod that counts the connections it accepted and has open.
type istiod struct {
	*istiodfake.Server
	*bufconn.Listener

	mu             sync.Mutex
	accepted, open int
	down           bool
}

func startIstiod(t *testing.T) *istiod {
	t.Helper()
	i := &istiod{Server: istiodfake.NewServer(), Listener: bufconn.Listen(1 << 20)}
	server := grpc.NewServer(istiodfake.ServerOptions()...)
	i.Register(server)
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(i) })
	t.Cleanup(func() {
		server.Stop()
		group.Wait()
	})
	return i
}

// Accept implements net.Listener.
func (i *istiod) Accept() (net.Conn, error) {
	conn, err := i.Listener.Accept()
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.accepted++
	i.open++
	return &counted{Conn: conn, closed: sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.open--
	})}, nil
}

type counted struct {
	net.Conn

	closed func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

func (i *istiod) unplug(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

func (i *istiod) connections() (accepted, open int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.accepted, i.open
}

// label returns what a connected node says under a label.
func label(n *corev3.Node, name string) string {
	return n.GetMetadata().GetFields()["LABELS"].GetStructValue().GetFields()[name].GetStringValue()
}

// shown is what the debug API would show: each node's name and keys.
func (i *istiod) shown() string {
	var nodes []string
	for _, c := range i.Connections() {
		nodes = append(nodes, strings.Split(c.Node.GetId(), "~")[2]+" "+label(c.Node, "DUBBO_GO"))
	}
	return strings.Join(nodes, "; ")
}

// streams returns how many streams were opened so far.
func (i *istiod) streams() int {
	last := 0
	for _, r := range i.Requests("") {
		last = max(last, r.Stream)
	}
	return last
}

// world is a publisher and the replicas it is to publish to.
type world struct {
	*keys.Publisher

	mu              sync.Mutex
	istiods         map[string]*istiod
	listed          []string
	listErr         error
	openConnections int // connections dialled and not released
	observed        []keys.Observation
	end             func()
}

func start(t *testing.T, replicas map[string]*istiod, change ...func(*keys.Options)) *world {
	t.Helper()
	w := &world{istiods: replicas}
	w.list()
	o := keys.Options{Replicas: w.replicas, Dial: w.dial, Node: node(t), Observe: w.observe}
	for _, f := range change {
		f(&o)
	}
	p, err := keys.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.Publisher = p
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		if w.openConnections != 0 {
			t.Errorf("%d connections are open, want none", w.openConnections)
		}
	})
	t.Cleanup(w.end)
	return w
}

func node(t *testing.T) *corev3.Node {
	t.Helper()
	n, err := ads.Identity{Type: "router", IP: "10.0.0.1", Name: "bridge-0", Namespace: "istio-system"}.Node()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// list makes the replicas of these names the listed ones; none are all.
func (w *world) list(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(names) == 0 {
		for name := range w.istiods {
			names = append(names, name)
		}
	}
	w.listed = names
}

// fail makes listings fail, until it is called with nil.
func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listErr = err
}

func (w *world) replicas(context.Context) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed, w.listErr
}

func (w *world) dial(replica string) (grpc.ClientConnInterface, func(), error) {
	i := w.istiods[replica]
	conn, err := ads.Dial("passthrough:///"+replica, ads.Credentials{}, grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) {
			i.mu.Lock()
			down := i.down
			i.mu.Unlock()
			if down {
				return nil, errors.New("connection refused")
			}
			return i.DialContext(ctx)
		}))
	if err != nil {
		return nil, nil, err
	}
	w.countConnection(1)
	return conn, func() { w.countConnection(-1); _ = conn.Close() }, nil
}

func (w *world) countConnection(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.openConnections += n
}

func (w *world) observe(o keys.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observed = append(w.observed, o)
}

// count returns how often a kind was observed.
func (w *world) count(kind keys.Observed) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, o := range w.observed {
		if o.Kind == kind {
			n++
		}
	}
	return n
}

// some returns the keys of interfaces api.<name>, each at a host of its own.
func some(names ...string) map[naming.ServiceKey]naming.HostAddress {
	hosts := make(map[naming.ServiceKey]naming.HostAddress)
	for _, name := range names {
		key := naming.ServiceKey{Category: naming.Providers, Interface: "api." + name}
		hosts[key] = naming.HostAddress{Host: strings.ToLower(name) + ".zk1.bridge.internal", Port: 50051}
	}
	return hosts
}

// text is how those keys are published.
func text(names ...string) string {
	var pairs []string
	for _, name := range names {
		pairs = append(pairs, fmt.Sprintf(`"providers:api.%s::":"%s.zk1.bridge.internal:50051"`, name, strings.ToLower(name)))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
