package nacos_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const format = "providers"

// layout is a format whose services begin with "providers:".
type layout struct{}

func (layout) Scopes() []registry.Group {
	return []registry.Group{{Kind: format, Group: "DEFAULT_GROUP"}}
}

func (layout) GroupOf(namespace, group, service string) (registry.Group, bool) {
	return registry.Group{Kind: format, Namespace: namespace, Group: group, Name: service}, strings.HasPrefix(service, "providers:")
}

var (
	greeter = registry.Group{Kind: format, Group: "DEFAULT_GROUP", Name: "providers:api.Greeter::"}
	mine    = metadata.NewMark("me", "mesh-to-nacos")
	theirs  = metadata.NewMark("another", "mesh-to-nacos")
)

func service(g registry.Group) nacosfake.Service {
	return nacosfake.Service{Namespace: g.Namespace, Group: g.Group, Name: g.Name}
}

func entry(g registry.Group, ip string, mark metadata.Mark, extra ...string) registry.Entry {
	in := metadata.NacosInstance{
		IP: ip, Port: 20000, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
		Metadata: map[string]string{"protocol": "tri", metadata.MarkKey: mark.String()},
	}
	for i := 0; i+1 < len(extra); i += 2 {
		in.Metadata[extra[i]] = extra[i+1]
	}
	return registry.Entry{Group: g, Key: in.Key(), Value: in.String()}
}

func change(g registry.Group, want ...registry.Entry) registry.Change {
	c := registry.Change{Group: g, Want: want}
	for _, e := range want {
		c.Put = append(c.Put, registry.Write{New: e})
	}
	return c
}

// layouts are those of every target here.
func layouts() []nacos.Layout { return []nacos.Layout{layout{}} }

// A rig is a server in memory and a target that writes to it.
type rig struct {
	server *nacosfake.Server
	client *nacos.Client
	target *nacos.Target
	stop   func() // ends the client
	rpc    *bufconn.Listener
	web    *bufconn.Listener
}

// start serves and connects a target, which ends with the test.
func start(t *testing.T, server *nacosfake.Server, tune func(*nacos.Options)) *rig {
	t.Helper()
	r := &rig{server: server, rpc: bufconn.Listen(1 << 20), web: bufconn.Listen(1 << 20)}
	server.Serve(r.rpc, r.web)
	t.Cleanup(server.Close)
	r.client, r.target, r.stop = r.connect(t, tune)
	return r
}

// connect returns another target at the same server, and what ends it.
func (r *rig) connect(t *testing.T, tune func(*nacos.Options)) (*nacos.Client, *nacos.Target, func()) {
	t.Helper()
	return r.connectAs(t, mine.Owner, tune)
}

// connectAs is connect for another owner.
func (r *rig) connectAs(t *testing.T, owner string, tune func(*nacos.Options)) (*nacos.Client, *nacos.Target, func()) {
	t.Helper()
	o := nacos.Options{Servers: []string{"http://nacos:8848"}, Dialer: r.dial}
	if tune != nil {
		tune(&o)
	}
	client, err := nacos.New(o)
	if err != nil {
		t.Fatal(err)
	}
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: owner, Layouts: layouts()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return client, target, stop
}

// dial leads to the server whatever host is asked for.
func (r *rig) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if strings.HasSuffix(address, ":9848") {
		return r.rpc.DialContext(ctx)
	}
	return r.web.DialContext(ctx)
}

func (r *rig) write(t *testing.T, want ...registry.Entry) {
	t.Helper()
	if err := r.target.Write(t.Context(), change(greeter, want...)); err != nil {
		t.Fatal(err)
	}
}

// visible returns what every client of the server sees of the greeter.
func (r *rig) visible() []string {
	var out []string
	for _, in := range r.server.Instances(service(greeter)) {
		out = append(out, in.Ip)
	}
	return out
}

func (r *rig) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := r.visible(); !slices.Equal(got, want) {
		t.Errorf("the server holds %v, want %v", got, want)
	}
}

func (r *rig) read(t *testing.T) []registry.Stored {
	t.Helper()
	held, err := r.target.Read(t.Context(), greeter)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
