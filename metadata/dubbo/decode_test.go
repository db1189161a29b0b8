package dubbo_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestDecode_Golden(t *testing.T) {
	for _, name := range []string{
		"zk-java335-interface-provider", "zk-java335-interface-provider+consumer", "zk-java335-interface-after-graceful-stop",
		"zk-java335-all-local-version-group", "zk-dubbogo332-all-remote-provider",
		"nacos-java335-interface-provider", "nacos-java335-all-remote-version-group", "nacos-dubbogo332-interface-local-provider",
		"zk-java2612-provider-defaults", "nacos-java2612-legacy-names",
	} {
		t.Run(name, func(t *testing.T) {
			var c metadata.Codec = nacos(t, dubbo.Options{})
			entries := nacosEntriesOrNone(t, name)
			if strings.HasPrefix(name, "zk-") {
				z := zookeeper(t, dubbo.Options{})
				c, entries = z, zookeeperEntries(t, z, name)
			}
			if refs := c.Dependencies(entries); len(refs) != 0 {
				t.Errorf("Dependencies = %v, want none", refs)
			}
			golden(t, "decode-"+name, render(c.Decode(entries, nil)))
		})
	}
}

func nacosEntriesOrNone(t *testing.T, name string) []registry.Entry {
	t.Helper()
	if !strings.HasPrefix(name, "nacos-") {
		return nil
	}
	return nacosEntries(t, name)
}

func TestDecode_InvalidEntry(t *testing.T) {
	const good = "tri://10.0.0.1:1/api.Greeter?interface=api.Greeter"
	z := zookeeper(t, dubbo.Options{})
	g := registry.Group{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "api.Greeter"}
	for name, node := range map[string]string{
		"no URL":                    "garbage",
		"empty":                     "",
		"broken escapes":            "%ZZ%",
		"port 0":                    "tri%3A%2F%2F10.0.0.2%3A0%2Fapi.Greeter",
		"port 70000":                "tri%3A%2F%2F10.0.0.2%3A70000%2Fapi.Greeter",
		"no port":                   "tri%3A%2F%2F10.0.0.2%2Fapi.Greeter",
		"no protocol":               "%3A%2F%2F10.0.0.2%3A1%2Fapi.Greeter",
		"a consumer":                "consumer%3A%2F%2F10.0.0.2%3A1%2Fapi.Greeter",
		"a configurator":            "tri%3A%2F%2F10.0.0.2%3A1%2Fapi.Greeter%3Fcategory%3Dconfigurators",
		"another interface":         "tri%3A%2F%2F10.0.0.2%3A1%2Fapi.Other",
		"an invalid mark":           "tri%3A%2F%2F10.0.0.2%3A1%2Fapi.Greeter%3Fxdsb%3D%21",
		"more than 512 parameters":  "tri%3A%2F%2F10.0.0.2%3A1%2Fapi.Greeter%3F" + manyParams(),
		"an unspecified IP address": "tri%3A%2F%2F0.0.0.0%3A1%2Fapi.Greeter",
	} {
		t.Run(name, func(t *testing.T) {
			bad, _ := z.Entry(g, node, nil)
			services, failures := z.Decode([]registry.Entry{{Group: g, Key: "tri://10.0.0.1:1", Value: good}, bad}, nil)
			if len(services) != 1 || len(services[0].Endpoints) != 1 || services[0].Endpoints[0].Host != "10.0.0.1" {
				t.Errorf("the good one is lost: %s", render(services, failures))
			}
			if len(failures) != 1 || failures[0].Entry != bad || failures[0].Unwrap() == nil || len(failures[0].Error()) > 3*len(bad.Key)+400 {
				t.Errorf("failures: %v", failures)
			}
		})
	}
}

func manyParams() string {
	var b strings.Builder
	for i := range 600 {
		b.WriteString("k" + strings.Repeat("x", i) + "%3D1%26")
	}
	return b.String()
}

