package plugins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// peers returns the frameworks that have a registry of their own there.
func peers(kind string) []string {
	if kind == "ZooKeeper" {
		return []string{"kitex", "kratos", "hertz"}
	}
	return []string{"kitex", "kratos", "hertz", "gozero"}
}

func peerRegistries() map[string]func(*testing.T) registry {
	return map[string]func(*testing.T) registry{
		"ZooKeeper": startZooKeeper,
		"Nacos 2":   func(t *testing.T) registry { t.Helper(); return startNacos(t, 2) },
		"Nacos 3":   func(t *testing.T) registry { t.Helper(); return startNacos(t, 3) },
	}
}

// TestWithTheFrameworksOwnRegistries: of each framework a client and servers with
// our plugin and such with the framework's own registry meet in one service. They
// call each other while the registry is killed and started again, while all are
// replaced one by one, and while they become fewer. No call fails.
func TestWithTheFrameworksOwnRegistries(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plugins := build(t)
	for name, start := range peerRegistries() {
		for _, f := range peers(name) {
			t.Run(name+"/"+f, func(t *testing.T) {
				t.Parallel()
				own := harness.Peer(t, f)
				s := newService(t, f, plugins[f], start(t))
				s.call(t, s.at, "own-client", own, 20*time.Millisecond)
				all := func(what string) {
					t.Helper()
					t.Log(what)
					s.awaitCalls(t)
				}
				s.provide(t, plugins[f])
				all("a server with the plugin")
				s.provide(t, own)
				all("one with the framework's own registry")
				s.at.kill()
				s.at.start(t)
				s.awaitRegistered(t)
				s.provide(t, plugins[f])
				s.provide(t, own)
				all("one more of each, after the restart")
				for _, next := range []string{own, plugins[f], own, plugins[f]} {
					ended := s.retire(t, 0)
					s.awaitEnd(t, ended)
					s.provide(t, next)
					all("one is replaced")
				}
				for range 2 {
					ended := s.retire(t, 0)
					s.awaitEnd(t, ended)
					all("one leaves")
				}
				s.checkNoneFailed(t)
			})
		}
	}
}

// told is what a peer prints of one.
type told struct {
	Address string `json:"address"`
	Weight  int    `json:"weight"`
	Zone    string `json:"zone"`
}

// TestWeightsWithTheFrameworksOwnRegistries: of a server with our plugin and one
// with the framework's own registry, both clients know weight and tags, and calls
// are divided by weight, whichever of the two has the larger one.
func TestWeightsWithTheFrameworksOwnRegistries(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plugins := build(t)
	for name, start := range peerRegistries() {
		for _, f := range peers(name) {
			if f == "gozero" {
				continue // neither its registry nor its plugin tells a weight
			}
			for _, heavy := range []string{"plugin", "own"} {
				t.Run(name+"/"+f+"/"+heavy, func(t *testing.T) {
					t.Parallel()
					binaries := map[string]string{"plugin": plugins[f], "own": harness.Peer(t, f)}
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
					s.awaitTold(t,
						told{Address: address(s.servers[0].port), Weight: 30, Zone: "heavy"},
						told{Address: address(s.servers[1].port), Weight: 10, Zone: "light"})
				})
			}
		}
	}
}

// awaitTold waits until the framework's own registry, and the client that our
// plugins have, tell these weights and tags.
func (s *service) awaitTold(t *testing.T, all ...told) {
	t.Helper()
	keyed := func(all []told) map[string]told {
		byAddress := make(map[string]told)
		for _, one := range all {
			byAddress[one.Address] = one
		}
		return byAddress
	}
	want := keyed(all)
	check := func(got []told) error {
		return harness.Same(keyed(got), want)
	}
	harness.Eventually(t, soon, "the own registry tells weights and tags", func() error {
		var out lockedBuffer
		p := harness.Start(t, harness.Command{Name: "list", Path: harness.Peer(t, s.framework), Args: []string{"-registry", s.at.url(""), "list", s.name()}, Stdout: &out})
		if code := p.Wait(t, soon); code != 0 {
			return fmt.Errorf("it ended with %d", code)
		}
		var got []told
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
			return fmt.Errorf("%s: %w", out.String(), err)
		}
		return check(got)
	})
	c := s.newcomer(t)
	harness.Eventually(t, soon, "the client tells weights and tags", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		found, err := c.Resolve(ctx, s.query())
		if err != nil {
			return err
		}
		var got []told
		most := 0.0
		for _, e := range found.Distinct() {
			most = max(most, float64(e.Share()))
		}
		for _, e := range found.Distinct() { // formats have scales of their own
			got = append(got, told{Address: e.Address(), Weight: int(math.Round(float64(e.Share()) * 30 / most)), Zone: e.Attribute("zone")})
		}
		return check(got)
	})
}
