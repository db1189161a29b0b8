package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestSelfRegistered: pods of a mesh are exported with the examples'
// dubbo-interface, and register themselves with the protocol that they speak, of
// which the mesh reports nothing. Java consumers of either version meet no call that
// fails, whichever entry came first.
func TestSelfRegistered(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	versions(t, func(t *testing.T, version string) {
		t.Run("dubbo", func(t *testing.T) { podsRegisterThemselves(t, version, "dubbo") })
		if protocol := protocolOf(version); protocol != "dubbo" {
			t.Run(protocol, func(t *testing.T) { podsRegisterThemselves(t, version, protocol) })
		}
	})
}

func podsRegisterThemselves(t *testing.T, version, protocol string) {
	t.Helper()
	w, ip := newWorld(t), harness.OwnIP(t)
	java := harness.StartDubboOf(t, version)
	provide := func() int {
		return java.Provide(t, protocol, "host="+ip, "register=interface", "registry=zookeeper://"+w.zookeeper.Address)
	}
	config := w.config()
	config.Guard = ""
	bridge := harness.NewBridge(t, config)
	mesh := func(ports ...int) {
		endpoints := harness.Local(ports...)
		for i := range endpoints {
			endpoints[i].Address = ip
		}
		w.mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: endpoints})
	}
	// Of each port the parent znode has the pod's own entry alone.
	alone := func(ports ...int) {
		t.Helper()
		harness.Eventually(t, soon, "the pods' own entries are alone", func() error {
			names := w.znodes.Children(t, providers)
			if i := slices.IndexFunc(names, mark.MatchString); i >= 0 {
				return fmt.Errorf("of the bridge: %s", names[i])
			}
			if i := slices.IndexFunc(names, func(n string) bool { return !strings.HasPrefix(n, protocol+"%3A") }); i >= 0 {
				return fmt.Errorf("another protocol: %s", names[i])
			}
			return harness.Same(len(names), len(ports))
		})
	}

	first := provide()
	mesh(first)
	w.publish(t)
	bridge.Start(t)
	bridge.AwaitReady(t)
	consumer := java.Refer(t, "consumer", w.zookeeper.Address)
	// All calls go there, and each succeeds from then on.
	called := func(ports ...int) {
		t.Helper()
		consumer.AwaitOnly(t, soon, ports...)
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			consumer.CallEach(t, ports...)
		}
		alone(ports...)
	}
	called(first)

	second := provide()
	mesh(first, second)
	called(first, second)

	_, why, _ := bridge.Do(t, "why", greetHost)
	if !strings.Contains(why, "conflict") {
		t.Errorf("why does not say whose entries are there: %s", why)
	}
}
