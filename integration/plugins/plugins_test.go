// Package plugins_test shows that servers and clients of the RPC frameworks find
// each other through a real istiod, a real ZooKeeper and a real Nacos by the
// plugins alone, without a bridge. It runs the examples of the plugins.
package plugins_test

import (
	"cmp"
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
)

const (
	soon    = 2 * time.Minute
	drained = 80 * time.Second // of a server that was asked to end
)

func frameworks() []string {
	return []string{"grpc", "kratos", "hertz", "kitex", "gozero", "gokit", "dubbogo"}
}

// formats are those of the frameworks' own registries.
func formats() map[string]map[string]string {
	both := func(format string) map[string]string { return map[string]string{"zookeeper": format, "nacos": format} }
	return map[string]map[string]string{
		"kratos": both("kratos"), "hertz": both("hertz"), "kitex": both("kitex"), "gozero": {"nacos": "gozero"}, "gokit": both("plain"),
	}
}

// TestDiscovery: of each framework a client finds a
// server, then a second one; the registry is restarted; a third one comes and
// the second one goes; but for the gate, the others are replaced one by one then. From
// its first answer on no call of any client fails.
// Which registry it is says one line of configuration.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	examples := build(t)
	for name, start := range map[string]func(*testing.T) registry{
		"istiod": startMesh, "ZooKeeper": startZooKeeper,
		"Nacos 2": func(t *testing.T) registry { t.Helper(); return startNacos(t, 2) },
		"Nacos 3": func(t *testing.T) registry { t.Helper(); return startNacos(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := start(t)
			var services []*service
			for _, f := range frameworks() {
				services = append(services, newService(t, f, examples[f], at))
			}
			each := func(what string, do func(*service)) {
				t.Log(what)
				for _, s := range services {
					do(s)
				}
			}
			each("the first server", func(s *service) { s.serve(t) })
			each("is called", func(s *service) { s.awaitCalls(t) })
			each("a second one", func(s *service) { s.serve(t) })
			each("is called too", func(s *service) { s.awaitCalls(t) })
			at.kill(t)
			at.start(t)
			each("a third one, after the restart", func(s *service) { s.serve(t) })
			each("is called too", func(s *service) { s.awaitCalls(t) })
			ended := make(map[string]*harness.Process)
			each("all are registered again", func(s *service) { s.awaitRegistered(t) })
			each("the second one is asked to end", func(s *service) { ended[s.framework] = s.retire(t, 1) })
			each("it ends", func(s *service) { s.awaitEnd(t, ended[s.framework]) })
			each("the others are called on", func(s *service) { s.awaitCalls(t) })
			if !testing.Short() {
				for range services[0].servers {
					each("one is replaced", func(s *service) { ended[s.framework] = s.retire(t, 0) })
					each("it ends", func(s *service) { s.awaitEnd(t, ended[s.framework]) })
					each("another one", func(s *service) { s.serve(t) })
					each("is called", func(s *service) { s.awaitCalls(t) })
				}
			}
			each("nobody noticed", func(s *service) { s.checkNoneFailed(t) })
			conforms(t, at)
		})
	}
}

// service is clients of one framework and its servers.
type service struct {
	framework string
	as        string // its name; empty: greeter and the framework's
	calledAs  string // by clients; empty: the same
	binary    string // the plugin's example
	at        registry
	drain     string // how long servers continue once they are withdrawn; empty: 15s
	servers   []server
	clients   []*calls
}

type server struct {
	port    int
	process *harness.Process
}

// newService starts a client.
func newService(t *testing.T, framework, binary string, at registry) *service {
	t.Helper()
	s := &service{framework: framework, binary: binary, at: at}
	s.call(t, at, "client", binary, 20*time.Millisecond)
	return s
}

// call starts one more client, which knows a registry.
func (s *service) call(t *testing.T, at registry, as, binary string, every time.Duration) {
	t.Helper()
	as = s.framework + "-" + as
	c := &calls{client: as}
	s.clients = append(s.clients, c)
	c.process = harness.Start(t, harness.Command{
		Name: as, Path: binary, Stdout: c, Args: []string{"-registry", at.url(as), "-every", every.String(), "call", cmp.Or(s.calledAs, s.name())},
	})
}

