package plugins_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// buildDubboGo builds the application of dubbo-go of integration/dubbogo, of which
// nothing is changed but that it imports the plugin.
func buildDubboGo(t *testing.T) string {
	t.Helper()
	root, scratch := harness.Root(t), t.TempDir()
	module := filepath.Join(root, "plugins", "dubbogo")
	sources, err := filepath.Glob(filepath.Join(root, "integration", "dubbogo", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, source := range sources {
		files[filepath.Join(module, "application", filepath.Base(source))] = source
	}
	write := func(name, text string) string {
		file := filepath.Join(scratch, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	files[filepath.Join(module, "application", "plugin.go")] = write("plugin.txt", "package main\n\nimport _ \"github.com/xds-bridge/xds-bridge/plugins/dubbogo\"\n")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(scratch, "dubbogo")
	if code, _, errOut := harness.Run(t, filepath.Join(root, "scripts", "module.sh"), "plugins/dubbogo", "go", "build", "-overlay="+write("overlay.json", string(overlay)), "-o", binary, "./application"); code != 0 {
		t.Fatalf("build the application of dubbo-go: %s", errOut)
	}
	return binary
}

// place is a registry as dubbo-go's configuration names it.
type place []string // protocol, address, level, namespace, parameters

// java returns the same registry as Java Dubbo knows it.
func (p place) java() string {
	text := p[0] + "://" + p[1]
	if p[3] != "" {
		text += "?namespace=" + p[3]
	}
	return text
}

// by returns the same registry on a level.
func (p place) by(level string) place { return append(place{p[0], p[1], level}, p[3:]...) }

// places are registries as dubbo-go's own and ours know them.
func places() map[string]func(*testing.T) (own, ours place) {
	return map[string]func(*testing.T) (own, ours place){
		"ZooKeeper": func(t *testing.T) (own, ours place) {
			t.Helper()
			z := harness.StartZooKeeper(t)
			return place{"zookeeper", z.Address, "interface", ""}, place{"xdsbridge-zookeeper", z.Address, "interface", ""}
		},
		"Nacos 2": func(t *testing.T) (own, ours place) { t.Helper(); return nacosPlaces(t, 2) },
		"Nacos 3": func(t *testing.T) (own, ours place) { t.Helper(); return nacosPlaces(t, 3) },
	}
}

// dubboGo is what the application of dubbo-go runs with.
type dubboGo struct {
	binary, speaks string
	host           string // at which it provides; empty: loopback
	weight         string // of what it provides, with @ before it; empty: none is given
}

func (d dubboGo) provide(t *testing.T, at place) (port int, p *harness.Process) {
	t.Helper()
	port = harness.FreePort(t)
	listen := net.JoinHostPort(cmp.Or(d.host, "127.0.0.1"), strconv.Itoa(port))
	p = harness.Start(t, harness.Command{Name: "provider-" + strconv.Itoa(port), Path: d.binary, Args: append([]string{"provide", listen + d.weight, d.speaks}, at...)})
	harness.Eventually(t, soon, "it listens", func() error { return harness.Listens(t, listen) })
	return port, p
}

// caller is a consumer that calls all the time.
type caller interface {
	Calls() map[int]int // that were answered, by port
	Failed() []string   // after the first answer
}

// noneFailed fails the test where a call of a consumer failed.
func noneFailed(t *testing.T, name string, c caller) {
	t.Helper()
	t.Logf("%s: %v", name, c.Calls())
	if failed := c.Failed(); len(failed) > 0 {
		t.Errorf("%s: %d calls failed, of %v answered; the first: %s", name, len(failed), c.Calls(), failed[0])
	}
}

// called waits until of a hundred calls in a row each of these ports answers some,
// and no other any.
func called(t *testing.T, c caller, ports ...int) {
	t.Helper()
	want := make(map[int]bool)
	for _, port := range ports {
		want[port] = true
	}
	before := c.Calls()
	harness.Eventually(t, soon, fmt.Sprintf("it calls %v", ports), func() error {
		now, answered, sum := c.Calls(), make(map[int]bool), 0
		for port, n := range now {
			if n > before[port] {
				answered[port] = true
				sum += n - before[port]
			}
		}
		if sum < 100 {
			return fmt.Errorf("%d answers, of %v in all", sum, now)
		}
		before = now
		return harness.Same(answered, want)
	})
}

// TestDubboGo_Registries: an application of dubbo-go with the plugin as its
// registry and one with dubbo-go's own registry of the same kind call each other, on
// the level of interfaces, by both protocols; and applications with the plugin on
// both levels. Providers of triple are moved from dubbo-go's own registry to the
// plugin while they are called, and back, and no call fails.
func TestDubboGo_Registries(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	binary := buildDubboGo(t)
	for name, start := range places() {
		for _, speaks := range []string{"tri", "dubbo"} {
			t.Run(name+" "+speaks, func(t *testing.T) {
				t.Parallel()
				own, ours := start(t)
				d := dubboGo{binary: binary, speaks: speaks}
				consumers := make(map[string]*harness.DubboGoConsumer)
				refer := func(name string, at place) {
					consumers[name] = harness.ReferDubboGoBy(t, d.binary, append([]string{speaks}, at...)...)
				}
				all := func(what string, ports ...int) {
					t.Helper()
					for name, c := range consumers {
						t.Log(what, name)
						called(t, c, ports...)
					}
				}
				refer("by interface", ours)
				refer("by application", ours.by("application"))
				first, plugin := d.provide(t, ours)
				all("with the plugin by interface", first)
				refer("their own", own)                    // which ends where its registry is not there yet, as their provider does
				all("with the plugin by interface", first) // dubbo-go's own may never see what comes while it subscribes
				theirs, ends := d.provide(t, own)
				all("with dubbo-go's own", theirs, first)
				second, _ := d.provide(t, ours.by("application"))
				all("with the plugin by application", theirs, first, second)
				if speaks == "dubbo" {
					return // a call by it may hang for ever where its provider goes, with dubbo-go's own registries as well
				}
				leaves := func(what string, p *harness.Process, ports ...int) {
					t.Helper()
					p.Signal(t, syscall.SIGTERM)
					all(what, ports...)
					if code := p.Wait(t, drained); code != 0 {
						t.Errorf("the provider ended with %d", code)
					}
				}
				leaves("dubbo-go's own ends", ends, first, second)
				theirs, _ = d.provide(t, own)
				refer("their own again", own)
				all("back with dubbo-go's own", theirs, first, second)
				leaves("the one with the plugin ends", plugin, theirs, second)
				for name, c := range consumers {
					noneFailed(t, name, c)
				}
			})
		}
	}
}

// TestDubboGo_Mesh: an application of dubbo-go whose registry is istiod, under the
// name that it had until 3.3.0 and on both levels, by both protocols. Its service keys
// are published, a VirtualService divides its calls, and a provider of Java Dubbo in
// another pod of the service is called too, by its weight.
func TestDubboGo_Mesh(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	binary := buildDubboGo(t)
	for _, speaks := range []string{"tri", "dubbo"} {
		t.Run(speaks, func(t *testing.T) {
			t.Parallel()
			inTheMesh(t, dubboGo{binary: binary, speaks: speaks})
		})
	}
}

func inTheMesh(t *testing.T, d dubboGo) {
	t.Helper()
	at, ok := startMesh(t).(mesh)
	if !ok {
		t.Fatal("no mesh")
	}
	first, ends := d.provide(t, inMesh(at.istiod, "xds", "interface", "first"))
	at.runs(t, "greeter", []int{first})
	consumers := []*harness.DubboGoConsumer{
		harness.ReferDubboGoBy(t, d.binary, append([]string{d.speaks}, inMesh(at.istiod, "xds", "interface", "one")...)...),
		harness.ReferDubboGoBy(t, d.binary, append([]string{d.speaks}, inMesh(at.istiod, "xdsbridge", "application", "two")...)...),
	}
	all := func(ports ...int) {
		t.Helper()
		for _, c := range consumers {
			called(t, c, ports...)
		}
	}
	all(first)
	second, _ := d.provide(t, inMesh(at.istiod, "xdsbridge", "application", "second"))
	at.runs(t, "greeter", []int{first, second})
	all(first, second)
	weighed := harness.Service{Host: "greeter.shop.svc.cluster.local", Port: 80, Endpoints: []harness.Endpoint{
		{Address: "127.0.0.1", Port: first, Weight: 3, Labels: map[string]string{"version": "v1"}},
		{Address: "127.0.0.1", Port: second, Weight: 1, Labels: map[string]string{"version": "v2"}},
	}}
	at.Apply(t, weighed)
	for _, c := range consumers {
		divided(t, c, first, 75)
	}
	weighed.Subsets = map[string]map[string]string{"v1": {"version": "v1"}, "v2": {"version": "v2"}}
	at.Apply(t, weighed)
	for _, c := range consumers {
		harness.Eventually(t, soon, "it knows the subsets", func() error {
			if seen := strings.Join(c.Seen(), " "); !strings.Contains(seen, "meshSubset=v1") || !strings.Contains(seen, "meshSubset=v2") {
				return errors.New(seen)
			}
			return nil
		})
	}
	weighed.Shares = map[string]int{"v1": 20, "v2": 80}
	at.Apply(t, weighed)
	for _, c := range consumers {
		divided(t, c, first, 20)
	}
	weighed.Shares = map[string]int{"v2": 100} // nobody is left in the other
	at.Apply(t, weighed)
	for _, c := range consumers {
		divided(t, c, first, 0)
	}
	weighed.Endpoints = weighed.Endpoints[1:]
	ends.Signal(t, syscall.SIGTERM)
	at.Apply(t, weighed)
	all(second)
	inJava := harness.StartDubbo(t).Provide(t, d.speaks)
	weighed.Endpoints = append(weighed.Endpoints, harness.Endpoint{Address: "127.0.0.1", Port: inJava, Weight: 3, Labels: map[string]string{"version": "v2"}})
	at.Apply(t, weighed)
	for _, c := range consumers {
		divided(t, c, inJava, 75)
	}
	if code := ends.Wait(t, drained); code != 0 {
		t.Errorf("the provider ended with %d", code)
	}
	for _, c := range consumers {
		noneFailed(t, "a consumer", c)
	}
}

// inMesh is an istiod as the registry of a pod.
func inMesh(i *harness.Istiod, registry, level, pod string) place {
	return place{registry, i.GRPC, level, "shop", "name=" + pod, "ip=127.0.0.1", "debug=" + i.HTTP, "interval=200ms", "allow=127.0.0.0/8"}
}

// TestDubboGo_Bridge: an application of dubbo-go in the mesh publishes its
// service keys in istiod's metadata, one outside with dubbo-go's own ZooKeeper finds
// it through the bridge, and the reverse.
func TestDubboGo_Bridge(t *testing.T) {
	t.Parallel()
	// The mesh reports weights; next to them, dubbo-go calls nobody that has none.
	d, z, m := dubboGo{binary: buildDubboGo(t), speaks: "tri", weight: "@100"}, harness.StartZooKeeper(t), harness.NewMesh(t)
	listen, xds, debug := harness.Address(t), harness.Address(t), harness.Address(t)
	m.From(listen)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 200ms, connectionGrace: 1s } } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: in, from: zk, to: mesh, listen: %q, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] } }
  - { name: out, from: mesh, to: zk, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] } }