func TestDecode_ProviderURLs(t *testing.T) {
	z := zookeeper(t, dubbo.Options{})
	g := registry.Group{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "api.Greeter"}
	for name, tt := range map[string]struct {
		url  string
		want registry.Endpoint
	}{
		"no query":                {"dubbo://10.0.0.1:20880/api.Greeter", registry.Endpoint{Host: "10.0.0.1", Port: 20880, Protocol: "dubbo", Weight: 100}},
		"no path":                 {"dubbo://10.0.0.1:20880?interface=api.Greeter", registry.Endpoint{Host: "10.0.0.1", Port: 20880, Protocol: "dubbo", Weight: 100}},
		"IPv6 in brackets":        {"tri://[2001:db8::1]:20880/api.Greeter", registry.Endpoint{Host: "2001:db8::1", Port: 20880, Protocol: "tri", Weight: 100}},
		"IPv6 as Java accepts it": {"tri://2001:db8::1:20880/api.Greeter", registry.Endpoint{Host: "2001:db8::1", Port: 20880, Protocol: "tri", Weight: 100}},
		"a host name":             {"tri://greeter-0.example.com:1/api.Greeter", registry.Endpoint{Host: "greeter-0.example.com", Port: 1, Protocol: "tri", Weight: 100}},
		"enabled=false":           {"tri://10.0.0.1:1/api.Greeter?enabled=false", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: 100, Health: registry.Disabled}},
		"a weight":                {"tri://10.0.0.1:1/api.Greeter?weight=200", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: 200}},
		"dubbo-go's weight 0":     {"tri://10.0.0.1:1/api.Greeter?weight=0&release=dubbo-golang-3.3.2", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: 100}},
		"a weight of 0":           {"tri://10.0.0.1:1/api.Greeter?weight=0&release=3.3.5", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", ZeroWeight: true}},
		"disabled=true":           {"tri://10.0.0.1:1/api.Greeter?disabled=true", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: 100, Health: registry.Disabled}},
		"disabled=false":          {"tri://10.0.0.1:1/api.Greeter?disabled=false", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: 100}},
		"a path":                  {"rest://10.0.0.1:1/api/x.Rest?interface=api.Greeter", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "rest", Weight: 100, URLPath: "api/x.Rest"}},
		"a path after slashes":    {"tri://10.0.0.1:1//api.Greeter", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: 100}},
		"a weight that is none":   {"tri://10.0.0.1:1/api.Greeter?weight=99999999999", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri"}},
		"a password is dropped":   {"tri://u:p@10.0.0.1:1/api.Greeter", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: 100}},
		"empty parameters":        {"tri://10.0.0.1:1/api.Greeter?a=&=b&c&&", registry.Endpoint{Host: "10.0.0.1", Port: 1, Protocol: "tri", Weight: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			services, failures := z.Decode([]registry.Entry{{Group: g, Key: "k", Value: tt.url}}, nil)
			if len(failures) != 0 || len(services) != 1 {
				t.Fatalf("Decode(%s) = %s, want one service", tt.url, render(services, failures))
			}
			services[0].Attributes = nil
			if got := services[0].Endpoints[0]; !got.Equal(tt.want) {
				t.Errorf("Decode(%s) = %+v, want %+v", tt.url, got, tt.want)
			}
		})
	}
}

// TestDecode_Defaults shows that default.version is used if there is no version, like in
// consumers of Dubbo.
func TestDecode_Defaults(t *testing.T) {
	const defaults = "default.version=1.0.0&default.group=blue&default.weight=50&default.timeout=3000&default.dubbo.tag=gray"
	for name, tt := range map[string]struct{ query, key, service, endpoint string }{
		"of the provider": {
			defaults, "tri://10.0.0.1:1?group=blue&version=1.0.0", "providers:api.Greeter:1.0.0:blue",
			"weight=50 map[dubbo.tag:gray timeout:3000]",
		},
		"of the service itself": {
			defaults + "&version=2.0.0&group=red&weight=70&timeout=100&dubbo.tag=t", "tri://10.0.0.1:1?group=red&version=2.0.0",
			"providers:api.Greeter:2.0.0:red", "weight=70 map[dubbo.tag:t timeout:100]",
		},
		"empty ones of the service": {
			"version=&group=&timeout=&weight=&dubbo.tag=&" + defaults, "tri://10.0.0.1:1?group=blue&version=1.0.0", "providers:api.Greeter:1.0.0:blue",
			"weight=50 map[dubbo.tag:gray timeout:3000]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			z := zookeeper(t, dubbo.Options{})
			g := registry.Group{Kind: dubbo.Kind, Namespace: "/dubbo", Name: "api.Greeter"}
			e, _ := z.Entry(g, url.QueryEscape("tri://10.0.0.1:1/api.Greeter?"+tt.query), nil)
			if e.Key != tt.key {
				t.Errorf("key = %q, want %q", e.Key, tt.key)
			}
			in := metadata.NacosInstance{IP: "10.0.0.1", Port: 1, Weight: 1, Healthy: true, Enabled: true, Metadata: map[string]string{"protocol": "tri", "path": "api.Greeter"}}
			for pair := range strings.SplitSeq(tt.query, "&") {
				k, v, _ := strings.Cut(pair, "=")
				in.Metadata[k] = v
			}
			n := registry.Entry{Group: registry.Group{Kind: dubbo.Kind, Group: "DEFAULT_GROUP", Name: tt.service}, Key: "k", Value: in.String()}
			for _, c := range []struct {
				codec metadata.Codec
				entry registry.Entry
			}{{z, e}, {nacos(t, dubbo.Options{}), n}} {
				services, failures := c.codec.Decode([]registry.Entry{c.entry}, nil)
				if len(failures) != 0 || len(services) != 1 || metadata.KeyOf(services[0].Interfaces[0]).String() != tt.service {
					t.Fatalf("Decode = %s, want %s", render(services, failures), tt.service)
				}
				s := services[0]
				if got := fmt.Sprintf("weight=%d %v", s.Endpoints[0].Weight, map[string]string(s.Attributes)); got != tt.endpoint {
					t.Errorf("Decode = %s, want %s", got, tt.endpoint)
				}
			}
		})
	}
}

