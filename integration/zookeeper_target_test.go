package integration_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestZooKeeperTarget_ConformanceWithData runs the suite of all targets for a
// format that keeps data in its nodes; the server's tree is emptied for each
// test.
func TestZooKeeperTarget_ConformanceWithData(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	for name, tt := range map[string]struct {
		tune []func(*zookeeper.TargetOptions)
	}{
		"persistent":     {nil},
		"of the session": {[]func(*zookeeper.TargetOptions){zookeeperSession}},
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Target(t, func(t *testing.T) conformance.Fixture {
				t.Helper()
				for _, root := range []string{"/data", "/xds-bridge"} {
					deleteTree(t, znodes, root)
				}
				return dataFixture(t, server.Address, znodes, tt.tune)
			})
		})
	}
}

func deleteTree(t testing.TB, znodes *harness.Znodes, root string) {
	t.Helper()
	var paths []string
	for p := range znodes.Tree(t, root) {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range slices.Backward(paths) {
		znodes.Delete(t, p)
	}
}

func dataFixture(t *testing.T, address string, znodes *harness.Znodes, tune []func(*zookeeper.TargetOptions)) conformance.Fixture {
	t.Helper()
	f := dataFormat()
	fixture := conformance.Fixture{
		Target: zookeeperTarget(t, zookeeperClient(t, zookeeper.Options{Servers: []string{address}}), f, tune...),
		Owner:  metadata.NewMark(zookeeperOwner, "").Owner,
		Group:  f.group, Hostile: f.hostile,
		Entry: func(n, i, v int) registry.Entry { return f.entry(zookeeperOwner, n, i, v) },
	}
	if len(tune) > 0 {
		return fixture // nobody else can write for our session
	}
	fixture.Foreign = func(n, i, v int) registry.Entry { return f.entry("them", n, i, v) }
	fixture.Set = func(t *testing.T, e registry.Entry) {
		t.Helper()
		at, data := f.node(t, e)
		if slices.Contains(znodes.Children(t, path.Dir(at)), path.Base(at)) {
			znodes.Set(t, at, data)
		} else {
			znodes.Create(t, at, data)
		}
	}
	fixture.Drop = func(t *testing.T, e registry.Entry) {
		t.Helper()
		at, _ := f.node(t, e)
		znodes.Delete(t, at)
	}
	return fixture
}

func TestZooKeeperTarget_Connection(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	f := dubboFormat(t)
	proxy := harness.StartProxy(t, server.Address)
	client := zookeeperClient(t, zookeeper.Options{Servers: []string{proxy.Address}, SessionTimeout: 3 * time.Second})
	target := zookeeperTarget(t, client, f, zookeeperSession)
	if err := target.Write(t.Context(), f.creates(0, 0, 3)); err != nil {
		t.Fatal(err)
	}
	parent := "/dubbo/api.Greeter0/providers"

	t.Run("a reset connection keeps session and nodes", func(t *testing.T) {
		before, session := znodes.Tree(t, parent), client.State().Session
		proxy.Reset()
		held := eventuallyReads(t, target, f.group(0))
		if err := harness.Same(znodes.Tree(t, parent), before); err != nil || len(held) != 3 || !held[0].Live || client.State().Session != session {
			t.Errorf("%v, %v, %+v", err, held, client.State())
		}
	})
	t.Run("what changed during a cut is in the first reading after it", func(t *testing.T) {
		proxy.Cut()
		at, _ := f.node(t, f.entry(zookeeperOwner, 0, 0, 0))
		znodes.Delete(t, at)
		proxy.Heal()
		if held := eventuallyReads(t, target, f.group(0)); len(held) != 2 {
			t.Errorf("held: %v", held)
		}
	})
	t.Run("what went with an expired session is written anew", func(t *testing.T) {
		proxy.Cut()
		harness.Eventually(t, 20*time.Second, "the nodes are gone", func() error {
			return harness.Same(len(znodes.Children(t, parent)), 0)
		})
		proxy.Heal()
		timer := time.NewTimer(20 * time.Second)
		defer timer.Stop()
		select {
		case <-target.Capabilities().Lost:
		case <-timer.C:
			t.Fatal("the loss is not reported")
		}
		if err := target.Write(t.Context(), f.creates(0, 0, 3)); err != nil {
			t.Fatal(err)
		}
		if n := len(znodes.Children(t, parent)); n != 3 {
			t.Errorf("%d nodes", n)
		}
	})
	t.Run("what an older session holds is replaced, as it is ours", func(t *testing.T) {
		next := zookeeperTarget(t, zookeeperClient(t, zookeeper.Options{Servers: []string{server.Address}}), f)
		change := registry.Change{Group: f.group(0)}
		for _, h := range eventuallyReads(t, next, f.group(0)) {
			if h.Live {
				t.Errorf("%s is live", h.Key)
			}
			change.Put = append(change.Put, registry.Write{New: h.Entry, Old: &h})
		}
		if err := next.Write(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		client.Close()
		for at, node := range znodes.Tree(t, parent) {
			if node.Ephemeral {
				t.Errorf("%s is ephemeral", at)
			}
		}
		if n := len(znodes.Children(t, parent)); n != 3 {
			t.Errorf("%d nodes", n)
		}
	})
}

func TestZooKeeperTarget_Restart(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	for name, f := range map[string]zookeeperFormat{"Dubbo in names": dubboFormat(t), "data": dataFormat()} {
		t.Run("another process reads what was written and has nothing to write: "+name, func(t *testing.T) {
			first := zookeeperTarget(t, zookeeperClient(t, zookeeper.Options{Servers: []string{server.Address}}), f)
			for n := range 3 {
				if err := first.Write(t.Context(), f.creates(n, 0, 5)); err != nil {
					t.Fatal(err)
				}
			}
			before := znodes.Tree(t, "/dubbo")
			second := zookeeperTarget(t, zookeeperClient(t, zookeeper.Options{Servers: []string{server.Address}}), f)
			groups, err := second.Groups(t.Context())
			if err != nil || len(groups) < 3 {
				t.Fatalf("%v, %v", groups, err)
			}
			for n := range 3 {
				var got []registry.Entry
				for _, h := range eventuallyReads(t, second, f.group(n)) {
					got = append(got, h.Entry)
				}
				if want := registry.Sorted(f.creates(n, 0, 5).Want); !slices.Equal(got, want) {
					t.Errorf("%v, want %v", got, want)
				}
			}
			if err := harness.Same(znodes.Tree(t, "/dubbo"), before); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestZooKeeperTarget_Ensemble(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	nodes := harness.StartEnsemble(t)
	f := dubboFormat(t)
	client := zookeeperClient(t, zookeeper.Options{Servers: harness.Addresses(nodes...), Timeout: 2 * time.Second})
	target := zookeeperTarget(t, client, f)
	if err := target.Write(t.Context(), f.creates(0, 0, 2)); err != nil {
		t.Fatal(err)
	}
	session := client.State().Session

	t.Run("another leader is elected: the session continues", func(t *testing.T) {
		for _, n := range nodes {
			if n.Leads(t) {
				n.Kill()
				defer func() { n.Start(t); n.AwaitServing(t) }()
			}
		}
		harness.Eventually(t, 40*time.Second, "a write", func() error { return target.Write(t.Context(), f.creates(1, 0, 2)) })
		if held := eventuallyReads(t, target, f.group(0)); len(held) != 2 || client.State().Session != session {
			t.Errorf("%v, %+v", held, client.State())
		}
	})
	t.Run("without a quorum a call is an error, never an empty list", func(t *testing.T) {
		nodes[0].Kill()
		nodes[1].Kill()
		harness.Eventually(t, 20*time.Second, "the quorum is lost", func() error {
			held, err := target.Read(t.Context(), f.group(0))
			if err == nil && len(held) != 2 {
				t.Fatalf("held: %v", held)
			}
			if err == nil {
				return errors.New("still read")
			}
			return nil
		})
		if err := target.Write(t.Context(), f.creates(2, 0, 2)); err == nil || errors.Is(err, registry.ErrConflict) {
			t.Errorf("write: %v", err)
		}
		nodes[0].Start(t)
		nodes[1].Start(t)
		if held := eventuallyReads(t, target, f.group(0)); len(held) != 2 {
			t.Errorf("held: %v", held)
		}
	})
}

func TestZooKeeperTarget_Limits(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	f, usage := dubboFormat(t), 0.0
	target := zookeeperTarget(t, zookeeperClient(t, zookeeper.Options{Servers: []string{server.Address}}), f,
		func(o *zookeeper.TargetOptions) { o.Usage = func(share float64) { usage = share } })
	change := registry.Change{Group: f.group(0)}
	for i := range 2500 {
		e := f.entry(zookeeperOwner, 0, i, 0)
		e.Value = strings.Replace(e.Value, "?", "?application="+strings.Repeat("a", 360)+"&", 1)
		change.Put = append(change.Put, registry.Write{New: e})
	}
	err := target.Write(t.Context(), change)
	if !errors.Is(err, registry.ErrRefused) || usage < 0.99 || usage > 1 {
		t.Fatalf("Write = %v, usage %v, want a refusal at a full parent", err, usage)
	}
	// A client as a Java consumer is one: it accepts no more than 1 MiB - 1.
	conn, _, err := zk.Connect([]string{server.Address}, 10*time.Second, zk.WithMaxBufferSize(0xfffff), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	names, _, err := conn.Children("/dubbo/api.Greeter0/providers")
	if err != nil || len(names) < 1000 {
		t.Errorf("%d names, %v", len(names), err)
	}
}

func TestZooKeeperTarget_Access(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	f := dubboFormat(t)
	password := filepath.Join(t.TempDir(), "password")
	secret := func(text string) {
		if err := os.WriteFile(password, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret("first")
	options := zookeeper.Options{Servers: []string{server.Address}, User: "bridge", PasswordFile: password}
	client, stranger := zookeeperClient(t, options), zookeeperClient(t, zookeeper.Options{Servers: []string{server.Address}})
	target := zookeeperTarget(t, client, f, func(o *zookeeper.TargetOptions) { o.Access = zookeeper.ReadOnly })
	if err := target.Write(t.Context(), f.creates(0, 0, 2)); err != nil {
		t.Fatal(err)
	}
	anybody := zookeeperTarget(t, stranger, f)

	t.Run("others read, and are refused when they write", func(t *testing.T) {
		if held := eventuallyReads(t, anybody, f.group(0)); len(held) != 2 {
			t.Errorf("held: %v", held)
		}
		if err := anybody.Write(t.Context(), f.creates(0, 2, 3)); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("write: %v", err)
		}
		if err := anybody.Write(t.Context(), f.creates(1, 0, 1)); err != nil {
			t.Errorf("elsewhere: %v", err)
		}
	})
	t.Run("a password that changes in its file serves without a restart", func(t *testing.T) {
		conn, _, err := zk.Connect([]string{server.Address}, 10*time.Second, zk.WithLogInfo(false))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.AddAuth("digest", []byte("bridge:first")); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/dubbo/api.Greeter0/providers", "/xds-bridge/" + zookeeperOwner} {
			if _, err := conn.SetACL(path, zk.DigestACL(zk.PermAll, "bridge", "second"), -1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := target.Read(t.Context(), f.group(0)); !errors.Is(err, registry.ErrRefused) {
			t.Fatalf("read: %v, want a refusal", err)
		}
		secret("second")
		harness.Eventually(t, 20*time.Second, "the new password serves", func() error {
			held, err := target.Read(t.Context(), f.group(0))
			if err == nil && len(held) != 2 {
				err = fmt.Errorf("held: %v", held)
			}
			return err
		})
	})
	t.Run("a check reports the version, the session, the clock and that we may write", func(t *testing.T) {
		report, err := target.Check(t.Context())
		if err != nil || report.Read != nil || report.Write != nil || !strings.HasPrefix(report.Version, "3.") ||
			report.Granted != report.Asked || report.Skew.Abs() > time.Minute {
			t.Errorf("%+v, %v", report, err)
		}
	})
	t.Run("an id that a private bridge makes is everybody's to read", func(t *testing.T) {
		id, err := client.ID(t.Context(), "made", zookeeper.Private)
		again, err2 := stranger.ID(t.Context(), "another", zookeeper.Open)
		if err != nil || err2 != nil || id != "made" || id != again {
			t.Errorf("%q, %v and %q, %v", id, err, again, err2)
		}
	})
}
