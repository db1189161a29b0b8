package integration_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

const (
	otherKey = "providers:org.bridge.demo.Other::"
	blueHost = "blue.shop.svc.cluster.local"

	// pushDelay is how long a server waits before it notifies its subscribers.
	pushDelay = 100 * time.Millisecond
)

// nacosMesh is a mesh, the istiods that serve it, and a Nacos with a
// subscriber of the SDK.
type nacosMesh struct {
	mesh   *harness.Mesh
	istiod *harness.Istiod
	second *harness.Istiod // of the same mesh
	server *harness.Nacos
	sdk    *nacossdk.Client
	greets *nacossdk.Watch
	others *nacossdk.Watch
	target *nacos.Target // a reader of our own
	whole  *testing.T    // how long whoever looks at the server stays connected
}

func (w *nacosMesh) config() harness.BridgeConfig {
	return harness.BridgeConfig{
		Istiod:  w.istiod.GRPC,
		Mapping: fmt.Sprintf("from: debug-http, addresses: [%q, %q], interval: 200ms, grace: 1s, connectionGrace: 1s", w.istiod.HTTP, w.second.HTTP),
		Nacos:   w.server.Settings(),
		Guard:   harness.Swift,
	}
}

func (w *nacosMesh) greet(t *testing.T, ports ...int) {
	t.Helper()
	w.mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(ports...)})
}

func (w *nacosMesh) await(t *testing.T, ports ...int) {
	t.Helper()
	w.greets.Await(t, soon, addresses(ports)...)
}

// watch connects everybody who looks at the server.
func (w *nacosMesh) watch() {
	w.whole.Helper()
	w.sdk = nacossdk.ConnectTo(w.whole, w.server)
	w.greets, w.others = w.sdk.Subscribe(w.whole, greetKey), w.sdk.Subscribe(w.whole, otherKey)
	w.target, _ = nacosTarget(w.whole, at(w.server))
}

// unseen does something that no subscriber may notice for some seconds.
func (w *nacosMesh) unseen(t *testing.T, do func()) {
	t.Helper()
	at := time.Now()
	do()
	harness.Stays(t, 3*time.Second, "no list changes", func() error {
		if seen := append(w.greets.Since(at), w.others.Since(at)...); len(seen) > 0 {
			return fmt.Errorf("the SDK was notified of %v", seen)
		}
		return nil
	})
}

// isInSync waits until a bridge has published everything.
func isInSync(t *testing.T, b *harness.Bridge) {
	t.Helper()
	harness.Eventually(t, soon, "the bridge is in sync", func() error {
		code, out, errOut := b.Do(t, "status")
		if code != 0 || !strings.Contains(out, "in sync") {
			return fmt.Errorf("status %d: %s%s", code, out, errOut)
		}
		return nil
	})
}

// TestNacosMesh is the main job with Nacos, once for each version.
func TestNacosMesh(t *testing.T) {
	t.Parallel()
	eachNacos(t, func(t *testing.T, version int) {
		w := &nacosMesh{mesh: harness.NewMesh(t), whole: t}
		w.istiod, w.second = harness.StartIstiod(t, w.mesh), harness.StartIstiod(t, w.mesh)
		dubbo := harness.StartDubbo(t)
		first, second := dubbo.Provide(t, "tri"), dubbo.Provide(t, "tri")
		w.server = harness.StartNacos(t, harness.NacosOptions{Version: version, PushDelay: pushDelay})
		w.watch()
		consumer := dubbo.ReferAt(t, fmt.Sprintf("nacos%d", version), w.server.Java())
		w.greet(t, first, second)
		bridge := harness.StartBridge(t, w.config())
		provider := harness.Publish(t, w.istiod.GRPC, "greet-1", map[string]string{greetKey: greetAddress})

		step := func(name string, do func(t *testing.T)) {
			t.Helper()
			if !t.Run(name, do) {
				t.FailNow() // what follows would only wait in vain
			}
		}
		step("two endpoints are two instances once their key is published", func(t *testing.T) {
			w.await(t, first, second)
			for _, in := range w.greets.Instances() {
				if !in.Ephemeral || !in.Healthy || !in.Enable || in.Weight != 1 || in.Metadata["protocol"] != "tri" || in.Metadata["path"] != harness.DubboInterface {
					t.Errorf("%+v", in)
				}
			}
		})
		step("what we write the SDK reads, field by field", func(t *testing.T) { w.sameToBoth(t) })
		step("a Java Dubbo consumer that knows only Nacos calls both", func(t *testing.T) {
			consumer.AwaitOnly(t, soon, first, second)
		})
		step("an endpoint that goes is gone, alone, within a second", func(t *testing.T) { w.leaves(t, bridge, first, second) })
		step("the consumer follows", func(t *testing.T) {
			w.greet(t, second)
			consumer.AwaitOnly(t, soon, second)
			w.greet(t, first, second)
			consumer.AwaitOnly(t, soon, first, second)
		})
		step("with two publishers", func(t *testing.T) { w.twoPublishers(t, bridge, consumer, first, second) })
		step("keys", func(t *testing.T) { w.keys(t, provider, first, second) })
		step("a foreign instance in a service of ours", func(t *testing.T) { w.foreign(t, first, second) })
		consumer.Stop(t) // the server is about to end
		step("the server is away", func(t *testing.T) { w.serverAway(t, bridge, first, second) })
		step("the keys of an istiod that is away stay", func(t *testing.T) { w.replicas(t, first, second) })
		step("a service that leaves the mesh leaves Nacos, and others stay", func(t *testing.T) { w.withdrawn(t, provider) })
		provider.Leave()
	})
}