// TestEncode_DefaultPrefix shows that a key that consumers would interpret is left out.
func TestEncode_DefaultPrefix(t *testing.T) {
	s := greeter()
	s.Attributes["default.version"] = "9"
	for name, c := range map[string]metadata.Codec{"zookeeper": zookeeper(t, marked()), "nacos": nacos(t, marked()), "application": zookeeperApp(t, marked())} {
		t.Run(name, func(t *testing.T) {
			if got := text(encode(t, c, s)); strings.Contains(got, "default.version") {
				t.Errorf("written: %s", got)
			}
			if err := leftOut(c, s); err == nil || !strings.Contains(err.Error(), "default.version") {
				t.Errorf("left out: %v", err)
			}
		})
	}
}

func TestDecode_Tag(t *testing.T) {
	z := zookeeper(t, dubbo.Options{})
	services, failures := z.Decode(zookeeperEntries(t, z, "zk-java335-all-local-version-group"), nil)
	if len(failures) != 0 || len(services) != 1 || services[0].Attributes["dubbo.tag"] != "gray" {
		t.Fatalf("Decode = %s, want one service with dubbo.tag gray", render(services, failures))
	}
	if got := text(encode(t, z, services[0])); got != "" {
		t.Errorf("Encode = %s, want nothing", got)
	}
	if err := leftOut(z, services[0]); err == nil || !strings.Contains(err.Error(), "tags: true") {
		t.Errorf("left out: %v", err)
	}
	if got := text(encode(t, zookeeper(t, dubbo.Options{Tags: true}), services[0])); !strings.Contains(got, "dubbo.tag=gray") {
		t.Errorf("not written: %s", got)
	}
}

func TestNacosInstances(t *testing.T) {
	n := nacos(t, dubbo.Options{})
	g := registry.Group{Kind: dubbo.Kind, Group: "DEFAULT_GROUP", Name: "providers:api.Greeter::"}
	const good = `{"ip":"10.0.0.1","port":1,"weight":1,"enabled":true,"healthy":true,"metadata":{"protocol":"tri","path":"/api.Greeter"}}`
	for name, tt := range map[string]struct {
		value  string
		health registry.Health
		fails  bool
	}{
		"a good one":            {value: good, health: registry.Healthy},
		"not healthy":           {value: strings.Replace(good, `"healthy":true`, `"healthy":false`, 1), health: registry.Unhealthy},
		"not enabled":           {value: strings.Replace(good, `"enabled":true`, `"enabled":false`, 1), health: registry.Disabled},
		"no protocol":           {value: strings.Replace(good, `"protocol":"tri",`, "", 1), fails: true},
		"port 0":                {value: strings.Replace(good, `"port":1`, `"port":0`, 1), fails: true},
		"port 70000":            {value: strings.Replace(good, `"port":1`, `"port":70000`, 1), fails: true},
		"no JSON":               {value: "[", fails: true},
		"another service's key": {value: strings.Replace(good, "/api.Greeter", "/api.Other", 1), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			services, failures := n.Decode([]registry.Entry{{Group: g, Key: "k", Value: tt.value}}, nil)
			if tt.fails {
				if len(failures) != 1 || len(services) != 0 {
					t.Errorf("Decode(%s) = %s, want one error", tt.value, render(services, failures))
				}
				return
			}
			if len(failures) != 0 || len(services) != 1 || services[0].Endpoints[0].Health != tt.health {
				t.Errorf("Decode(%s) = %s, want health %s", tt.value, render(services, failures), tt.health)
			}
		})
	}
}
