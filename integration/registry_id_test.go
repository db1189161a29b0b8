package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// race has many ask for an id at the same time, each with an offer of its own,
// and returns the one that they got.
func race(t *testing.T, askers int, ask func(n int, offer string) (string, error)) string {
	t.Helper()
	got, errs := make([]string, askers), make([]error, askers)
	var running sync.WaitGroup
	for i := range got {
		running.Go(func() { got[i], errs[i] = ask(i, fmt.Sprintf("offer-%d", i)) })
	}
	running.Wait()
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) || len(slices.Compact(slices.Clone(got))) != 1 || got[0] == "" {
		t.Fatalf("got %q, %v, want one id for all", got, errs)
	}
	return got[0]
}

// ringOf is a configuration of one bridge after another.
func ringOf(owner, registries string, bridges ...[2]string) string {
	text := []string{"owner: " + owner + "\nregistries:\n" + registries + "bridges:\n"}
	for _, w := range bridges {
		text = append(text, fmt.Sprintf("  - { name: %s-to-%s, from: %[1]s, to: %[2]s, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %[3]s } }\n",
			w[0], w[1], harness.Swift))
	}
	return strings.Join(text, "")
}

// TestRegistryID_Ring has two deployments lead round a ring of
// three ensembles, each under names of its own and without any id in its
// configuration: what they recognise each other's entries by is what the
// registries keep.
func TestRegistryID_Ring(t *testing.T) {
	t.Parallel()
	var servers []*harness.ZooKeeper
	var znodes []*harness.Znodes
	for range 3 {
		s := harness.StartZooKeeper(t)
		servers, znodes = append(servers, s), append(znodes, harness.Connect(t, s.Address))
	}
	znodes[0].Create(t, registered("api.Ring", 20001), "")
	line := func(name string, n int) string {
		return fmt.Sprintf("  %s: { zookeeper: { servers: [%q] } }\n", name, servers[n].Address)
	}
	one := harness.ConfiguredBridge(t, ringOf("one", line("first", 0)+line("second", 1)+line("third", 2), [2]string{"first", "second"}, [2]string{"second", "third"}))
	two := harness.ConfiguredBridge(t, ringOf("two", line("near", 2)+line("far", 0), [2]string{"near", "far"}))
	t.Run("plan makes no id", func(t *testing.T) {
		if code, out, errOut := one.Do(t, "plan"); code != 1 || !strings.Contains(out, "api.Ring") {
			t.Errorf("%d\n%s%s", code, out, errOut)
		}
		if tree := znodes[0].Tree(t, "/xds-bridge"); len(tree) != 0 {
			t.Errorf("plan wrote %v", tree)
		}
	})
	one.Start(t)
	two.Start(t)
	counts := func() string {
		var out []int
		for _, z := range znodes {
			out = append(out, len(z.Children(t, "/dubbo/api.Ring/providers")))
		}
		return fmt.Sprint(out)
	}
	harness.Eventually(t, soon, "the provider is in all three", func() error { return harness.Same(counts(), "[1 1 1]") })
	harness.Unchanged(t, "the ring", counts)
	ids := make(map[string]bool)
	for _, z := range znodes {
		ids[z.Tree(t, zookeeper.IDNode)[zookeeper.IDNode].Data] = true
	}
	if len(ids) != 3 || ids[""] {
		t.Errorf("the registries keep %v, want an id each", ids)
	}
	if _, why, _ := two.Do(t, "why", "api.Ring"); !strings.Contains(why, "loop") {
		t.Errorf("why does not say that the loop was ended:\n%s", why)
	}
	t.Run("a restart finds the ids as they were", func(t *testing.T) {
		before := znodes[0].Tree(t, zookeeper.IDNode)
		two.Stop(t)
		two.Start(t)
		two.AwaitReady(t)
		harness.Unchanged(t, "the ring", counts)
		if err := harness.Same(znodes[0].Tree(t, zookeeper.IDNode), before); err != nil {
			t.Error(err)
		}
	})
	znodes[0].Delete(t, registered("api.Ring", 20001))
	harness.Eventually(t, soon, "it is gone from all three", func() error { return harness.Same(counts(), "[0 0 0]") })
}

