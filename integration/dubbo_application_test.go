package integration_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// greetApp is the application that the mesh's service is: the name of its
// Kubernetes service.
const (
	greetApp      = "greet"
	applications  = "/services/"
	greetMapping  = "/dubbo/mapping/" + harness.DubboInterface
	byApplication = "migration=FORCE_APPLICATION"
)

// formatted is a bridge from the mesh into ZooKeeper that writes formats.
func (w *world) formatted(t *testing.T, formats, settings string) *harness.Bridge {
	t.Helper()
	b := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: %q, mapping: { %s } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - name: mesh-to-zk
    from: mesh
    to: zk
    formats: [%s]
    select: { allow: [127.0.0.0/8] }
    guard: { %s }
    %s
`, w.toIstiod.Address, w.overHTTP("connectionGrace: 1s"), w.writes.Address, formats, harness.Swift, settings))
	b.Start(t)
	b.AwaitReady(t)
	return b
}

// awaitInstances waits until greetApp has exactly the instances at ports of
// 127.0.0.1.
func (w *world) awaitInstances(t *testing.T, ports ...int) {
	t.Helper()
	harness.Eventually(t, soon, "instances of "+greetApp, func() error {
		return harness.Same(w.znodes.Children(t, applications+greetApp), addresses(ports))
	})
}

// protocolOf is what a version's providers speak here: consumers of 3.2 see
// streams of their own providers cancelled in calls of tri now and then,
// whatever the registry.
func protocolOf(version string) string {
	if version == harness.Dubbo32 {
		return "dubbo"
	}
	return "tri"
}

// versions runs a test with each version of Java Dubbo, at the same time.
func versions(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	for _, v := range []string{harness.Dubbo33, harness.Dubbo32} {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

func TestApplication_ZooKeeper(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	versions(t, func(t *testing.T, version string) {
		w := newWorld(t)
		java, protocol := harness.StartDubboOf(t, version), protocolOf(version)
		a, b := java.Provide(t, protocol), java.Provide(t, protocol)
		w.znodes.Create(t, greetMapping, "another-app")
		w.greet(t, a, b)
		w.publish(t)
		bridge := w.formatted(t, "{ format: dubbo-application, protocol: "+protocol+" }", "")
		w.awaitInstances(t, a, b)
		consumer := java.Refer(t, "c1", w.zookeeper.Address, byApplication)

		t.Run("a consumer that knows applications alone calls the mesh's providers", func(t *testing.T) {
			consumer.AwaitOnly(t, soon, a, b)
		})
		t.Run("words of others stay in the mapping", func(t *testing.T) {
			if got := w.znodes.Data(t, greetMapping); got != "another-app,"+greetApp {
				t.Errorf("mapping %q", got)
			}
		})
		t.Run("the document lies where Java looks and where dubbo-go looks", func(t *testing.T) {
			javas, gos := w.znodes.Children(t, "/dubbo/metadata/"+greetApp), w.znodes.Children(t, "/dubbo/"+greetApp)
			if len(javas) != 1 || !slices.Equal(javas, gos) {
				t.Errorf("%v and %v", javas, gos)
			}
		})
		t.Run("a change of weight arrives, without a failed call", func(t *testing.T) {
			before := w.znodes.Children(t, "/dubbo/metadata/"+greetApp)
			weighted := harness.Local(a, b)
			weighted[0].Weight, weighted[1].Weight = 100, 1
			w.mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: weighted})
			harness.Eventually(t, soon, "nearly all calls go to one", func() error {
				n := 0
				for range 50 {
					port, err := consumer.Call(t)
					if err != nil {
						t.Fatalf("a call failed: %v", err)
					}
					if port == a {
						n++
					}
				}
				if n < 45 {
					return fmt.Errorf("%d of 50, with %v", n, w.znodes.Tree(t, applications+greetApp))
				}
				return nil
			})
			harness.Eventually(t, soon, "the old document goes", func() error {
				if names := w.znodes.Children(t, "/dubbo/metadata/"+greetApp); len(names) != 2 && slices.Contains(names, before[0]) {
					return fmt.Errorf("%v", names)
				}
				return nil
			})
		})
		t.Run("an endpoint that goes is called no more", func(t *testing.T) {
			w.greet(t, b)
			w.awaitInstances(t, b)
			consumer.AwaitOnly(t, soon, b)
		})
		t.Run("a restart in which nothing changed writes nothing", func(t *testing.T) {
			before := w.znodes.Tree(t, "/services")
			w.untouched(t, func() {
				bridge.Stop(t)
				bridge.Start(t)
				bridge.AwaitReady(t)
			})
			if err := harness.Same(w.znodes.Tree(t, "/services"), before); err != nil {
				t.Error(err)
			}
		})
		t.Run("a service that goes leaves nothing but its documents", func(t *testing.T) {
			w.mesh.Remove(t, greetHost)
			w.awaitInstances(t)
			harness.Eventually(t, soon, "the documents go", func() error {
				left := append(w.znodes.Children(t, "/dubbo/metadata/"+greetApp), w.znodes.Children(t, "/dubbo/"+greetApp)...)
				return harness.Same(len(left), 0)
			})
			if got := w.znodes.Data(t, greetMapping); !strings.HasPrefix(got, "another-app") {
				t.Errorf("mapping %q", got)
			}
		})
	})
}

func TestApplication_BothLevels(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	versions(t, func(t *testing.T, version string) {
		w := newWorld(t)
		java, protocol := harness.StartDubboOf(t, version), protocolOf(version)
		a, b := java.Provide(t, protocol), java.Provide(t, protocol)
		w.greet(t, a, b)
		w.publish(t)
		w.formatted(t, fmt.Sprintf("{ format: dubbo-interface, protocol: %[1]s }, { format: dubbo-application, protocol: %[1]s }", protocol), "")
		w.awaitInstances(t, a, b)
		w.awaitEntries(t, providers, a, b)
		for step, id := range map[string]string{"APPLICATION_FIRST": "first", "FORCE_APPLICATION": "app", "FORCE_INTERFACE": "iface"} {
			consumer := java.Refer(t, id, w.zookeeper.Address, "migration="+step)
			consumer.AwaitOnly(t, soon, a, b)
			calls := make(map[int]int)
			for range 100 {
				port, err := consumer.Call(t)
				if err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				calls[port]++
			}
			if calls[a] < 25 || calls[b] < 25 {
				t.Errorf("%s: providers counted twice? %v", step, calls)
			}
		}
	})
}

// TestApplication_HundredInstances: of a hundred one goes and comes, three times, and
// no list that a Java consumer is sent lacks another.
func TestApplication_HundredInstances(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	java := harness.StartDubbo(t)
	ports := listeningPorts(t, 100)
	w.greet(t, ports...)
	w.publish(t)
	w.formatted(t, "dubbo-application", "")
	w.awaitInstances(t, ports...)
	java.Refer(t, "c1", w.zookeeper.Address, byApplication)
	harness.Eventually(t, soon, "a Java consumer has all", func() error { return harness.Same(len(java.Addresses()), 100) })
	seen := len(java.AddressesSince(0))
	others := func() map[string]harness.Znode {
		tree := w.znodes.Tree(t, applications+greetApp)
		delete(tree, applications+greetApp)
		delete(tree, fmt.Sprintf("%s%s/127.0.0.1:%d", applications, greetApp, ports[0]))
		return tree
	}
	without := ports[1:]
	before := others()
	for range 3 {
		w.greet(t, without...)
		w.awaitInstances(t, without...)
		w.greet(t, ports...)
		w.awaitInstances(t, ports...)
	}
	if err := harness.Same(others(), before); err != nil {
		t.Errorf("the others were touched: %v", err)
	}
	harness.Eventually(t, soon, "the Java consumer was notified of it, and has all again", func() error {
		lists := java.AddressesSince(seen)
		if !slices.ContainsFunc(lists, func(l []string) bool { return len(l) == 99 }) {
			return fmt.Errorf("%d lists, none of which lacks one", len(lists))
		}
		return harness.Same(len(java.Addresses()), 100)
	})
	if err := lacking(java.AddressesSince(seen), addresses(without)); err != nil {
		t.Errorf("the consumer was notified of lists without others: %v", err)
	}
}

// listeningPorts are ports at which somebody speaks HTTP/2, which is all that Dubbo
// connects to. It replaces 127.0.0.1 for this machine's own address.
func listeningPorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	server := grpc.NewServer()
	t.Cleanup(server.Stop)
	for range n {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", harness.OwnIP(t)+":0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(l) }() // until Stop
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func TestApplication_Nacos(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	eachNacos(t, func(t *testing.T, version int) {
		server := harness.SharedNacos(t, version)
		t.Run("a Java consumer calls what was written", func(t *testing.T) { javaReadsApplications(t, server) })
		t.Run("what Java registers is read", func(t *testing.T) {
			javaApplicationsAreRead(t, newAppWorld(t, server.Java(), fmt.Sprintf("nacos: { %s, listInterval: 500ms }", server.Settings())))
		})
	})
}

func javaReadsApplications(t *testing.T, server *harness.Nacos) {
	t.Helper()
	w := newWorld(t)
	java := harness.StartDubbo(t)
	a, b := java.Provide(t, "tri"), java.Provide(t, "tri")
	w.greet(t, a, b)
	w.publish(t)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: %q, mapping: { %s } } }
  nacos: { nacos: { %s } }
bridges:
  - { name: mesh-to-nacos, from: mesh, to: nacos, formats: [dubbo-application], select: { allow: [127.0.0.0/8] }, guard: { %s } }
`, w.toIstiod.Address, w.overHTTP("connectionGrace: 1s"), server.Settings(), harness.Swift))
	bridge.Start(t)
	bridge.AwaitReady(t)
	consumer := java.ReferAt(t, "c1", server.Java(), byApplication)
	consumer.AwaitOnly(t, soon, a, b)
	w.greet(t, b)
	consumer.AwaitOnly(t, soon, b)
}
