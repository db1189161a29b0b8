package integration_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// TestJava_Changes: what an application of nacos-sdk-go changes of one
// of its two instances reaches Java Dubbo consumers that know only ZooKeeper,
// one by interface and one by application.
func TestJava_Changes(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.SharedNacos(t, 2)
	zookeeper := harness.StartZooKeeper(t)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  nacos: { nacos: { %s, listInterval: 500ms } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - name: nacos-to-zk
    from: nacos
    to: zk
    reads: [dubbo-interface]
    formats: [{ format: dubbo-interface, tags: true }, { format: dubbo-application, tags: true }]
    select: { allow: [127.0.0.0/8] }
    guard: { %s }
`, server.Settings(), zookeeper.Address, harness.Swift))
	bridge.Start(t)
	provider := harness.StartDubbo(t)
	a, b := provider.Provide(t, "tri"), provider.Provide(t, "tri")
	sdk := nacossdk.ConnectTo(t, server)
	change := func(t *testing.T, of func(*model.Instance)) {
		t.Helper()
		first, second := greetInstance(a), greetInstance(b)
		of(&second)
		sdk.Register(t, greetKey, first, second)
	}
	change(t, func(*model.Instance) {})

	for step, id := range map[string]string{"FORCE_INTERFACE": "by interface", "FORCE_APPLICATION": "by application"} {
		t.Run(id, func(t *testing.T) {
			java := harness.StartDubbo(t)
			consumer := java.Refer(t, "c1", zookeeper.Address, "migration="+step)
			back := func() {
				change(t, func(*model.Instance) {})
				consumer.AwaitOnly(t, soon, a, b)
			}
			back()
			t.Run("weight only", func(t *testing.T) {
				change(t, func(in *model.Instance) { in.Metadata["weight"] = "1" })
				harness.Eventually(t, soon, "nearly all calls go to the other", func() error { return mostly(t, consumer, a) })
			})
			back()
			t.Run("metadata only", func(t *testing.T) {
				change(t, func(in *model.Instance) { in.Metadata["color"] = "blue" })
				harness.Eventually(t, soon, "Java sees the color of one", func() error { return harness.Same(java.Colors(), []string{"blue"}) })
				consumer.CallEach(t, a, b)
			})
			back()
			t.Run("tag only", func(t *testing.T) {
				change(t, func(in *model.Instance) { in.Metadata["dubbo.tag"] = "gray" })
				consumer.AwaitOnly(t, soon, a) // it asks for no tag
			})
			back()
			t.Run("health only", func(t *testing.T) {
				change(t, func(in *model.Instance) { in.Healthy = false })
				consumer.AwaitOnly(t, soon, a)
			})
			back()
			t.Run("enabled only", func(t *testing.T) {
				change(t, func(in *model.Instance) { in.Enable = false })
				consumer.AwaitOnly(t, soon, a)
			})
			back()
		})
	}
}

// greetInstance is a provider on a port of 127.0.0.1 as Java is in Nacos.
func greetInstance(port int) model.Instance {
	return model.Instance{
		Ip: "127.0.0.1", Port: uint64(port), Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
		Metadata: map[string]string{
			"protocol": "tri", "path": harness.DubboInterface, "interface": harness.DubboInterface, "side": "provider",
			"category": "providers", "application": "greeter", "weight": "100",
		},
	}
}

// mostly returns an error where calls go to another port than nearly always to
// this one.
func mostly(t *testing.T, c harness.Consumer, port int) error {
	t.Helper()
	n := 0
	for range 50 {
		got, err := c.Call(t)
		if err != nil {
			return err
		}
		if got == port {
			n++
		}
	}
	if n < 45 {
		return fmt.Errorf("%d of 50", n)
	}
	return nil
}

// lacking returns an error where one of the lists lacks one of these.
func lacking(lists [][]string, all []string) error {
	var errs []error
	for i, l := range lists {
		for _, a := range all {
			if !slices.Contains(l, a) {
				errs = append(errs, fmt.Errorf("list %d lacks %s", i, a))
			}
		}
	}
	return errors.Join(errs...)
}
