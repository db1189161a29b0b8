package springcloud_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/springcloud"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestZooKeeper_Curator shows Curator's JSON of other programs than Spring.
func TestZooKeeper_Curator(t *testing.T) {
	const spring = `"payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"orders","name":"orders","metadata":{"instance_status":"UP"}}`
	z, err := springcloud.NewZooKeeper(instance.Options{Root: "/services", Protocol: "http"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ fields, want, fails string }{
		"as Spring writes it":      {fields: `"port":8080,"sslPort":null,` + spring, want: "http://10.0.0.1:8080 unknown"},
		"enabled":                  {fields: `"port":8080,"enabled":true,` + spring, want: "http://10.0.0.1:8080 unknown"},
		"disabled":                 {fields: `"port":8080,"enabled":false,` + spring, want: "http://10.0.0.1:8080 disabled"},
		"disabled, no payload":     {fields: `"port":8080,"payload":null,"enabled":false`, want: "http://10.0.0.1:8080 disabled"},
		"an sslPort of -1":         {fields: `"port":8081,"sslPort":-1,"payload":null`, want: "http://10.0.0.1:8081 unknown"},
		"an sslPort of 0":          {fields: `"port":8081,"sslPort":0,"payload":null`, want: "http://10.0.0.1:8081 unknown"},
		"a port of -1":             {fields: `"port":-1,"sslPort":8443,"payload":null`, want: "https://10.0.0.1:8443 unknown"},
		"both ports":               {fields: `"port":8080,"sslPort":8443,"payload":null`, want: "https://10.0.0.1:8443 unknown"},
		"no port":                  {fields: `"port":-1,"sslPort":-1,"payload":null`, fails: "neither a port nor an sslPort"},
		"a port over 65535":        {fields: `"port":70000,"payload":null`, fails: "port 70000"},
		"a payload without class":  {fields: `"port":8080,"payload":{"tenant":"t1"}`, fails: "register it without a payload"},
		"a payload that is a text": {fields: `"port":8080,"payload":"{\"environment\":\"prod\"}"`, fails: "register it without a payload"},
		"a payload of another":     {fields: `"port":8080,"payload":{"@class":"com.example.Details"}`, fails: `"com.example.Details"`},
		"a payload of Dubbo": {
			fields: `"port":8080,"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance"}`, fails: "dubbo-application",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, ok := z.Group("/services/orders")
			if !ok {
				t.Fatal("no group")
			}
			e, _ := z.Entry(g, "a1", []byte(`{"name":"orders","id":"a1","address":"10.0.0.1",`+tt.fields+`,"registrationTimeUTC":1,"serviceType":"DYNAMIC","uriSpec":null}`))
			services, failed := z.Decode([]registry.Entry{e}, nil)
			if tt.fails != "" {
				if len(failed) != 1 || !strings.Contains(failed[0].Error(), tt.fails) {
					t.Errorf("failed = %v, want %q", failed, tt.fails)
				}
				return
			}
			if len(failed) > 0 || len(services) != 1 {
				t.Fatalf("Decode = %v, %v; want one service", services, failed)
			}
			got := services[0].Endpoints[0]
			if text := fmt.Sprintf("%s://%s %s", got.Protocol, got.Address(), got.Health); text != tt.want {
				t.Errorf("Decode = %s, want %s", text, tt.want)
			}
		})
	}
}

// TestZooKeeper_Path shows that the path of an instance is kept if the format has one.
func TestZooKeeper_Path(t *testing.T) {
	z, err := springcloud.NewZooKeeper(instance.Options{Root: "/services", Protocol: "http"})
	if err != nil {
		t.Fatal(err)
	}
	n, err := springcloud.NewNacos(instance.Options{Protocol: "http"})
	if err != nil {
		t.Fatal(err)
	}
	const spec = `{"parts":[{"value":"scheme","variable":true},{"value":"://","variable":false},{"value":"address","variable":true},` +
		`{"value":":","variable":false},{"value":"port","variable":true},{"value":"/pay-app","variable":false}]}`
	g, _ := z.Group("/services/pay")
	e, _ := z.Entry(g, "d1", []byte(`{"name":"pay","id":"d1","address":"10.0.0.5","port":9010,"payload":null,"uriSpec":`+spec+`}`))
	services, failed := z.Decode([]registry.Entry{e}, nil)
	if len(failed) > 0 || services[0].Endpoints[0].URLPath != "pay-app" {
		t.Fatalf("Decode = %+v, %v; want the path pay-app", services, failed)
	}
	if all, err := z.Encode(services[0]); err != nil || len(all) != 1 || !strings.Contains(all[0].Value, `"uriSpec":`+spec) {
		t.Errorf("Encode = %v, %v; want the uriSpec as it was", all, err)
	}
	if all, err := n.Encode(services[0]); len(all) != 1 || err == nil || !strings.Contains(err.Error(), "pay-app") {
		t.Errorf("Encode = %v, %v; want the path left out", all, err)
	}
}
