package bench_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// TestNacos writes a whole mesh into a real Nacos, next to bare batches and a
// loop with the SDK's client. All take turns on one server that has run before and has room
// for all, each into a group of its own, after what was before it has gone
// from the server; who begins changes with every round.
func TestNacos(t *testing.T) {
	for _, size := range []struct{ services, rounds int }{{1_000, 5}, {10_000, 3}} {
		t.Run(fmt.Sprintf("%d services", size.services), func(t *testing.T) {
			n := nacosBench{server: harness.StartNacos(t, harness.NacosOptions{Version: 3, Heap: "4g"}), services: size.services}
			first := dialNacos(t, n.server)
			first.write(t, "FIRST", 2_000)
			first.close()
			gone(t, n.server, "FIRST", 2_000)
			f := newFleet(t, size.services)
			n.initial(t, f, size.rounds)
			if size.services == 1_000 {
				n.recovery(t, f, size.rounds)
				n.single(t, f)
			}
		})
	}
}

// nacosBench is a server and how much it is given.
type nacosBench struct {
	server   *harness.Nacos
	services int
}

// initial measures the first writing.
func (n *nacosBench) initial(t *testing.T, f *fleet, rounds int) {
	t.Helper()
	var fastest time.Duration
	floor := func(round int) spent {
		group := fmt.Sprint("FLOOR", round)
		r := dialNacos(t, n.server)
		took := turn(t, n.server.Process(), func() { r.write(t, group, n.services) })
		r.close()
		gone(t, n.server, group, n.services)
		if fastest == 0 || took.wall < fastest {
			fastest = took.wall
		}
		return took
	}
	ours := func(round int) spent {
		group := fmt.Sprint("OURS", round)
		var p *nacosPipe
		took := turn(t, n.server.Process(), func() {
			p = f.intoNacos(t, n.server, group)
			p.written(t, n.services)
		})
		p.await(t, n.services*perService)
		second := dialNacos(t, n.server)
		if names := second.names(t, group); len(names) != n.services {
			t.Fatalf("a second client sees %d services", len(names))
		}
		second.close()
		p.end()
		gone(t, n.server, group, n.services)
		return took
	}
	contest{
		what:   fmt.Sprintf("initial sync into Nacos, %d x %d", n.services, perService),
		rounds: rounds, limit: 1.5, floor: floor, ours: ours,
	}.run(t)
	sdk := turn(t, n.server.Process(), func() { withSDK(t, n.server, n.services) })
	results.add(t, against(fmt.Sprintf("the same by a loop with the SDK's client, %d x %d", n.services, perService), sdk.wall, fastest, 0))
}

// recovery measures a lost connection: everything is published again after the connection
// was cut.
func (n *nacosBench) recovery(t *testing.T, f *fleet, rounds int) {
	t.Helper()
	r := dialNacos(t, n.server)
	r.write(t, "CUTFLOOR", n.services)
	p := f.intoNacos(t, n.server, "CUT")
	p.await(t, n.services*perService)
	floor := func(int) spent {
		return turn(t, n.server.Process(), func() {
			r.close()
			r = dialNacos(t, n.server)
			r.write(t, "CUTFLOOR", n.services)
		})
	}
	ours := func(int) spent {
		before := p.tap.written()
		took := turn(t, n.server.Process(), func() {
			p.cut()
			p.written(t, before+n.services)
		})
		p.await(t, n.services*perService)
		return took
	}
	contest{
		what:   fmt.Sprintf("lost connection, %d instances published again", n.services*perService),
		rounds: rounds, floor: floor, ours: ours,
	}.run(t)
	r.close()
	p.end()
}

