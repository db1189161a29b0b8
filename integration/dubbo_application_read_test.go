package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// appWorld is a registry in which Java providers register by application, a
// bridge that reads them there, and a ZooKeeper into which it writes them by
// interface.
type appWorld struct {
	java   *harness.Dubbo
	from   string // the registry, as Java knows it
	to     string // the ZooKeeper
	znodes *harness.Znodes
	ip     string // Java registers no address of loopback
	bridge *harness.Bridge
}

// newAppWorld reads from a registry of which the bridge's settings are given.
func newAppWorld(t *testing.T, java, settings string) *appWorld {
	t.Helper()
	to := harness.StartZooKeeper(t)
	w := &appWorld{java: harness.StartDubbo(t), from: java, to: to.Address, znodes: harness.Connect(t, to.Address), ip: harness.OwnIP(t)}
	w.bridge = harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  apps: { %s }
  ifaces: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: apps-to-ifaces, from: apps, to: ifaces, reads: [dubbo-application], formats: [dubbo-interface], guard: { %s } }
`, settings, to.Address, harness.Swift))
	w.bridge.Start(t)
	w.bridge.AwaitReady(t)
	return w
}

func (w *appWorld) provide(t *testing.T, settings ...string) int {
	t.Helper()
	return w.java.Provide(t, "tri", append([]string{"host=" + w.ip, "register=instance", "registry=" + w.from}, settings...)...)
}

// await waits until exactly the ports are written, one of them with a text.
func (w *appWorld) await(t *testing.T, with string, ports ...int) {
	t.Helper()
	var want []string
	for _, p := range ports {
		want = append(want, fmt.Sprintf("%s:%d", w.ip, p))
	}
	slices.Sort(want)
	harness.Eventually(t, soon, "entries by interface", func() error {
		names := w.znodes.Children(t, providers)
		if err := harness.Same(entryAddresses(names), want); err != nil {
			return err
		}
		if !strings.Contains(fmt.Sprint(names), with) {
			return fmt.Errorf("no %s in %v", with, names)
		}
		return nil
	})
}

// consumer is one that knows the ZooKeeper and interfaces alone.
func (w *appWorld) consumer(t *testing.T, id string) harness.Consumer {
	t.Helper()
	return w.java.Refer(t, id, w.to, "migration=FORCE_INTERFACE")
}

// TestApplication_Java: providers that register by application are
// read, whatever they store of what they provide, and called through what was
// read.
func TestApplication_Java(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	from := harness.StartZooKeeper(t)
	javaApplicationsAreRead(t, newAppWorld(t, "zookeeper://"+from.Address, fmt.Sprintf("zookeeper: { servers: [%q], sessionTimeout: 6s }", from.Address)))
}

func javaApplicationsAreRead(t *testing.T, w *appWorld) {
	t.Helper()
	remote := w.provide(t, "app=remote-app", "metadata=remote", "weight=300")
	t.Run("one that stores what it provides", func(t *testing.T) {
		w.await(t, "weight%3D300", remote)
		w.consumer(t, "c1").AwaitOnly(t, soon, remote)
	})
	t.Run("a restart with another revision arrives", func(t *testing.T) {
		w.java.StopProvider(t, remote)
		remote = w.provide(t, "app=remote-app", "metadata=remote", "weight=40", "param.color=blue")
		w.await(t, "color%3Dblue", remote)
		w.await(t, "weight%3D40", remote)
	})
	t.Run("one with a tag is not written where tags are not carried: calls without a tag would reach it", func(t *testing.T) {
		plain := remote
		remote = w.provide(t, "app=remote-app", "metadata=remote", "tag=gray", "param.color=green")
		harness.Eventually(t, soon, "the status says why it is left out", func() error {
			_, out, _ := w.bridge.Do(t, "status", "-o", "json")
			if !strings.Contains(out, "tag") {
				return fmt.Errorf("status: %s", out)
			}
			return nil
		})
		w.await(t, "color%3Dblue", plain)
		w.java.StopProvider(t, plain)
		w.await(t, "")
	})
	t.Run("one that keeps to itself what it provides is asked", func(t *testing.T) {
		w.java.StopProvider(t, remote)
		local := w.provide(t, "app=local-app", "metadata=local")
		w.await(t, "interface", local)
		w.consumer(t, "c2").AwaitOnly(t, soon, local)
		w.java.StopProvider(t, local)
	})
	t.Run("the last that goes is gone", func(t *testing.T) { w.await(t, "") })
}

// TestApplication_UnreachableProvider: one of Dubbo 3.2 that keeps to itself what it
// provides is reported with what helps, and read by interface as soon as it
// registers so too.
func TestApplication_UnreachableProvider(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	from, to := harness.StartZooKeeper(t), harness.StartZooKeeper(t)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  apps: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
  ifaces: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: apps-to-ifaces, from: apps, to: ifaces, reads: [dubbo-application, dubbo-interface], formats: [dubbo-interface], guard: { %s } }
`, from.Address, to.Address, harness.Swift))
	bridge.Start(t)
	bridge.AwaitReady(t)
	java := harness.StartDubboOf(t, harness.Dubbo32)
	provide := func(register string) int {
		return java.Provide(t, "dubbo", "host="+harness.OwnIP(t), "app=local-app", "metadata=local", "register="+register, "registry=zookeeper://"+from.Address)
	}
	alone := provide("instance")
	t.Run("status says what helps", func(t *testing.T) {
		harness.Eventually(t, soon, "the remedy in status", func() error {
			_, out, errOut := bridge.Do(t, "status")
			for _, part := range []string{fmt.Sprintf(":%d", alone), "dubbo.application.metadata-type=remote", "dubbo.application.register-mode=all"} {
				if !strings.Contains(out+errOut, part) {
					return fmt.Errorf("no %s in:\n%s%s", part, out, errOut)
				}
			}
			return nil
		})
	})
	t.Run("register-mode=all helps", func(t *testing.T) {
		java.StopProvider(t, alone)
		both := provide("all")
		java.Refer(t, "c1", to.Address, "migration=FORCE_INTERFACE").AwaitOnly(t, soon, both)
	})
}