func TestRegistryID_ZooKeeper(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server, other := harness.StartZooKeeper(t), harness.StartZooKeeper(t)
	znodes, there := harness.Connect(t, server.Address), harness.Connect(t, other.Address)
	t.Run("of many that come first at the same time one wins", func(t *testing.T) {
		id := race(t, 8, func(_ int, offer string) (string, error) {
			client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{server.Address}})
			if err != nil {
				return "", err
			}
			defer client.Close()
			return client.ID(t.Context(), offer, zookeeper.Open)
		})
		if kept := znodes.Tree(t, zookeeper.IDNode)[zookeeper.IDNode].Data; kept != id {
			t.Errorf("%q is kept, and %q was reported", kept, id)
		}
	})
	onward := func(t *testing.T, from, settings string) *harness.Bridge {
		t.Helper()
		b := harness.ConfiguredBridge(t, ringOf("onward", fmt.Sprintf("  near: { zookeeper: { servers: [%q] %s } }\n  far: { zookeeper: { servers: [%q] } }\n",
			from, settings, other.Address), [2]string{"near", "far"}))
		b.Start(t)
		return b
	}
	arrives := func(t *testing.T, iface, hop string) {
		t.Helper()
		harness.Eventually(t, soon, iface+" in the other registry, with its path", func() error {
			names := there.Children(t, "/dubbo/"+iface+"/providers")
			if len(names) != 1 || !strings.Contains(names[0], hop) {
				return fmt.Errorf("%v, want one with %s", names, hop)
			}
			return nil
		})
	}
	t.Run("a configured one that does not agree is said in one line, and counts", func(t *testing.T) {
		znodes.Create(t, registered("api.Configured", 20001), "")
		b := onward(t, server.Address, ", id: mine")
		arrives(t, "api.Configured", metadata.Hop("mine"))
		harness.Eventually(t, soon, "the warning", func() error { return harness.Same(strings.Count(b.Log(), "configured=mine"), 1) })
		if _, out, _ := b.Do(t, "preflight"); !strings.Contains(out, "‼ id: mine is configured") {
			t.Errorf("preflight:\n%s", out)
		}
		b.Stop(t)
	})
	t.Run("who may only read goes by its name, after one line that says what to do", func(t *testing.T) {
		closed := harness.StartZooKeeper(t)
		z := harness.Connect(t, closed.Address)
		z.Create(t, registered("api.Closed", 20001), "")
		z.Deny(t, "/", zk.PermCreate|zk.PermWrite|zk.PermDelete)
		b := onward(t, closed.Address, "")
		arrives(t, "api.Closed", metadata.Hop("near"))
		if n := strings.Count(b.Log(), "let our user make it"); n != 1 {
			t.Errorf("%d lines say what to do", n)
		}
		b.Stop(t)
	})
	t.Run("a registry that is down at the start stops its own bridges alone", func(t *testing.T) {
		away := harness.StartZooKeeper(t)
		away.Kill()
		znodes.Create(t, registered("api.Present", 20001), "")
		b := harness.ConfiguredBridge(t, ringOf("partial", fmt.Sprintf("  here: { zookeeper: { servers: [%q] } }\n  there: { zookeeper: { servers: [%q] } }\n  away: { zookeeper: { servers: [%q], timeout: 2s } }\n",
			server.Address, other.Address, away.Address), [2]string{"here", "there"}, [2]string{"away", "there"}))
		b.Start(t)
		arrives(t, "api.Present", "xdsb")
		away.Start(t)
		away.AwaitServing(t)
		harness.Connect(t, away.Address).Create(t, registered("api.Later", 20001), "")
		arrives(t, "api.Later", "xdsb")
	})
}

// nacosKeepsAnID shows what TestRegistryID_ZooKeeper shows, and a ring of which
// the server is one registry.
func nacosKeepsAnID(t *testing.T, server *harness.Nacos) {
	t.Helper()
	t.Run("of many that come first at the same time one wins", func(t *testing.T) {
		var clients []*nacos.Client
		for range 8 {
			clients = append(clients, nacosClient(t, nacos.Options{Servers: []string{server.URL}, Namespace: "race"}))
		}
		ask := func(n int, offer string) (string, error) { return clients[n].ID(t.Context(), offer) }
		id := race(t, len(clients), ask)
		if again := race(t, 2, ask); again != id {
			t.Errorf("%q, and then %q", id, again)
		}
		if other, err := nacosClient(t, nacos.Options{Servers: []string{server.URL}, Namespace: "other"}).ID(t.Context(), ""); other != "" || err != nil {
			t.Errorf("another namespace has %q, %v", other, err)
		}
	})
	t.Run("a ring of two ensembles and this server ends", func(t *testing.T) {
		servers := []*harness.ZooKeeper{harness.StartZooKeeper(t), harness.StartZooKeeper(t)}
		start, end := harness.Connect(t, servers[0].Address), harness.Connect(t, servers[1].Address)
		start.Create(t, registered("api.Ring", 20001), "")
		in := fmt.Sprintf("{ nacos: { servers: [%q], namespace: ring, listInterval: 500ms } }\n", server.URL)
		harness.ConfiguredBridge(t, ringOf("one", fmt.Sprintf("  a: { zookeeper: { servers: [%q] } }\n  b: %s", servers[0].Address, in), [2]string{"a", "b"})).Start(t)
		harness.ConfiguredBridge(t, ringOf("two", fmt.Sprintf("  x: %s  y: { zookeeper: { servers: [%q] } }\n  z: { zookeeper: { servers: [%q] } }\n",
			in, servers[1].Address, servers[0].Address), [2]string{"x", "y"}, [2]string{"y", "z"})).Start(t)
		reader, _ := nacosTarget(t, nacos.Options{Servers: []string{server.URL}})
		g := nacosGroup("api.Ring")
		g.Namespace = "ring"
		counts := func() string {
			return fmt.Sprint(len(start.Children(t, "/dubbo/api.Ring/providers")), len(nacosKeys(t, reader, g)), len(end.Children(t, "/dubbo/api.Ring/providers")))
		}
		harness.Eventually(t, soon, "the provider is in all three", func() error { return harness.Same(counts(), "1 1 1") })
		harness.Unchanged(t, "the ring", counts)
	})
}
