package metadata_test

import (
	"errors"
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
			"a host name":          func(i *metadata.NacosInstance) { i.IP = "a.example" },
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