// sameToBoth compares what the SDK sees with what our target reads.
func (w *nacosMesh) sameToBoth(t *testing.T) {
	t.Helper()
	held, err := w.target.Read(t.Context(), registry.Group{Kind: "providers", Group: "DEFAULT_GROUP", Name: greetKey})
	if err != nil {
		t.Fatal(err)
	}
	theirs := make(map[string]model.Instance)
	for _, in := range w.greets.Instances() {
		theirs[fmt.Sprintf("%s:%d", in.Ip, in.Port)] = in
	}
	if len(held) != len(theirs) {
		t.Fatalf("we read %d instances, the SDK %d", len(held), len(theirs))
	}
	for _, h := range held {
		ours, err := metadata.ParseNacosInstance(h.Value)
		if err != nil {
			t.Fatal(err)
		}
		in := theirs[h.Key]
		if ours.IP != in.Ip || uint64(ours.Port) != in.Port || ours.Weight != in.Weight || ours.Enabled != in.Enable || ours.Healthy != in.Healthy ||
			ours.Ephemeral != in.Ephemeral || ours.Cluster != in.ClusterName || !maps.Equal(ours.Metadata, in.Metadata) {
			t.Errorf("we read\n%+v\nthe SDK\n%+v", ours, in)
		}
	}
}

// leaves has an endpoint go a few times: alone, with one deletion, and by what
// istiod pushed, not by a later reading.
func (w *nacosMesh) leaves(t *testing.T, bridge *harness.Bridge, first, second int) {
	t.Helper()
	pushes := harness.WatchEndpoints(t, w.istiod.GRPC, greetCluster)
	for range 3 {
		isInSync(t, bridge)
		at, stopwatch := time.Now(), harness.StartStopwatch()
		deleted, written := applied(t, bridge, "delete"), applied(t, bridge, "create", "update")
		w.greet(t, second)
		pushed := pushes.AwaitPush(t, soon, addresses([]int{second})...)
		w.await(t, second)
		for _, s := range w.greets.Since(at) {
			if !slices.Equal(s.Addresses, addresses([]int{second})) {
				t.Errorf("in between the SDK saw %v", s.Addresses)
			}
			harness.AtMost(t, "from istiod's push until it is gone", stopwatch.Between(pushed, s.At), time.Second+pushDelay)
		}
		isInSync(t, bridge)
		if d, n := applied(t, bridge, "delete")-deleted, applied(t, bridge, "create", "update")-written; d != 1 || n != 0 {
			t.Errorf("%v instances were deleted and %v written, want the one that went", d, n)
		}
		w.greet(t, first, second)
		w.await(t, first, second)
	}
}

// twoPublishers runs a second bridge next to the first and ends each of them.
func (w *nacosMesh) twoPublishers(t *testing.T, bridge *harness.Bridge, consumer harness.Consumer, first, second int) {
	t.Helper()
	isInSync(t, bridge)
	replica := harness.NewBridge(t, w.config())
	t.Run("a second publisher of the same records is not seen", func(t *testing.T) {
		w.unseen(t, func() {
			replica.Start(t)
			replica.AwaitReady(t)
			isInSync(t, replica)
		})
	})
	t.Run("a kill -9 of the first is not seen by any subscriber", func(t *testing.T) {
		w.unseen(t, bridge.Kill)
		consumer.CallEach(t, first, second)
	})
	t.Run("the one that is left follows alone", func(t *testing.T) {
		w.greet(t, first)
		w.await(t, first)
	})
	t.Run("the first comes back, publishes each service once, and is not seen", func(t *testing.T) {
		w.unseen(t, func() {
			bridge.Start(t)
			bridge.AwaitReady(t)
			isInSync(t, bridge)
		})
		if n := metric(t, bridge, `xdsbridge_rpc_duration_seconds_count{listen="",method="write",registry="nacos"}`); n != 1 {
			t.Errorf("%v batches for one service", n)
		}
	})
	t.Run("a change reaches everybody while both run", func(t *testing.T) {
		w.greet(t, first, second)
		w.await(t, first, second)
		time.Sleep(2 * pushDelay) // until the slower one has followed
	})
	t.Run("a kill -9 of the second is not seen by any subscriber", func(t *testing.T) {
		isInSync(t, bridge)
		w.unseen(t, replica.Kill)
		consumer.CallEach(t, first, second)
	})
	t.Run("without a second one a kill -9 is seen, and everything is back after the restart", func(t *testing.T) {
		bridge.Kill()
		w.await(t)
		bridge.Start(t)
		w.await(t, first, second)
		consumer.AwaitOnly(t, soon, first, second)
	})
}