func (s *service) name() string { return cmp.Or(s.as, "greeter-"+s.framework) }

// serve starts one more server.
func (s *service) serve(t *testing.T) {
	t.Helper()
	s.provide(t, s.binary)
}

// provide starts a server of a program, with further arguments.
func (s *service) provide(t *testing.T, binary string, args ...string) {
	t.Helper()
	s.provideAt(t, harness.FreePort(t), binary, args...)
}

func (s *service) provideAt(t *testing.T, port int, binary string, args ...string) {
	t.Helper()
	as := fmt.Sprintf("%s-%d", s.framework, port)
	p := harness.Start(t, harness.Command{
		Name: as, Path: binary,
		Args: append(append([]string{"-registry", s.at.url(as), "-listen", address(port), "-drain", cmp.Or(s.drain, "15s")}, args...), "serve", s.name()),
	})
	s.servers = append(s.servers, server{port, p})
	harness.Eventually(t, soon, as+" listens", func() error { return harness.Listens(t, address(port)) }) // a mesh shows none before
	s.at.runs(t, s.name(), s.ports())
}

// retire asks a server to end, as Kubernetes does: at the same time it is no
// longer offered, and it has to continue until nobody calls it.
func (s *service) retire(t *testing.T, n int) *harness.Process {
	t.Helper()
	gone := s.withdraw(t, n)
	gone.Signal(t, syscall.SIGTERM)
	return gone
}

// withdraw has a mesh no longer offer a server, as a Pod is not that is to end.
func (s *service) withdraw(t *testing.T, n int) *harness.Process {
	t.Helper()
	gone := s.servers[n]
	s.servers = append(s.servers[:n:n], s.servers[n+1:]...)
	s.at.runs(t, s.name(), s.ports())
	return gone.process
}

// awaitEnd waits until a server that was asked to end has ended.
func (s *service) awaitEnd(t *testing.T, p *harness.Process) {
	t.Helper()
	if code := p.Wait(t, drained); code != 0 {
		t.Errorf("%s: the server ended with %d", s.framework, code)
	}
}

func (s *service) ports() []int {
	var ports []int
	for _, one := range s.servers {
		ports = append(ports, one.port)
	}
	return ports
}

// awaitCalls waits until calls go to all servers and to no others.
func (s *service) awaitCalls(t *testing.T) {
	t.Helper()
	want := make(map[string]bool)
	for _, port := range s.ports() {
		want["hello from "+address(port)] = true
	}
	for _, c := range s.clients {
		harness.Eventually(t, soon, c.client+" calls its servers", func() error { return harness.Same(c.lately(), want) })
	}
}

func (s *service) checkNoneFailed(t *testing.T) {
	t.Helper()
	for _, c := range s.clients {
		c.checkNoneFailed(t)
	}
}

// newcomer returns a client that knows nothing yet.
func (s *service) newcomer(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Open(s.at.url(s.framework+"-newcomer"), client.Options{Formats: formats()[s.framework]}, all.Kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// query asks for the service by its name, and as Kratos names it.
func (s *service) query() client.Query {
	return client.AnyOf(client.Named(s.name()), client.ByInterface(s.name()+".grpc", "", ""))
}

// awaitRegistered waits until a new client finds all servers: one that has not
// connected to the restarted registry yet cannot deregister, and ends with an error.
func (s *service) awaitRegistered(t *testing.T) {
	t.Helper()
	c := s.newcomer(t)
	want := make(map[string]bool)
	for _, port := range s.ports() {
		want[address(port)] = true
	}
	harness.Eventually(t, soon, s.framework+": its servers are registered", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		found, err := c.Resolve(ctx, s.query())
		if err != nil {
			return err
		}
		addresses := make(map[string]bool)
		for _, e := range found.Endpoints {
			addresses[e.Address()] = true
		}
		return harness.Same(addresses, want)
	})
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
