package instance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
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

// secret is metadata that Spring Cloud Alibaba Dubbo registers.
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

// TestSpringCloud_KeysOfDubbo shows that keys of Dubbo are kept, by which consumers of
// Spring Cloud Alibaba Dubbo find providers.
func TestSpringCloud_KeysOfDubbo(t *testing.T) {
	services, failed := codecOf(t, "spring-cloud-nacos").Decode([]registry.Entry{secret()}, nil)
	if len(failed) > 0 || len(services) != 1 {
		t.Fatalf("Decode = %s, want one service", render(services, failed))
	}
	each(t, func(t *testing.T, f format) {
		entries, err := f.codec(t, marked()).Encode(services[0])
		written, said := "", ""
		if len(entries) > 0 {
			written = entries[0].Value
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

// TestNacos_Cluster shows that a cluster is kept from Nacos to Nacos, and is metadata elsewhere.
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

// TestNacos_InvalidCluster shows that a cluster that Nacos does not accept affects only itself.
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

// TestSpringCloud_OldPortOfGRPC shows the key of grpc-spring-boot-starter up to 2.5.
func TestSpringCloud_OldPortOfGRPC(t *testing.T) {
	for name, tt := range map[string]struct {
		keys map[string]string
		want string // address and protocol of the endpoints
	}{
		"the old key":  {map[string]string{"gRPC.port": "9090"}, "8080/http 9090/grpc"},
		"the new key":  {map[string]string{"gRPC_port": "9091"}, "8080/http 9091/grpc"},
		"both":         {map[string]string{"gRPC.port": "9090", "gRPC_port": "9091"}, "8080/http 9091/grpc"},
		"its own port": {map[string]string{"gRPC.port": "8080"}, "8080/grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			e := secret()
			in, err := metadata.ParseNacosInstance(e.Value)
			if err != nil {
				t.Fatal(err)
			}
			in.Metadata = map[string]string{"preserved.register.source": "SPRING_CLOUD"}
			maps.Copy(in.Metadata, tt.keys)
			e.Value = in.String()
			c := codecOf(t, "spring-cloud-nacos")
			services, failed := c.Decode([]registry.Entry{e}, nil)
			if len(failed) > 0 || len(services) != 1 {
				t.Fatalf("Decode = %s", render(services, failed))
			}
			var got []string
			for _, e := range services[0].Endpoints {
				got = append(got, fmt.Sprintf("%d/%s", e.Port, e.Protocol))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("Decode = %v, want %s", got, tt.want)
			}
			written := encode(t, c, services[0])[0].Value
			if old := tt.keys["gRPC.port"]; old != "" && !strings.Contains(written, `"gRPC.port":"`+old+`"`) {
				t.Errorf("written: %s, want the old key too", written)
			}
		})
	}
}

// TestKratos_Version1 shows that registrations of Kratos 1 are named in the error.
func TestKratos_Version1(t *testing.T) {
	z, ok := codecOf(t, "kratos-zookeeper").(*instance.ZooKeeper)
	if !ok {
		t.Fatal("not in ZooKeeper")
	}
	g, _ := z.Group("/microservices/demo.service")
	e, _ := z.Entry(g, "10.0.0.1", []byte(`{"region":"r","zone":"z","env":"dev","appid":"demo.service","hostname":"h","addrs":["grpc://10.0.0.1:9000"],"version":"1","lastts":0,"metadata":{}}`))
	if _, failed := z.Decode([]registry.Entry{e}, nil); len(failed) != 1 || !strings.Contains(failed[0].Error(), "Kratos 1") {
		t.Errorf("failed = %v", failed)
	}
}
