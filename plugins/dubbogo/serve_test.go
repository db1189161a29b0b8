//go:build !race

// dubbo-go itself has data races: a call chooses among providers while others are set (RouterChain).
// So these tests run without the race detector.

package dubbogo_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"dubbo.apache.org/dubbo-go/v3"
	dclient "dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	dlogger "dubbo.apache.org/dubbo-go/v3/logger"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/server"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/dubbogo"
)

// Greeter answers with the port on which it was called.
type Greeter struct{ service string }

// Greet is its only method.
func (*Greeter) Greet(context.Context, string) (string, error) { return "hello", nil }

// Reference names the service.
func (g *Greeter) Reference() string { return g.service }

func freePort(t testing.TB) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of tcp
}

func levels() map[string]registry.Option {
	return map[string]registry.Option{
		"interface": registry.WithRegisterInterface(), "application": registry.WithRegisterService(), "both": registry.WithRegisterServiceAndInterface(),
	}
}

// meets adds a process to a registry. Its client ends with the test program, because dubbo-go keeps
// using it.
func meets(t testing.TB, r *clientfake.Registry) (address string) {
	t.Helper()
	c, err := client.New(r.Backend(), client.Options{DrainDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return dubbogo.Use(c)
}

func instance(t testing.TB, name string, o ...dubbo.InstanceOption) *dubbo.Instance {
	t.Helper()
	i, err := dubbo.NewInstance(append(o, dubbo.WithName(name), dubbo.WithLogger(dlogger.WithLevel("fatal")))...)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func refer(t testing.TB, i *dubbo.Instance, service string, o ...dclient.ReferenceOption) *dclient.Connection {
	t.Helper()
	c, err := i.NewClient(dclient.WithClientNoCheck())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.NewService(&Greeter{service}, append(o, dclient.WithInterface(service))...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// eventually retries until there is no error.
func eventually(t testing.TB, try func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // for a failing test
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.NewTimer(10 * time.Millisecond).C
	}
}

// greet makes a call. dubbo-go v3.3.1 reads the URL from an invoker that it destroys,
// and a call that is choosing among invokers at that moment panics: apache/dubbo-go#3153.
func greet(ctx context.Context, conn *dclient.Connection) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if !bytes.Contains(debug.Stack(), []byte("dubbo-go/v3/common.(*URL).")) {
				panic(p)
			}
			err = fmt.Errorf("dubbo-go: %v", p)
		}
	}()
	var answer string
	if err := conn.CallUnary(ctx, []any{"me"}, &answer, "Greet"); err != nil {
		return err
	}
	if answer != "hello" {
		return fmt.Errorf("the answer is %q", answer)
	}
	return nil
}

// watching is a load balancer that reports its choices.
type watching struct {
	loadbalance.LoadBalance
	seen func([]base.Invoker, base.Invocation)
}

// Select implements loadbalance.LoadBalance.
func (w watching) Select(all []base.Invoker, call base.Invocation) base.Invoker {
	w.seen(all, call)
	return w.LoadBalance.Select(all, call)
}

// TestServe_Weights: at both levels, also after a change of a weight.
func TestServe_Weights(t *testing.T) {
	for level, by := range levels() {
		t.Run(level, func(t *testing.T) {
			const n = 4000
			counts := make(map[string]int)
			extension.SetLoadbalance("counting", func() loadbalance.LoadBalance {
				return watching{random.NewRandomLoadBalance(), func(all []base.Invoker, call base.Invocation) {
					clear(counts)
					for range n {
						counts[random.NewRandomLoadBalance().Select(all, call).GetURL().Port]++
					}
				}}
			})
			world, service := clientfake.New(), "api.Weighed."+level
			heavy, light := freePort(t), freePort(t)
			provider := member(t, world)
			for port, weight := range map[int]float64{heavy: 0.3, light: 0.1} {
				i := client.Instance{
					Application: "weighed", Interfaces: []client.Interface{{Name: service}}, Host: "127.0.0.1", Port: uint16(port), Protocol: "tri", Weight: client.WeightOf(weight), //nolint:gosec // a port
				}
				if err := provider.Register(i); err != nil {
					t.Fatal(err)
				}
			}
			conn := refer(t, instance(t, "weigher", dubbo.WithRegistry(registry.WithAddress(meets(t, world)), by)), service,
				dclient.WithLoadBalance("counting"), dclient.WithRetries(0))
			shares := func(percent int) {
				t.Helper()
				eventually(t, func() error {
					_ = greet(t.Context(), conn) // there may be no provider
					if got := counts[strconv.Itoa(heavy)] * 100; got < n*(percent-5) || got > n*(percent+5) {
						return fmt.Errorf("want %d %%, got %v, %d is the heavy one", percent, counts, heavy)
					}
					return nil
				})
			}
			shares(75)
			world.Weigh(fmt.Sprintf("127.0.0.1:%d", light), 30)
			shares(50)
		})
	}
}

// TestProvidersAndConsumers calls a real server of dubbo-go by real consumers of dubbo-go, at each
// level and by each protocol. dubbo-go's globals do not support several servers that start at the same
// time, so that there is one server, which starts last.
func TestProvidersAndConsumers(t *testing.T) {
	const service = "api.Greeter"
	speaks := map[string]dclient.ReferenceOption{"tri": dclient.WithProtocolTriple(), "dubbo": dclient.WithProtocolDubbo()}
	conns := make(map[string]*dclient.Connection)
	var o []dubbo.InstanceOption
	for level, by := range levels() {
		world := clientfake.New()
		consumers := meets(t, world)
		o = append(o, dubbo.WithRegistry(registry.WithID(level), registry.WithAddress(meets(t, world)), by))
		for name, spoken := range speaks {
			i := instance(t, "consumer", dubbo.WithRegistry(registry.WithAddress(consumers), by))
			conns[level+"/"+name] = refer(t, i, service, spoken)
		}
	}
	o = append(o, dubbo.WithMetadataServicePort(freePort(t))) // otherwise it would use that of dubbo
	s, err := instance(t, "provider", o...).NewServer(
		server.WithServerProtocol(protocol.WithTriple(), protocol.WithIp("127.0.0.1"), protocol.WithPort(freePort(t))),
		server.WithServerProtocol(protocol.WithDubbo(), protocol.WithIp("127.0.0.1"), protocol.WithPort(freePort(t))))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterService(&Greeter{service}, server.WithInterface(service)); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve() }() // forever
	for name, conn := range conns {
		t.Run(name, func(t *testing.T) { eventually(t, func() error { return greet(t.Context(), conn) }) })
	}
}

// byApplication is a registry at the level of applications.
type byApplication struct{ registry.Registry }

func (byApplication) LoadSubscribeInstances(*common.URL, registry.NotifyListener) error { return nil }

func (byApplication) Subscribe(*common.URL, registry.NotifyListener) error { return nil }

func (byApplication) Register(*common.URL) error { return nil }

func (byApplication) GetURL() *common.URL { return nil }

// TestServe_RegistryLevel: only registries of this package are changed.
func TestServe_RegistryLevel(t *testing.T) {
	opened := 0
	extension.SetRegistry(constant.ServiceRegistryProtocol, func(*common.URL) (registry.Registry, error) {
		opened++
		return byApplication{}, nil
	})
	ours := at(member(t, clientfake.New()))
	for name, want := range map[string]int{ours.Protocol: 0, "elsewhere": 1} {
		opened = 0
		u := parsed(t, "service-discovery-registry://"+ours.Location+"?registry="+name)
		u.SubURL = consumer(t)
		if invoker := extension.GetProtocol(constant.RegistryProtocol).Refer(u); invoker == nil || opened != want {
			t.Errorf("%s: %v, opened %d on the level of applications", name, invoker, opened)
		}
	}
}
