package plugins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// withRegistry returns the frameworks that have a registry of their own there.
func withRegistry(kind string) []string {
	if kind == "ZooKeeper" {
		return []string{"kitex", "kratos", "hertz"}
	}
	return []string{"kitex", "kratos", "hertz", "gozero"}
}

func applicationRegistries() map[string]func(*testing.T) registry {
	return map[string]func(*testing.T) registry{
		"ZooKeeper": startZooKeeper,
		"Nacos 2":   func(t *testing.T) registry { t.Helper(); return startNacos(t, 2) },
		"Nacos 3":   func(t *testing.T) registry { t.Helper(); return startNacos(t, 3) },
	}
}

// outage is longer than a registry keeps a server that it does not hear: 30 s, the
// session in ZooKeeper and the heartbeat in Nacos.
const outage = 35 * time.Second

// TestFrameworkRegistries: servers and clients with the framework's own
// registry are moved to our plugin as the framework's page says, one by one and each
// server where it was, and back. Halfway back, all clients still have the plugin,
// and the registry is away for longer than it keeps servers. No call fails.
func TestFrameworkRegistries(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plugins := build(t)
	for name, start := range applicationRegistries() {
		for _, f := range withRegistry(name) {
			t.Run(name+"/"+f, func(t *testing.T) {
				t.Parallel()
				own := harness.Application(t, f)
				s := &service{framework: f, binary: own, at: start(t)}
				all := func(what string) {
					t.Helper()
					t.Log(what)
					s.awaitCalls(t)
				}
				for _, client := range []string{"one", "two"} {
					s.serve(t)
					s.awaitRegistered(t) // Kratos' own registry loses what comes while the first registers
					s.call(t, s.at, client, own, 20*time.Millisecond)
					all("one more with the framework's own registry")
				}
				for range s.servers {
					s.moveServer(t, plugins[f])
					all("a server is moved to the plugin")
				}
				for range s.clients {
					s.moveClient(t, plugins[f])
					all("a client is moved to the plugin")
				}
				s.moveServer(t, own)
				all("a server is moved back")
				s.at.kill(t)
				harness.Stays(t, outage, "no call fails without the registry", s.failed)
				s.at.start(t)
				s.awaitRegistered(t)
				all("the registry is there again")
				s.moveServer(t, own)
				all("the other server is moved back")
				for range s.clients {
					s.moveClient(t, own)
					all("a client is moved back")
				}
				s.checkNoneFailed(t)
			})
		}
	}
}

// moveServer has another program replace the server that is there for
// the longest time.
func (s *service) moveServer(t *testing.T, binary string) {
	t.Helper()
	port := s.servers[0].port
	s.awaitEnd(t, s.retire(t, 0))
	s.awaitCalls(t)
	s.provideAt(t, port, binary)
}

// moveClient has another program replace the client that is there for
// the longest time, of which no call may have failed.
func (s *service) moveClient(t *testing.T, binary string) {
	t.Helper()
	c := s.clients[0]
	s.clients = s.clients[1:]
	if code := c.process.Stop(t); code != 0 {
		t.Errorf("%s ended with %d", c.client, code)
	}
	c.checkNoneFailed(t)
	s.call(t, s.at, strings.TrimPrefix(c.client, s.framework+"-"), binary, 20*time.Millisecond)
}

// failed returns an error where a call of a client failed.
func (s *service) failed() error {
	for _, c := range s.clients {
		for line := range c.answers() {
			if strings.HasPrefix(line, failure) {
				return fmt.Errorf("%s: %s", c.client, line)
			}
		}
	}
	return nil
}

// notified is what an application prints of one.
type notified struct {
	Address string `json:"address"`
	Weight  int    `json:"weight"`
	Zone    string `json:"zone"`
}