// applied returns how many entries a bridge wrote.
func applied(t *testing.T, b *harness.Bridge, ops ...string) (n float64) {
	t.Helper()
	for _, op := range ops {
		n += metric(t, b, fmt.Sprintf(`xdsbridge_changes_applied_total{bridge="mesh-to-nacos",listen="",op=%q,registry="nacos"}`, op))
	}
	return n
}

// metric returns the value of one line of a bridge's metrics; 0 where there is
// none yet.
func metric(t *testing.T, b *harness.Bridge, line string) (value float64) {
	t.Helper()
	for text := range strings.Lines(b.Metrics(t)) {
		if rest, ok := strings.CutPrefix(text, line+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return value
}

// keys changes what is published, and the mesh behind it.
func (w *nacosMesh) keys(t *testing.T, provider *harness.Provider, first, second int) {
	t.Helper()
	t.Run("two interfaces on one host both follow", func(t *testing.T) {
		provider.Republish(t, map[string]string{greetKey: greetAddress, otherKey: greetAddress})
		w.others.Await(t, soon, addresses([]int{first, second})...)
		w.greet(t, first)
		w.await(t, first)
		w.others.Await(t, soon, addresses([]int{first})...)
		w.greet(t, first, second)
		w.others.Await(t, soon, addresses([]int{first, second})...)
		w.await(t, first, second)
	})
	t.Run("subsets and pushes in which nothing changed are not seen", func(t *testing.T) {
		w.unseen(t, func() {
			w.mesh.Apply(t, harness.Service{
				Host: greetHost, Port: 20000, Endpoints: harness.Local(first, second),
				Subsets: map[string]map[string]string{"all": {}, "none": {"version": "v9"}},
			})
			harness.WatchEndpoints(t, w.istiod.GRPC, "outbound|20000|all|"+greetHost).AwaitPush(t, soon, addresses([]int{first, second})...)
		})
		w.greet(t, first, second)
	})
	t.Run("a key that moves to another host is followed, and the other key stays", func(t *testing.T) {
		w.mesh.Apply(t, harness.Service{Host: blueHost, Port: 20000, Endpoints: harness.Local(18201)})
		provider.Republish(t, map[string]string{greetKey: greetAddress, otherKey: blueHost + ":20000"})
		w.others.Await(t, soon, addresses([]int{18201})...)
	})
	t.Run("one key of two applications is the union of their hosts", func(t *testing.T) {
		more := harness.Publish(t, w.istiod.GRPC, "greet-2", map[string]string{otherKey: greetAddress})
		w.others.Await(t, soon, addresses([]int{first, second, 18201})...)
		more.Leave()
		w.others.Await(t, soon, addresses([]int{18201})...)
	})
	t.Run("endpoints that all go leave a service without instances, and others untouched", func(t *testing.T) {
		at := time.Now()
		w.mesh.Apply(t, harness.Service{Host: blueHost, Port: 20000})
		w.others.Await(t, soon)
		if seen := w.greets.Since(at); len(seen) > 0 {
			t.Errorf("the other service was seen as %v", seen)
		}
		w.mesh.Apply(t, harness.Service{Host: blueHost, Port: 20000, Endpoints: harness.Local(18201)})
		w.others.Await(t, soon, addresses([]int{18201})...)
	})
	t.Run("a key that is withdrawn is withdrawn after its grace", func(t *testing.T) {
		provider.Republish(t, map[string]string{greetKey: greetAddress})
		w.others.Await(t, soon)
		w.await(t, first, second)
	})
}

// foreign has an application of the SDK register in our service.
func (w *nacosMesh) foreign(t *testing.T, first, second int) {
	t.Helper()
	app := nacossdk.Connect(t, w.server.URL)
	want := model.Instance{
		Ip: "10.9.9.9", Port: 20000, Weight: 2.5, Enable: true, Healthy: true, Ephemeral: true, ClusterName: "east",
		Metadata: map[string]string{"protocol": "dubbo", "empty": "", "text": `a"b\c <&> é`},
	}
	app.Register(t, greetKey, want)
	w.greets.Await(t, soon, append(addresses([]int{first, second}), "10.9.9.9:20000")...)
	w.sameToBothExcept(t, want)
	t.Run("it stays while ours change around it", func(t *testing.T) {
		w.greet(t, second)
		w.greets.Await(t, soon, append(addresses([]int{second}), "10.9.9.9:20000")...)
		w.greet(t)
		w.greets.Await(t, soon, "10.9.9.9:20000")
		w.greet(t, first, second)
		w.greets.Await(t, soon, append(addresses([]int{first, second}), "10.9.9.9:20000")...)
	})
}

// sameToBothExcept checks that our target reads what the SDK registered, field
// by field, and treats it as nobody's.
func (w *nacosMesh) sameToBothExcept(t *testing.T, want model.Instance) {
	t.Helper()
	harness.Eventually(t, soon, "what the SDK registered is read", func() error {
		held, err := w.target.Read(t.Context(), registry.Group{Kind: "providers", Group: "DEFAULT_GROUP", Name: greetKey})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(held, func(h registry.Stored) bool { return h.Key == "10.9.9.9:20000#east" })
		if i < 0 {
			return fmt.Errorf("read %v", held)
		}
		in, err := metadata.ParseNacosInstance(held[i].Value)
		if err != nil {
			return err
		}
		if held[i].Owner != "" || held[i].Live || in.Weight != want.Weight || !in.Ephemeral || !in.Enabled || !in.Healthy || !maps.Equal(in.Metadata, want.Metadata) {
			return fmt.Errorf("read %+v", held[i])
		}
		return nil
	})
}

// serverAway ends the server, with its data, and starts it once more.
func (w *nacosMesh) serverAway(t *testing.T, bridge *harness.Bridge, first, second int) {
	t.Helper()
	isInSync(t, bridge)
	written, deleted := applied(t, bridge, "create", "update"), applied(t, bridge, "delete")
	lines := strings.Count(bridge.Log(), "\n")
	w.server.Kill()
	w.server.Wipe(t)
	t.Run("a server that is away is one line in the log, and nothing is given up", func(t *testing.T) {
		harness.Stays(t, 3*time.Second, "the bridge runs", func() error {
			if !bridge.Running() {
				return fmt.Errorf("ended: %s", bridge.Log())
			}
			return nil
		})
		if code, out, _ := bridge.Do(t, "status"); code == 0 {
			t.Errorf("status reports nothing:\n%s", out)
		}
		if n := strings.Count(bridge.Log(), "\n") - lines; n > 20 {
			t.Errorf("%d lines in the log", n)
		}
	})
	w.server.Start(t)
	stopwatch := harness.StartStopwatch()
	w.watch()
	t.Run("everything is back within ten seconds of its start, with its data wiped", func(t *testing.T) {
		w.await(t, first, second)
		harness.AtMost(t, "from the start of Nacos", stopwatch.Took(), 10*time.Second)
		isInSync(t, bridge)
		if n := applied(t, bridge, "create", "update") - written; n < 2 || n > 4 { // twice where the server forgot what it had confirmed
			t.Errorf("%v instances were published, want each of two once", n)
		}
		if n := applied(t, bridge, "delete") - deleted; n != 0 {
			t.Errorf("%v deletions", n)
		}
	})
}

// replicas has a key that only the second istiod knows.
func (w *nacosMesh) replicas(t *testing.T, first, second int) {
	t.Helper()
	harness.Publish(t, w.second.GRPC, "other-1", map[string]string{otherKey: greetAddress})
	w.others.Await(t, soon, addresses([]int{first, second})...)
	t.Cleanup(func() { w.second.Start(w.whole) }) // t is over by that time
	w.unseen(t, w.second.Kill)
}

// withdrawn removes one of two services from the mesh.
func (w *nacosMesh) withdrawn(t *testing.T, provider *harness.Provider) {
	t.Helper()
	provider.Republish(t, map[string]string{greetKey: greetAddress, otherKey: blueHost + ":20000"})
	w.others.Await(t, soon, addresses([]int{18201})...) // once the key of the other istiod's client has left
	at := time.Now()
	w.mesh.Remove(t, greetHost)
	w.await(t)
	if seen := w.others.Since(at); len(seen) > 0 {
		t.Errorf("the other service was seen as %v", seen)
	}
}