`, xds, debug, z.Address, listen))
	bridge.Start(t)
	harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, listen) })
	at := mesh{m, harness.StartIstiodAt(t, m, xds, debug)}
	own := place{"zookeeper", z.Address, "interface", ""}
	refer := func(at place) *harness.DubboGoConsumer {
		return harness.ReferDubboGoBy(t, d.binary, append([]string{d.speaks}, at...)...)
	}
	inside, _ := d.provide(t, inMesh(at.istiod, "xds", "interface", "inside"))
	at.runs(t, "greeter", []int{inside})
	harness.Eventually(t, soon, "istiod shows its service key", func() error {
		keys, err := at.istiod.PublishedKeys(t)
		if text := fmt.Sprint(keys); err == nil && !strings.Contains(text, `"providers:`+harness.DubboInterface+`::":"greeter.shop.svc.cluster.local:80"`) {
			err = errors.New(text)
		}
		return err
	})
	bridge.AwaitReady(t)
	far, near := refer(own), refer(inMesh(at.istiod, "xdsbridge", "application", "near"))
	called(t, far, inside)
	called(t, near, inside)
	outside, _ := d.provide(t, own)
	called(t, far, inside, outside)
	called(t, near, inside, outside)
	noneFailed(t, "far", far)
	noneFailed(t, "near", near)
}

// divided waits until of four thousand calls in a row a port answers a share, within
// five points.
func divided(t *testing.T, c caller, port, percent int) {
	t.Helper()
	before := c.Calls()
	harness.Eventually(t, soon, fmt.Sprintf("%d answers %d %% of the calls", port, percent), func() error {
		now, sum := c.Calls(), 0
		for port, n := range now {
			sum += n - before[port]
		}
		if sum < 4000 {
			return fmt.Errorf("%d calls", sum)
		}
		mine := now[port] - before[port]
		before = now
		if mine*100 < sum*(percent-5) || mine*100 > sum*(percent+5) {
			return fmt.Errorf("%d of %d", mine, sum)
		}
		return nil
	})
}

func nacosPlaces(t *testing.T, version int) (own, ours place) {
	t.Helper()
	n := harness.SharedNacos(t, version)
	at := strings.TrimPrefix(n.URL, "http://")
	return place{"nacos", at, "interface", n.Namespace}, place{"xdsbridge-nacos", at, "interface", n.Namespace}
}
