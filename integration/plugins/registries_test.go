package plugins_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// registry is where servers and clients meet.
type registry interface {
	// url is the line of configuration of one process.
	url(process string) string

	// runs says at which ports the servers of a service run: what Kubernetes tells
	// a mesh, and what nobody has to tell others.
	runs(t *testing.T, service string, ports []int)

	// restart kills the server and starts it again.
	restart(t *testing.T)
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

func (m mesh) runs(t *testing.T, service string, ports []int) {
	t.Helper()
	m.Apply(t, harness.Service{Host: service + ".shop.svc.cluster.local", Port: 80, Endpoints: harness.Local(ports...)})
}

func (m mesh) restart(t *testing.T) {
	t.Helper()
	m.istiod.Kill()
	m.istiod.Start(t)
}

type zookeeper struct{ *harness.ZooKeeper }

func startZooKeeper(t *testing.T) registry {
	t.Helper()
	return zookeeper{harness.StartZooKeeper(t)}
}

func (z zookeeper) url(process string) string {
	return fmt.Sprintf("zookeeper://%s/dubbo?identity=%s", z.Address, process)
}

func (zookeeper) runs(*testing.T, string, []int) {}

func (z zookeeper) restart(t *testing.T) {
	t.Helper()
	z.Kill()
	z.Start(t)
	z.AwaitServing(t)
}

type nacos struct{ *harness.Nacos }

func startNacos(t *testing.T, version int) registry {
	t.Helper()
	return nacos{harness.StartNacos(t, harness.NacosOptions{Version: version})}
}

func (n nacos) url(process string) string {
	return fmt.Sprintf("nacos://%s?identity=%s", strings.TrimPrefix(n.URL, "http://"), process)
}

func (nacos) runs(*testing.T, string, []int) {}

func (n nacos) restart(t *testing.T) {
	t.Helper()
	n.Kill()
	n.Start(t)
}
