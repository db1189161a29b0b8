package integration_test

import (
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

func TestHarness_ZooKeeperKill(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	znodes.Create(t, "/a/b", "kept")
	before := znodes.Tree(t, "/a")

	server.Kill()
	server.Start(t)
	server.AwaitServing(t)

	harness.Eventually(t, 20*time.Second, "the same znodes", func() error {
		return harness.Same(harness.Connect(t, server.Address).Tree(t, "/a"), before)
	})
}

func TestHarness_EnsembleWithoutLeader(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	nodes := harness.StartEnsemble(t)
	var followers []*harness.ZooKeeper
	for _, n := range nodes {
		if n.Leads(t) {
			n.Kill()
		} else {
			followers = append(followers, n)
		}
	}
	if len(followers) != 2 {
		t.Fatalf("%d followers, want 2", len(followers))
	}
	for _, n := range followers {
		n.AwaitServing(t)
	}
	harness.Connect(t, harness.Addresses(followers...)...).Create(t, "/a", "")
}

func TestHarness_Istiod(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	mesh := harness.NewMesh(t)
	mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(18101, 18102)})
	istiod := harness.StartIstiod(t, mesh)

	watch := harness.WatchEndpoints(t, istiod.GRPC, greetCluster)
	watch.AwaitPush(t, 10*time.Second, "127.0.0.1:18101", "127.0.0.1:18102")
	mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(18102)})
	watch.AwaitPush(t, 10*time.Second, "127.0.0.1:18102")

	provider := harness.Publish(t, istiod.GRPC, "greet-1", map[string]string{greetKey: greetAddress})
	awaitKeys := func(want string) {
		t.Helper()
		harness.Eventually(t, 10*time.Second, "adsz shows "+want, func() error {
			keys, err := istiod.PublishedKeys(t)
			if err != nil {
				return err
			}
			var texts []string
			for _, text := range keys {
				texts = append(texts, text)
			}
			return harness.Same(texts, want)
		})
	}
	awaitKeys(`[{"` + greetKey + `":"` + greetAddress + `"}]`)
	provider.Republish(t, map[string]string{})
	awaitKeys(`[{}]`)
	provider.Leave()
	awaitKeys(`[]`)
}

func TestHarness_JavaConsumer(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	dubbo := harness.StartDubbo(t)
	tri, old := dubbo.Provide(t, "tri"), dubbo.Provide(t, "dubbo")
	znodes.Create(t, providers+"/"+entry("tri", tri), "")
	znodes.Create(t, providers+"/"+entry("dubbo", old), "")

	consumer := dubbo.Refer(t, "c", server.Address)
	consumer.CallEach(t, tri, old)

	znodes.Delete(t, providers+"/"+entry("tri", tri))
	harness.Eventually(t, 10*time.Second, "the consumer hears of it", func() error {
		return harness.Same(dubbo.Addresses(), []string{"127.0.0.1:" + strconv.Itoa(old)})
	})
	consumer.AwaitOnly(t, 10*time.Second, old)
}

func entry(protocol string, port int) string {
	return url.QueryEscape(fmt.Sprintf("%s://127.0.0.1:%d/%s?interface=%[3]s", protocol, port, harness.DubboInterface))
}

func TestHarness_ZooKeeperProxy(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	proxy := harness.StartZooKeeperProxy(t, harness.StartZooKeeper(t).Address)
	znodes := harness.Connect(t, proxy.Address)
	znodes.Create(t, "/a/b", "x")
	znodes.Create(t, "/other", "x")
	znodes.Delete(t, "/a/b")
	znodes.Tree(t, "/a")
	want := []harness.ZooKeeperWrite{{Operation: "create", Path: "/a"}, {Operation: "create", Path: "/a/b"}, {Operation: "delete", Path: "/a/b"}}
	if err := harness.Same(proxy.Writes("/a"), want); err != nil {
		t.Error(err)
	}
	proxy.Forget()
	proxy.Cut()
	harness.Eventually(t, 5*time.Second, "no connection", func() error { return harness.Same(proxy.Connections(), 0) })
	proxy.Heal()
	harness.Eventually(t, 15*time.Second, "one connection", func() error { return harness.Same(proxy.Connections(), 1) })
	if err := harness.Same(proxy.Writes("/"), []harness.ZooKeeperWrite{}); err != nil {
		t.Error(err)
	}
}