// TestWeights_FrameworkRegistries: of a server with our plugin and one
// with the framework's own registry, both clients know weight and tags, and calls
// are divided by weight, whichever of the two has the larger one.
func TestWeights_FrameworkRegistries(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plugins := build(t)
	for name, start := range applicationRegistries() {
		for _, f := range withRegistry(name) {
			if f == "gozero" {
				continue // neither its registry nor its plugin reports a weight
			}
			for _, heavy := range []string{"plugin", "own"} {
				t.Run(name+"/"+f+"/"+heavy, func(t *testing.T) {
					t.Parallel()
					binaries := map[string]string{"plugin": plugins[f], "own": harness.Application(t, f)}
					s := &service{framework: f, binary: plugins[f], at: start(t)}
					s.call(t, s.at, "client", plugins[f], time.Millisecond)
					s.call(t, s.at, "own-client", binaries["own"], time.Millisecond)
					s.provide(t, binaries[heavy], "-weight", "30", "-tag", "zone=heavy")
					delete(binaries, heavy)
					for _, light := range binaries {
						s.provide(t, light, "-weight", "10", "-tag", "zone=light")
					}
					s.awaitCalls(t)
					for _, c := range s.clients {
						c.divided(t, s.servers[0].port, 75)
					}
					s.awaitNotified(t,
						notified{Address: address(s.servers[0].port), Weight: 30, Zone: "heavy"},
						notified{Address: address(s.servers[1].port), Weight: 10, Zone: "light"})
				})
			}
		}
	}
}

// TestWeights_Mesh: calls are divided by the weights that the mesh gives to
// endpoints.
func TestWeights_Mesh(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plugins, at := build(t), startMesh(t)
	m, ok := at.(mesh)
	if !ok {
		t.Fatal("no mesh")
	}
	for _, f := range withRegistry("ZooKeeper") {
		t.Run(f, func(t *testing.T) {
			t.Parallel()
			s := &service{framework: f, binary: plugins[f], at: at}
			s.call(t, at, "client", plugins[f], time.Millisecond)
			s.serve(t)
			s.serve(t)
			s.awaitCalls(t)
			endpoints := harness.Local(s.ports()...)
			endpoints[0].Weight, endpoints[1].Weight = 3, 1
			m.Apply(t, harness.Service{Host: s.name() + ".shop.svc.cluster.local", Port: 80, Endpoints: endpoints})
			s.clients[0].divided(t, s.servers[0].port, 75)
			s.checkNoneFailed(t)
		})
	}
}

// awaitNotified waits until the framework's own registry, and the client that our
// plugins have, report these weights and tags.
func (s *service) awaitNotified(t *testing.T, all ...notified) {
	t.Helper()
	keyed := func(all []notified) map[string]notified {
		byAddress := make(map[string]notified)
		for _, one := range all {
			byAddress[one.Address] = one
		}
		return byAddress
	}
	want := keyed(all)
	check := func(got []notified) error {
		return harness.Same(keyed(got), want)
	}
	harness.Eventually(t, soon, "the own registry reports weights and tags", func() error {
		var out lockedBuffer
		p := harness.Start(t, harness.Command{Name: "list", Path: harness.Application(t, s.framework), Args: []string{"-registry", s.at.url(""), "list", s.name()}, Stdout: &out})
		if code := p.Wait(t, soon); code != 0 {
			return fmt.Errorf("it ended with %d", code)
		}
		var got []notified
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
			return fmt.Errorf("%s: %w", out.String(), err)
		}
		return check(got)
	})
	c := s.newcomer(t)
	harness.Eventually(t, soon, "the client reports weights and tags", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		found, err := c.Resolve(ctx, s.query())
		if err != nil {
			return err
		}
		var got []notified
		most := 0.0
		for _, e := range found.Endpoints {
			most = max(most, e.Weight.Part())
		}
		for _, e := range found.Endpoints { // formats have scales of their own
			got = append(got, notified{Address: e.Address(), Weight: int(math.Round(e.Weight.Part() * 30 / most)), Zone: e.Attribute("zone")})
		}
		return check(got)
	})
}
