package dubbo_test

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestNacos_Cluster shows that a cluster is kept from Nacos to Nacos, and is metadata elsewhere.
func TestNacos_Cluster(t *testing.T) {
	n, z := nacos(t, marked()), zookeeper(t, marked())
	e := instanceIn("providers:api.Greeter::", "10.0.0.1", "", "")
	e.Value = strings.Replace(e.Value, `"clusterName":"DEFAULT"`, `"clusterName":"HZ"`, 1)
	services, failed := n.Decode([]registry.Entry{e}, nil)
	if len(failed) > 0 || services[0].Attributes[metadata.KeyNacosCluster] != "HZ" {
		t.Fatalf("Decode = %s, want the cluster", render(services, failed))
	}
	inZooKeeper := encode(t, z, services[0])
	if !strings.Contains(inZooKeeper[0].Value, "nacos.cluster=HZ") {
		t.Errorf("in ZooKeeper: %s", text(inZooKeeper))
	}
	again, _ := z.Decode(inZooKeeper, nil)
	for name, s := range map[string]*registry.Service{"at once": services[0], "by way of ZooKeeper": again[0]} {
		written := encode(t, n, s)
		in, err := metadata.ParseNacosInstance(written[0].Value)
		if err != nil || in.Cluster != "HZ" || in.Metadata[metadata.KeyNacosCluster] != "" || written[0].Key != "10.0.0.1:1#HZ" {
			t.Errorf("%s: %s", name, text(written))
		}
	}
	services[0].Attributes[metadata.KeyNacosCluster] = "eu west"
	if got := text(encode(t, n, services[0])); !strings.Contains(got, `"clusterName":"DEFAULT"`) || strings.Contains(got, "eu west") {
		t.Errorf("written: %s", got)
	}
	if err := leftOut(n, services[0]); err == nil || !strings.Contains(err.Error(), "eu west") {
		t.Errorf("left out: %v", err)
	}
}

// TestNacosApp_Cluster shows that the cluster of an application's instance is metadata if
// the cluster field distinguishes instances.
func TestNacosApp_Cluster(t *testing.T) {
	n := nacosApp(t, dubbo.Options{})
	_, document := app()
	in := metadata.NacosInstance{IP: "10.0.0.1", Port: 20000, Weight: 1, Healthy: true, Enabled: true, Cluster: "HZ", Metadata: map[string]string{
		"dubbo.metadata.revision": "r1", "dubbo.metadata.storage-type": "remote",
	}}
	g := registry.Group{Kind: dubbo.KindApplication, Group: "DEFAULT_GROUP", Name: "shop"}
	document.Group = g
	services, failed := n.Decode([]registry.Entry{{Group: g, Key: in.Key(), Value: in.String()}}, []registry.Entry{document})
	if len(failed) > 0 || len(services) != 1 || services[0].Attributes[metadata.KeyNacosCluster] != "HZ" {
		t.Fatalf("Decode = %s, want the cluster", render(services, failed))
	}
	got := text(encode(t, n, services[0]))
	if !strings.Contains(got, `"nacos.cluster":"HZ"`) || !strings.Contains(got, `"clusterName":"xdsb-`) {
		t.Errorf("of another registry: %s", got)
	}
	services[0].Name = "shop.svc:20000"
	if got := text(encode(t, n, services[0])); !strings.Contains(got, `"clusterName":"HZ"`) || strings.Contains(got, "nacos.cluster") {
		t.Errorf("of a mesh: %s", got)
	}
}
