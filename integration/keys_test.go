package integration_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// publisher publishes keys to istiods until the test ends.
func publisher(t *testing.T, replicas ...string) *keys.Publisher {
	t.Helper()
	node, err := ads.Identity{Type: "router", IP: "127.0.0.1", Name: "bridge-0", Namespace: "istio-system"}.Node()
	if err != nil {
		t.Fatal(err)
	}
	p, err := keys.New(keys.Options{
		Replicas: debug.Static(replicas...), Node: node,
		Dial: func(replica string) (grpc.ClientConnInterface, func(), error) {
			conn, err := ads.Dial(replica, ads.Credentials{})
			if err != nil {
				return nil, nil, err
			}
			return conn, func() { _ = conn.Close() }, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, p.Run)
	return p
}

// background runs something until the test ends.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// awaitShown waits until istiod shows exactly these keys, each node's.
func awaitShown(t *testing.T, i *harness.Istiod, want ...string) {
	t.Helper()
	harness.Eventually(t, soon, "adsz shows "+strings.Join(want, " "), func() error {
		shown, err := i.PublishedKeys(t)
		if err != nil {
			return err
		}
		return harness.Same(slices.Sorted(maps.Values(shown)), want)
	})
}

func hosts(interfaces ...string) map[naming.ServiceKey]naming.HostAddress {
	all := make(map[naming.ServiceKey]naming.HostAddress)
	for _, i := range interfaces {
		key := naming.ServiceKey{Category: naming.Providers, Interface: i}
		all[key] = naming.HostAddress{Host: strings.ToLower(i) + ".zk1.bridge.internal", Port: 50051}
	}
	return all
}

func TestKeys_SeveralIstiods(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	mesh := harness.NewMesh(t)
	mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(18101)})
	one, two := harness.StartIstiod(t, mesh), harness.StartIstiod(t, mesh)
	p := publisher(t, one.GRPC, two.GRPC)
	t.Run("both replicas show them, as one node", func(t *testing.T) {
		p.Set(hosts("api.A"))
		p.Set(hosts("api.A", "api.B"))
		for _, i := range []*harness.Istiod{one, two} {
			awaitShown(t, i, `{"providers:api.A::":"api.a.zk1.bridge.internal:50051","providers:api.B::":"api.b.zk1.bridge.internal:50051"}`)
		}
	})
	t.Run("our own reader of the mapping skips them and accepts an application's", func(t *testing.T) {
		harness.Publish(t, one.GRPC, "greet-1", map[string]string{greetKey: greetAddress})
		read := newReading(t, one.HTTP)
		harness.Eventually(t, soon, "the mapping is read", func() error {
			return harness.Same(read.keys(), []string{greetKey})
		})
	})
	t.Run("while keys change an istiod shows the old ones or the new ones", func(t *testing.T) {
		for n := range 20 {
			name := fmt.Sprint("api.K", n)
			p.Set(hosts(name))
			harness.Eventually(t, soon, "adsz shows "+name, func() error {
				shown, err := two.PublishedKeys(t)
				if err != nil {
					return err
				}
				if len(shown) == 0 {
					t.Error("no keys are shown")
				}
				return harness.Same(slices.Collect(maps.Values(shown)), []string{`{"providers:` + name + `::":"` + strings.ToLower(name) + `.zk1.bridge.internal:50051"}`})
			})
		}
	})
	t.Run("an istiod that comes back has them again", func(t *testing.T) {
		two.Kill()
		p.Set(hosts("api.C"))
		two.Start(t)
		awaitShown(t, two, `{"providers:api.C::":"api.c.zk1.bridge.internal:50051"}`)
	})
	t.Run("after the last withdrawal an empty object is shown", func(t *testing.T) {
		p.Set(nil)
		awaitShown(t, two, "{}")
	})
}

func TestKeys_Many(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	i := harness.StartIstiod(t, harness.NewMesh(t))
	p := publisher(t, i.GRPC)
	many := make(map[naming.ServiceKey]naming.HostAddress)
	for n := range 40_000 {
		maps.Copy(many, hosts(fmt.Sprintf("api.company.department.Service%d", n)))
	}
	p.Set(many)
	harness.Eventually(t, soon, "every key is shown", func() error {
		shown, err := i.PublishedKeys(t)
		if err != nil {
			return err
		}
		all := make(map[naming.ServiceKey]naming.HostAddress)
		for client, text := range shown {
			published, _ := metadata.ParsePublication(client, text)
			maps.Copy(all, published.Hosts)
		}
		if !maps.Equal(all, many) {
			return fmt.Errorf("%d keys on %d nodes", len(all), len(shown))
		}
		return nil
	})
}

func TestKeys_Confirmed(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	xds, http := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	p := publisher(t, xds)
	server := startMCP(t, func(o *mcp.Options) { o.Confirmed = p.Set })
	greeter := registry.Service{Name: "api.Greeter", Protocol: "tri", Interfaces: []registry.Interface{{Name: "api.Greeter", Version: "1.0"}}}
	server.provide(t, greeter, "10.0.0.1:20001")
	server.target.SourcesComplete()
	mesh := harness.NewMesh(t)
	mesh.From(server.address)
	i := harness.StartIstiodAt(t, mesh, xds, http)
	host := naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}.Of(naming.MeshName{
		Key: naming.ServiceKey{Category: naming.Providers, Interface: "api.Greeter", Version: "1.0"}, Protocol: "tri",
	})
	awaitShown(t, i, `{"providers:api.Greeter:1.0:":"`+host+`:50051"}`)
	harness.WatchEndpoints(t, i.GRPC, "outbound|50051||"+host).AwaitPush(t, soon, "10.0.0.1:20001")
	server.withdraw(t, greeter)
	awaitShown(t, i, "{}")
}

// reading is what a reader of the mapping reported last.
type reading struct {
	mu   sync.Mutex
	last debug.Snapshot
}

func newReading(t *testing.T, address string) *reading {
	t.Helper()
	r, err := debug.New(debug.Options{Replicas: debug.Static(address), HTTP: &debug.HTTPOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	read := &reading{}
	background(t, func(ctx context.Context) error { return r.Run(ctx, read.changed) })
	return read
}

func (r *reading) changed(s debug.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = s
}

func (r *reading) keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for key := range r.last.Mapping.All() {
		all = append(all, key.String())
	}
	return all
}
