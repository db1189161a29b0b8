package mesh_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

const (
	cds = istiodfake.ClusterType
	eds = istiodfake.EndpointType
)

// bed is an istiod, a mapping and a source that watches both.
type bed struct {
	t       *testing.T
	istiod  *istiodfake.Server
	mapping *mapper
	source  *mesh.Source
	table   *registry.Table
	reader  *registry.Reader
	net     *network
	log     strings.Builder
	stop    func()
}

// mapper is a reader of the mapping that says what the test says.
type mapper struct{ snapshots chan debug.Snapshot }

func (m *mapper) Run(ctx context.Context, changed func(debug.Snapshot)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-m.snapshots:
			changed(s)
		}
	}
}

func (m *mapper) say(s debug.Snapshot) {
	m.snapshots <- s
	synctest.Wait()
}

func complete(m metadata.Mapping) debug.Snapshot { return debug.Snapshot{Mapping: m, Complete: true} }

// network is a path to istiod that can be cut.
type network struct {
	mu    sync.Mutex
	lis   *bufconn.Listener
	down  error
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down != nil {
		return nil, n.down
	}
	c, err := n.lis.DialContext(ctx)
	if err == nil {
		n.conns = append(n.conns, c)
	}
	return c, err
}

// cut ends every connection and lets none be made until heal.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = errors.New("network is unreachable")
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = nil
}

// inBoth reports a story in virtual time, once in each variant of xDS.
func inBoth(t *testing.T, story func(b *bed)) {
	t.Helper()
	for name, m := range map[string]ads.Mode{"delta": ads.Delta, "state of the world": ads.StateOfTheWorld} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { story(newBed(t, func(o *mesh.Options) { o.ADS.Mode = m })) })
		})
	}
}

// reach serves an istiod until the test ends, and returns the path to it.
func reach(t *testing.T, s *istiodfake.Server) *network {
	t.Helper()
	server := grpc.NewServer(istiodfake.ServerOptions()...)
	s.Register(server)
	n := &network{lis: bufconn.Listen(1 << 20)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(n.lis)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return n
}

// newBed returns a bed whose source was not started.
func newBed(t *testing.T, change ...func(*mesh.Options)) *bed {
	t.Helper()
	b := &bed{t: t, istiod: istiodfake.NewServer(), table: registry.NewTable(), mapping: &mapper{snapshots: make(chan debug.Snapshot)}}
	b.net = reach(t, b.istiod)
	node, err := ads.Identity{Type: "router", IP: "10.0.0.1", Name: "bridge-0", Namespace: "istio-system"}.Node()
	if err != nil {
		t.Fatal(err)
	}
	o := mesh.Options{ADS: ads.Options{Address: "passthrough:///istiod", Node: node, Dialer: b.net.dial}, Mapping: b.mapping, Log: slog.New(slog.NewTextHandler(&b.log, nil))}
	for _, f := range change {
		f(&o)
	}
	if b.source, err = mesh.New(o); err != nil {
		t.Fatal(err)
	}
	b.reader = b.table.Reader()
	return b
}

// start runs the source until the test ends, or stop is called.
func (b *bed) start() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.source.Run(ctx, b.table) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Run() = %v, want nil", err)
		}
	})
	b.t.Cleanup(b.stop)
	synctest.Wait()
}

// running is a source in sync with a mesh of two services, one with a key.
func (b *bed) running() {
	b.t.Helper()
	b.serve("outbound|1||a.b", "10.0.0.1", "10.0.0.2")
	b.serve("outbound|1||c.d", "10.0.1.1")
	b.serve("outbound|1||e.f", "10.0.2.1")
	b.start()
	b.mapping.say(complete(mapping(b.t, "providers:I::", "a.b:1", "providers:J::", "c.d:1")))
	b.expect("a.b:1 10.0.0.1 10.0.0.2", "c.d:1 10.0.1.1")
	b.expectKnown()
	b.reader.Drain()
}

// serve makes istiod have a cluster with endpoints.
func (b *bed) serve(name string, hosts ...string) {
	b.istiod.Set(edsCluster(name), loadOf(name, hosts...))
	synctest.Wait()
}

func (b *bed) set(m ...proto.Message) {
	b.istiod.Set(m...)
	synctest.Wait()
}

func (b *bed) remove(names ...string) {
	b.istiod.Remove(cds, names...)
	b.istiod.Remove(eds, names...)
	synctest.Wait()
}

// in lets time pass.
func (*bed) in(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

// expect compares the table with lines of a name and hosts.
func (b *bed) expect(want ...string) {
	b.t.Helper()
	rows, _ := b.table.Snapshot()
	var got []string
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		words := []string{string(name)}
		for _, e := range rows[name].Endpoints {
			words = append(words, e.Host)
		}
		got = append(got, strings.Join(words, " "))
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("rows\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (b *bed) certainty() registry.Certainty {
	_, k := b.table.Snapshot()
	return k
}

func (b *bed) expectKnown() {
	b.t.Helper()
	if k := b.certainty(); !k.Synced || k.Stale != nil || len(k.Unknown) != 0 {
		b.t.Fatalf("synced %v, stale %v, unknown %v, want a table that is synced", k.Synced, k.Stale, k.Unknown)
	}
}

func (b *bed) expectStale() {
	b.t.Helper()
	if b.certainty().Stale == nil {
		b.t.Fatal("Stale = nil, want an error")
	}
}

// expectDrain compares what changed since the last drain: names with ! for
// found and - for gone.
func (b *bed) expectDrain(want ...string) {
	b.t.Helper()
	var got []string
	d := b.reader.Drain()
	for _, name := range slices.Sorted(maps.Keys(d.Rows)) {
		s := string(name)
		if d.Rows[name].Service == nil {
			s = "-" + s
		}
		if d.Rows[name].Found {
			s = "!" + s
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("changed %v, want %v", got, want)
	}
}

// subscribed returns the clusters whose endpoints are requested.
func (b *bed) subscribed() []string {
	names := map[string]struct{}{}
	for _, r := range b.istiod.Requests(eds) {
		if r.Versions == nil && len(r.Unsubscribe) == 0 && b.source.Status().Stream.Mode == ads.StateOfTheWorld {
			clear(names)
		}
		for _, name := range r.Subscribe {
			names[name] = struct{}{}
		}
		for _, name := range r.Unsubscribe {
			delete(names, name)
		}
	}
	return slices.Sorted(maps.Keys(names))
}
