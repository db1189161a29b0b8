package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
)

const pod = "name=greeter-1&namespace=shop&ip=10.0.0.1"

func TestURL_Registries(t *testing.T) {
	for _, text := range []string{
		"mesh://istiod:15010?" + pod,
		"mesh://127.0.0.1:15010?" + pod + "&token=/token&debug=127.0.0.1:15014&debug=127.0.0.1:8080&interval=1s&host=greeter.shop:80&allow=127.0.0.0/8",
		"mesh+tls://istiod:15012?" + pod + "&serverName=istiod.istio-system.svc&token=/token",
		"zookeeper://127.0.0.1:2181",
		"zookeeper://127.0.0.1:2181,127.0.0.1:2182/dubbo?identity=greeter-1&sessionTimeout=10s",
		"zookeeper+tls://127.0.0.1:2281?ca=/ca.pem&cert=/cert.pem&key=/key.pem&serverName=zookeeper&format=kratos",
		"nacos://127.0.0.1:8848",
		"nacos+tls://127.0.0.1:8848?ca=/ca.pem&serverName=nacos&format=gozero",
		"nacos://127.0.0.1:8848,127.0.0.2:8848/shop?group=DEFAULT_GROUP&identity=greeter-1&username=nacos&passwordFile=/password",
	} {
		c, err := client.Open(text, client.Options{}, all.Kinds()...) // the registry need not be reachable
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		_ = c.Close()
	}
}

func TestURL_Errors(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:2181":                                    "://",
		"etcd://127.0.0.1:2379":                             "want one of mesh, nacos, zookeeper, each also with +tls",
		"mesh://istiod:15010":                               "namespace: required; set it, or $POD_NAMESPACE",
		"mesh://istiod:15010?namespace=shop&ip=here":        "ip",
		"mesh://istiod:15010?" + pod + "&ca=/x":             "unknown parameter",
		"mesh://istiod:15010?" + pod + "&token=/token":      "plaintext",
		"mesh://istiod:15010?" + pod + "&interval=often":    "interval",
		"mesh://istiod:15010?" + pod + "&insecure=perhaps":  "insecure: must be true or false (got \"perhaps\")",
		"mesh://istiod:15010?" + pod + "&allow=all":         "allow",
		"mesh://istiod:15010?" + pod + "&host=nowhere":      "host",
		"mesh://istiod:15010?" + pod + "&name=greeter-2":    "more than once",
		"zookeeper://127.0.0.1:2181?rout=/dubbo":            "\"rout\": unknown parameter; want one of format, identity, passwordFile, sessionTimeout, user",
		"zookeeper://127.0.0.1:2181?format=gozero":          "want one of dubbo-interface, hertz, kitex, kratos, plain, spring-cloud",
		"nacos://127.0.0.1:8848?format=json":                "want one of dubbo-interface, gozero, hertz, kitex, kratos, plain, spring-cloud",
		"zookeeper://127.0.0.1:2181?ca=/ca.pem":             "unknown parameter",
		"zookeeper://127.0.0.1:2181?sessionTimeout=forever": "sessionTimeout",
		"zookeeper://?%zz":                                  "zz",
		"nacos://127.0.0.1:8848?identiy=greeter-1":          "identiy",
		"mesh://istiod:15010/path?" + pod:                   "path: must be empty for a mesh",
		"mesh://istiod:15010?" + pod + "&debug=":            "debug: \"\": must be host:port",
		"mesh://istiod:15010?" + pod + "&debug=istiod":      "debug: \"istiod\": must be host:port",
		"mesh://istiod:15010?" + pod + "&interval=-1s":      "interval: must not be negative (got -1s)",
		"zookeeper://127.0.0.1:2181?sessionTimeout=-5s":     "sessionTimeout: must not be negative (got -5s)",
		"zookeeper://127.0.0.1:2181?user=shop":              "passwordFile: must be set together with user",
		"zookeeper://127.0.0.1:2181?passwordFile=/password": "user: must be set together with passwordFile",
		"zookeeper://shop:secret@127.0.0.1:2181":            "servers: must be host:port",
		"zookeeper+tls://127.0.0.1:2281?cert=/cert.pem":     "key: must be set together with cert",
		"nacos+tls://127.0.0.1:8848?key=/key.pem":           "cert: must be set together with key",
		"nacos://shop:secret@127.0.0.1:8848":                "servers: must be host:port",
		"nacos://127.0.0.1:8848?username=shop":              "passwordFile: must be set together with username",
		"zookeeper://::1:2181":                              "put the IPv6 address in brackets",
		"nacos://127.0.0.1:8848?passwordFile=/password":     "username: must be set together with passwordFile",
	} {
		_, err := client.Open(text, client.Options{}, all.Kinds()...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestURL_DefaultIdentity: the pod, or the machine and process.
func TestURL_DefaultIdentity(t *testing.T) {
	for _, pod := range []string{"", "greeter-1"} {
		t.Setenv("POD_NAME", pod)
		for _, text := range []string{"zookeeper://192.0.2.1:2181", "nacos://192.0.2.1:8848", "mesh://192.0.2.1:15010?namespace=shop"} {
			c, err := client.Open(text, client.Options{Grace: time.Millisecond}, all.Kinds()...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if err := c.Register(at("10.0.0.1", "greeter")); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// TestURL_Pod: from the downward API of Kubernetes.
func TestURL_Pod(t *testing.T) {
	t.Setenv("POD_NAME", "greeter-1")
	t.Setenv("POD_NAMESPACE", "shop")
	t.Setenv("POD_IP", "here")
	if _, err := client.Open("mesh://istiod:15010", client.Options{}, all.Kinds()...); err == nil || !strings.Contains(err.Error(), "here") {
		t.Errorf("the pod's own address: %v", err)
	}
	c, err := client.Open("mesh://istiod:15010?ip=10.0.0.1", client.Options{}, all.Kinds()...)
	if err != nil {
		t.Fatalf("what the URL says comes first: %v", err)
	}
	_ = c.Close()
}