// single measures a single change: one endpoint changes while nothing else does. What the
// server spends on notifying its subscribers is its own affair.
func (n *nacosBench) single(t *testing.T, f *fleet) {
	t.Helper()
	const singles = 300
	p := f.intoNacos(t, n.server, "SINGLE")
	p.await(t, n.services*perService)
	subscriber, r := dialNacos(t, n.server), dialNacos(t, n.server)
	if got := subscriber.subscribe(t, "SINGLE"); got != n.services*perService {
		t.Fatalf("a subscriber sees %d instances", got)
	}
	passed := make(chan passage, 1)
	p.tap.report(passed)
	defer p.tap.report(nil)
	var own, whole, floor, push []time.Duration
	for k := range singles {
		version := 2 + k/n.services
		at := f.change(k%n.services, uint32(version))
		w := <-passed
		own = append(own, w.begun.Sub(at))
		whole = append(whole, w.done.Sub(at))
		if k%5 == 0 { // they last half a second each
			push = append(push, subscriber.notified(t, iface(k%n.services)+"\"", fmt.Sprintf(`"endPointWeight":"%d"`, version)).Sub(w.done))
		}
		began := time.Now()
		must(t, r.put(t.Context(), "SINGLEFLOOR", k%n.services, version))
		floor = append(floor, time.Since(began))
	}
	for _, l := range []struct {
		name  string
		q     float64
		limit time.Duration
	}{{"p50", 0.5, 2 * time.Millisecond}, {"p99", 0.99, 10 * time.Millisecond}} {
		results.add(t, against("single change into Nacos, own part until its write, "+l.name, quantile(own, l.q), l.limit, 1))
		results.add(t, against("single change into Nacos, until the server confirmed it, "+l.name, quantile(whole, l.q), quantile(floor, l.q), 0))
		results.add(t, row{what: "the server's delay until a subscriber is notified, " + l.name, ours: short(quantile(push, l.q)), floor: "500ms"})
	}
	p.end()
}

// nacosPipe is the whole path from a fleet to a Nacos.
type nacosPipe struct {
	*pipe
	cut func() // its connections
}

// scope is where the codec's services lie.
type scope struct {
	*dubbo.Nacos
	group string
}

// Scopes implements nacos.Layout.
func (s scope) Scopes() []registry.Group {
	return []registry.Group{{Kind: dubbo.Kind, Group: s.group}}
}

func (f *fleet) intoNacos(t *testing.T, server *harness.Nacos, group string) *nacosPipe {
	t.Helper()
	codec, err := dubbo.NewNacos(dubbo.Options{Group: group, Mark: mark()})
	must(t, err)
	var conns connections
	client, err := nacos.New(nacos.Options{Servers: []string{server.URL}, Dialer: conns.dial})
	must(t, err)
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: mark().Owner, Layouts: []nacos.Layout{scope{codec, group}}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(t, client.Run(ctx))
	}()
	return &nacosPipe{
		pipe: f.into(t, target, codec.Encode, func() { cancel(); <-done }),
		cut:  conns.cut,
	}
}

// connections are those that a dialer opened.
type connections struct {
	mu   sync.Mutex
	open []net.Conn
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = append(c.open, conn)
	}
	return conn, err
}

// cut closes all of them.
func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// withSDK is a loop over the SDK's own client, one service after the other, as
// a program does that knows nothing better.
func withSDK(t *testing.T, server *harness.Nacos, services int) {
	t.Helper()
	dir := t.TempDir()
	address, err := url.Parse(server.URL)
	must(t, err)
	port, err := strconv.ParseUint(address.Port(), 10, 16)
	must(t, err)
	client, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig:  constant.NewClientConfig(constant.WithLogDir(dir), constant.WithCacheDir(dir), constant.WithLogLevel("error"), constant.WithNotLoadCacheAtStart(true)),
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig("127.0.0.1", port)},
	})
	must(t, err)
	defer client.CloseClient()
	for i := range services {
		var list []vo.RegisterInstanceParam
		for _, in := range instances(i, 1) {
			list = append(list, vo.RegisterInstanceParam{
				Ip: in.Ip, Port: in.Port, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, Metadata: in.Metadata, ServiceName: serviceName(i), GroupName: "SDK",
			})
		}
		ok, err := client.BatchRegisterInstance(vo.BatchRegisterInstanceParam{ServiceName: serviceName(i), GroupName: "SDK", Instances: list})
		if err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
	}
}
