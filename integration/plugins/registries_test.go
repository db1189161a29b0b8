package plugins_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/conformance/plugin"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
)

// registry is where servers and clients meet.
type registry interface {
	// url is the line of configuration of one process.
	url(process string) string

	// runs says at which ports the servers of a service run: what Kubernetes reports to
	// a mesh, and what nobody has to report to others.
	runs(t testing.TB, service string, ports []int)

	kill(t testing.TB) // ends the server at once

	// start starts it again after that, and waits until it serves those that it
	// served before; of a mesh and Nacos, what is registered shows that.
	start(t testing.TB)
}

type mesh struct {
	*harness.Mesh
	istiod *harness.Istiod
}

func startMesh(t *testing.T) registry {
	t.Helper()
	m := harness.NewMesh(t)
	return mesh{m, harness.StartIstiod(t, m)}
}

func (m mesh) url(process string) string {
	return fmt.Sprintf("mesh://%s?name=%s&namespace=shop&ip=127.0.0.1&debug=%s&interval=200ms&allow=127.0.0.0/8", m.istiod.GRPC, process, m.istiod.HTTP)
}

func (m mesh) runs(t testing.TB, service string, ports []int) {
	t.Helper()
	m.Apply(t, harness.Service{Host: service + ".shop.svc.cluster.local", Port: 80, Endpoints: harness.Local(ports...)})
}

func (m mesh) kill(testing.TB) { m.istiod.Kill() }

func (m mesh) start(t testing.TB) {
	t.Helper()
	m.istiod.Start(t)
}

type zookeeper struct {
	*harness.ZooKeeper
	connections int // when it was killed
}

func startZooKeeper(t *testing.T) registry {
	t.Helper()
	return &zookeeper{ZooKeeper: harness.StartZooKeeper(t)}
}

func (z *zookeeper) url(process string) string {
	return fmt.Sprintf("zookeeper://%s?identity=%s", z.Address, process)
}

func (*zookeeper) runs(testing.TB, string, []int) {}

func (z *zookeeper) kill(t testing.TB) {
	t.Helper()
	harness.Eventually(t, soon, "it reports its connections", func() (err error) {
		z.connections, err = z.Connections(t.Context())
		return err
	})
	z.Kill()
}

// start starts it with the sessions that it had, so that nothing else reports who is
// connected again.
func (z *zookeeper) start(t testing.TB) {
	t.Helper()
	z.Start(t)
	z.AwaitServing(t)
	harness.Eventually(t, soon, "all are connected again", func() error {
		n, err := z.Connections(t.Context())
		if err == nil && n < z.connections {
			err = fmt.Errorf("%d connections of %d", n, z.connections)
		}
		return err
	})
}

type nacos struct{ *harness.Nacos }

func startNacos(t *testing.T, version int) registry {
	t.Helper()
	return nacos{harness.StartNacos(t, harness.NacosOptions{Version: version})}
}

func (n nacos) url(process string) string {
	return fmt.Sprintf("nacos://%s?identity=%s", strings.TrimPrefix(n.URL, "http://"), process)
}

func (nacos) runs(testing.TB, string, []int) {}

func (n nacos) kill(testing.TB) { n.Kill() }

func (n nacos) start(t testing.TB) {
	t.Helper()
	n.Start(t)
}

// conforms tries the client itself over a registry, in this process.
func conforms(t *testing.T, at registry) {
	t.Helper()
	_, inMesh := at.(mesh)
	plugin.Backends(t, plugin.World{
		Member: func(t testing.TB, identity string, o client.Options) *client.Client {
			t.Helper()
			c, err := client.Open(at.url(identity), o, all.Kinds()...)
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		Runs: func(t testing.TB, application string, ports ...int) {
			t.Helper()
			at.runs(t, application, ports)
		},
		Break:      at.kill,
		Heal:       at.start,
		Identities: !inMesh, // istiod knows processes by their addresses
	})
}
