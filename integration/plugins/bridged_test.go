package plugins_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
)

// bridged are registries with a bridge from each to the next, from a mesh to all
// of them, and from two of them to the mesh.
type bridged struct {
	mesh  mesh
	rings []ring
}

// ring is a registry and what is read from it at which other one.
type ring struct {
	name   string
	at     registry
	next   registry
	served string // which registry leads into the mesh
}

// meshHost is what a service of a framework is called in a mesh into which a
// registry is served.
func meshHost(framework, service, registry string) string {
	protocol := map[string]string{"kitex": "thrift", "kratos": "grpc", "hertz": "http", "gozero": "grpc"}[framework]
	port := map[string]uint16{"thrift": 20880, "grpc": 50051, "http": 80}[protocol]
	host := naming.MeshHosts{Registry: registry, Suffix: "bridge.internal"}.Of(naming.MeshName{Name: service, Protocol: protocol})
	return naming.HostAddress{Host: host, Port: port}.String()
}

// frameworkFormats are those of the frameworks' own registries, each for services of
// its own.
const frameworkFormats = `{ format: kratos, service: "kratos-*" }, { format: kitex, service: "kitex-*", protocol: thrift }, { format: hertz, service: "hertz-*", protocol: http }`

// zeroFormat is that of go-zero, which has none in ZooKeeper.
const zeroFormat = frameworkFormats + `, { format: gozero, service: "gozero-*" }`

func newBridged(t *testing.T) bridged {
	t.Helper()
	m, xds, debug := harness.NewMesh(t), harness.Address(t), harness.Address(t)
	fromZK, fromTwo := harness.Address(t), harness.Address(t)
	m.From(fromZK)
	m.From(fromTwo)
	z := harness.StartZooKeeper(t)
	two, three := harness.StartNacos(t, harness.NacosOptions{Version: 2}), harness.StartNacos(t, harness.NacosOptions{Version: 3})
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 200ms } } }
  zk: { zookeeper: { servers: [%q] } }
  two: { nacos: { %s, listInterval: 500ms } }
  three: { nacos: { %s, listInterval: 500ms } }
bridges:
  - { name: zk-to-two, from: zk, to: two, formats: [%[6]s], %[8]s }
  - { name: two-to-three, from: two, to: three, formats: [%[7]s], %[8]s }
  - { name: three-to-zk, from: three, to: zk, formats: [%[6]s], %[8]s }
  - { name: mesh-to-zk, from: mesh, to: zk, formats: [%[6]s], names: [{ host: "*.shop.svc.cluster.local", service: "*" }], %[8]s }
  - { name: mesh-to-two, from: mesh, to: two, formats: [%[7]s], names: [{ host: "*.shop.svc.cluster.local", service: "*" }], %[8]s }
  - { name: mesh-to-three, from: mesh, to: three, formats: [%[7]s], names: [{ host: "*.shop.svc.cluster.local", service: "*" }], %[8]s }
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %[9]q, formats: [%[6]s], %[8]s }
  - { name: two-to-mesh, from: two, to: mesh, listen: %[10]q, formats: [%[7]s], %[8]s }
`, xds, debug, z.Address, two.Settings(), three.Settings(), frameworkFormats, zeroFormat,
		"select: { allow: [127.0.0.0/8] }, guard: { "+harness.Swift+" }", fromZK, fromTwo))
	bridge.Start(t)
	for _, listen := range []string{fromZK, fromTwo} {
		harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, listen) })
	}
	at := mesh{m, harness.StartIstiodAt(t, m, xds, debug)}
	bridge.AwaitReady(t)
	return bridged{at, []ring{
		{"zk", &zookeeper{ZooKeeper: z}, nacos{two}, "zk"}, {"two", nacos{two}, nacos{three}, "two"}, {"three", nacos{three}, &zookeeper{ZooKeeper: z}, "zk"},
	}}
}

// TestBridge_FrameworkRegistries: what an application has registered
// with its framework's own registry is called through another registry by one with
// the framework's own registry there, and through the mesh by one with our plugin.
// What a mesh has is called through each registry likewise.
// Another server comes and the first one goes, and no call fails: it continues until
// the bridge has notified all, for which a Pod has its preStop.
func TestBridge_FrameworkRegistries(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plugins := build(t)
	w := newBridged(t)
	var services []*service
	each := func(what string, do func(*service)) {
		t.Helper()
		t.Log(what)
		for _, s := range services {
			do(s)
		}
	}
	for _, f := range withRegistry("Nacos") {
		own := harness.Application(t, f)
		for _, r := range w.rings {
			if f == "gozero" && r.name != "two" {
				continue // it has no registry in ZooKeeper
			}
			name := f + "-in-" + r.name
			s := &service{framework: f, as: f + "-" + name, binary: own, at: r.at, drain: "45s"}
			s.call(t, r.next, "of-"+r.name, own, 20*time.Millisecond)
			s.calledAs = meshHost(f, name, r.served)
			s.call(t, w.mesh, "of-"+r.name+"-in-mesh", plugins[f], 20*time.Millisecond)
			services = append(services, s)
		}
		inMesh := &service{framework: f, as: f + "-of-mesh", calledAs: f + "-" + f + "-of-mesh", binary: plugins[f], at: w.mesh}
		for _, r := range w.rings {
			if f != "gozero" || r.name != "zk" {
				inMesh.call(t, r.at, "of-mesh-in-"+r.name, own, 20*time.Millisecond)
			}
		}
		services = append(services, inMesh)
	}
	each("a server", func(s *service) { s.serve(t) })
	each("is called", func(s *service) { s.awaitCalls(t) })
	each("a second one", func(s *service) { s.serve(t) })
	each("is called too", func(s *service) { s.awaitCalls(t) })
	ended := make(map[*service]*harness.Process)
	each("the first one leaves", func(s *service) {
		ended[s] = s.withdraw(t, 0)
		if s.at != w.mesh {
			ended[s].Signal(t, syscall.SIGTERM)
		}
	})
	each("the other is called on", func(s *service) { s.awaitCalls(t) })
	each("the first one of the mesh is asked to end", func(s *service) {
		if s.at == w.mesh {
			ended[s].Signal(t, syscall.SIGTERM)
		}
	})
	each("it ends", func(s *service) { s.awaitEnd(t, ended[s]) })
	each("nobody noticed", func(s *service) { s.checkNoneFailed(t) })
}
