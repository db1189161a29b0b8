package instance_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// codecOf returns the codec of a format by its name in formats.
func codecOf(t *testing.T, name string) metadata.Codec {
	t.Helper()
	for _, f := range formats() {
		if f.name == name {
			return f.codec(t, marked())
		}
	}
	t.Fatal(name)
	return nil
}

// secret is what Spring Cloud Alibaba Dubbo registers.
func secret() registry.Entry {
	in := metadata.NacosInstance{
		IP: "10.0.5.1", Port: 8080, Weight: 1, Healthy: true, Enabled: true, Cluster: "HZ",
		Metadata: map[string]string{
			"preserved.register.source":   "SPRING_CLOUD",
			"dubbo.protocols.dubbo.port":  "29011",
			"dubbo.metadata-service.urls": `[ "dubbo://10.0.5.1:29011/com.alibaba.cloud.dubbo.service.DubboMetadataService?group=secret-server&version=1.0.0" ]`,
		},
	}
	g := registry.Group{Kind: "spring-cloud", Group: "DEFAULT_GROUP", Name: "secret-server"}
	return registry.Entry{Group: g, Key: in.Key(), Value: in.String()}
}

// TestSpringCloud_KeysOfDubbo: consumers of Spring Cloud Alibaba Dubbo find providers by
// them.
func TestSpringCloud_KeysOfDubbo(t *testing.T) {
	services, failed := codecOf(t, "spring-cloud-nacos").Decode([]registry.Entry{secret()}, nil)
	if len(failed) > 0 || len(services) != 1 {
		t.Fatalf("Decode = %s, want one service", render(services, failed))
	}
	each(t, func(t *testing.T, f format) {
		entries, err := f.codec(t, marked()).Encode(services[0])
		written, said := "", ""
		for _, e := range entries {
			written += e.Value
		}
		if err != nil {
			said = err.Error()
		}
		carries := strings.Contains(written, "dubbo.metadata-service.urls")
		if isSpring := strings.HasPrefix(f.name, "spring-cloud"); carries != isSpring {
			t.Errorf("written: %s", written)
		}
		if written != "" && carries == strings.Contains(said, "dubbo.metadata-service.urls") {
			t.Errorf("left out: %s", said)
		}
	})
}

// TestNacos_Cluster: a cluster is carried from Nacos to Nacos, and is metadata on the way.
func TestNacos_Cluster(t *testing.T) {
	services, _ := codecOf(t, "spring-cloud-nacos").Decode([]registry.Entry{secret()}, nil)
	s := *services[0]
	s.Attributes = maps.Clone(s.Attributes)
	delete(s.Attributes, "dubbo.metadata-service.urls")
	each(t, func(t *testing.T, f format) {
		c := f.codec(t, marked())
		entries := encode(t, c, &s)
		if len(entries) == 0 {
			return // a format of another protocol
		}
		if f.records == nil {
			if !strings.Contains(entries[0].Value, `"nacos.cluster":"HZ"`) {
				t.Errorf("written: %s, want the cluster as metadata", entries[0].Value)
			}
			again, failed := c.Decode(entries, nil)
			if len(failed) > 0 || again[0].Attributes["nacos.cluster"] != "HZ" {
				t.Errorf("Decode = %s, want the cluster", render(again, failed))
			}
			return
		}
		in, err := metadata.ParseNacosInstance(entries[0].Value)
		if err != nil || in.Cluster != "HZ" || in.Metadata["nacos.cluster"] != "" || entries[0].Key != "10.0.5.1:8080#HZ" {
			t.Errorf("written: %s %s, want it in the cluster", entries[0].Key, entries[0].Value)
		}
	})
}

// TestNacos_InvalidCluster: a cluster that Nacos does not accept costs itself alone.
func TestNacos_InvalidCluster(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		if f.records == nil {
			return
		}
		s := one(registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: f.protocol, Attributes: registry.Attributes{"nacos.cluster": "eu west"}})
		entries, err := f.codec(t, marked()).Encode(s)
		if len(entries) != 1 || !strings.Contains(entries[0].Value, `"clusterName":"DEFAULT"`) || !json.Valid([]byte(entries[0].Value)) {
			t.Fatalf("Encode = %v, %v", entries, err)
		}
		if err == nil || !strings.Contains(err.Error(), "nacos.cluster") {
			t.Errorf("left out: %v", err)
		}
	})
}
