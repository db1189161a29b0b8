package metadata_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
)

func instance(tune func(*metadata.NacosInstance)) metadata.NacosInstance {
	i := metadata.NacosInstance{
		IP: "10.0.0.1", Port: 20000, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
		Metadata: map[string]string{"protocol": "tri"},
	}
	tune(&i)
	return i
}

func TestNacosInstance(t *testing.T) {
	t.Run("the canonical form stays the same when it is read and written again", func(t *testing.T) {
		for _, text := range []string{"", "a b", "<&>", "\xff\xfe", "\x00", "\u2028", "😀", `"\`, "日本"} {
			i := instance(func(i *metadata.NacosInstance) { i.Metadata = map[string]string{"k" + text: text} })
			once := i.String()
			again, err := metadata.ParseNacosInstance(once)
			if err != nil || again.String() != once {
				t.Errorf("%q: %s\nthen %s, %v", text, once, again, err)
			}
		}
	})
	t.Run("what a server refuses is found beforehand", func(t *testing.T) {
		for name, tune := range map[string]func(*metadata.NacosInstance){
			"an invalid host name": func(i *metadata.NacosInstance) { i.IP = "a example" },
			"a broken IP address":  func(i *metadata.NacosInstance) { i.IP = "10.0.0.256" },
			"a name of 130 bytes":  func(i *metadata.NacosInstance) { i.IP = strings.Repeat("a.", 60) + "example.io" },
			"an address with zone": func(i *metadata.NacosInstance) { i.IP = "fe80::1%eth0" },
			"port 0":               func(i *metadata.NacosInstance) { i.Port = 0 },
			"a negative weight":    func(i *metadata.NacosInstance) { i.Weight = -1 },
			"a cluster with dots":  func(i *metadata.NacosInstance) { i.Cluster = "a.b" },
			"metadata of 64 kB":    func(i *metadata.NacosInstance) { i.Metadata["x"] = strings.Repeat("x", 64<<10) },
		} {
			if err := instance(tune).Check(); !errors.Is(err, metadata.ErrNacosLimit) {
				t.Errorf("%s: %v", name, err)
			}
		}
		full := instance(func(i *metadata.NacosInstance) {
			i.Metadata["x"] = strings.Repeat("x", metadata.MaxNacosMetadata-metadata.SizeOf(i.Metadata)-1)
		})
		if err := full.Check(); err != nil {
			t.Errorf("metadata of exactly the limit: %v", err)
		}
		if err := instance(func(i *metadata.NacosInstance) { i.IP = "app.example.com" }).Check(); err != nil {
			t.Errorf("a host name: %v", err)
		}
	})
	t.Run("names of services, groups and namespaces", func(t *testing.T) {
		for name, tt := range map[string]struct {
			namespace, group, service string
			ok                        bool
		}{
			"colons":                   {"", "DEFAULT_GROUP", "providers:api.Greeter:1.0:blue", true},
			"a dollar":                 {"dev_1", "a.b:c-d", "providers:A$B::", true},
			"no name":                  {"", "DEFAULT_GROUP", "", false},
			"no group":                 {"", "", "a", false},
			"a group in a name":        {"", "DEFAULT_GROUP", "a@@b", false},
			"a group with a dollar":    {"", "A$B", "a", false},
			"a namespace with a slash": {"a/b", "DEFAULT_GROUP", "a", false},
			"600 letters":              {"", "DEFAULT_GROUP", strings.Repeat("a", 600), false},
			"a line break":             {"", "DEFAULT_GROUP", "a\nb", false},
		} {
			if err := metadata.CheckNacosService(tt.namespace, tt.group, tt.service); (err == nil) != tt.ok {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// FuzzNacosInstance shows that instances in any form are parsed and written like
// encoding/json parses and writes them.
func FuzzNacosInstance(f *testing.F) {
	for _, text := range []string{
		`{"ip":"10.0.0.1","port":20000,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"a":"1","b":""}}`,
		`{"ip":"::1","port":65535,"weight":10000,"healthy":false,"enabled":true,"ephemeral":false,"clusterName":"blue","metadata":{}}`,
		`{"ip":"10.0.0.1","port":1,"weight":0.5,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"b":"1","a":"2"}}`,
		`{"ip":"10.0.0.1","port":1,"weight":-0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"a":"\u00e9","k":"<\",\">"}}`,
		`{"ip":"10.0.0.1","port":70000,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"a":"1","a":"2"}}`,
		`{"metadata":null}`,
		`{"ip":"a`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := metadata.ParseNacosInstance(text)
		var want metadata.NacosInstance
		wrong := json.Unmarshal([]byte(text), &want)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%v, want %v", err, wrong)
		}
		if err != nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if want.Cluster == "" {
			want.Cluster = metadata.DefaultNacosCluster
		}
		if want.Metadata == nil {
			want.Metadata = map[string]string{}
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(want); err != nil {
			t.Fatal(err)
		}
		if s := got.String() + "\n"; s != b.String() {
			t.Fatalf("%swant %s", s, b.String())
		}
	})
}
