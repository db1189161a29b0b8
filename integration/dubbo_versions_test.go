package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// dubboVersions are the applications with which providers and consumers of each generation of Java Dubbo are tried.
func dubboVersions() []string {
	return []string{harness.Dubbo26, harness.Dubbo27, harness.Dubbo32, harness.Dubbo33}
}

// A dubboKey is how a provider says its version and group, and how a consumer names them.
type dubboKey struct{ provider, consumer []string }

// dubboKeys are those of one version of Dubbo. Before 2.7.9 Dubbo wrote what a provider sets for all its services under
// keys with the prefix "default.".
func dubboKeys(version string) []dubboKey {
	keys := []dubboKey{
		{provider: []string{"version=1.0.0", "group=" + version}, consumer: []string{"version=1.0.0", "group=" + version}},
		{provider: []string{"group=only-" + version}, consumer: []string{"group=only-" + version}},
	}
	if version == harness.Dubbo26 || version == harness.Dubbo27 {
		keys = append(keys, dubboKey{
			provider: []string{"default.version=2.0.0", "default.group=" + version},
			consumer: []string{"version=2.0.0", "group=" + version},
		})
	}
	return keys
}

// TestDubbo_Versions: providers of each generation of Java Dubbo register in ZooKeeper and in Nacos. Consumers of each
// generation make the same calls there as at the copies of both in another ZooKeeper and another Nacos.
// Consumers of 2.6 find no provider of a later version in Nacos that has an empty version or group, as without a bridge.
func TestDubbo_Versions(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for _, version := range harness.NacosVersions() {
		t.Run(fmt.Sprintf("Nacos %d", version), func(t *testing.T) {
			t.Parallel()
			// Dubbo 2.6 makes one connection to an address, whatever the namespace: the copy has a server of its own.
			nacos, copied := harness.SharedNacos(t, version), harness.StartNacos(t, harness.NacosOptions{Version: version})
			zookeeper, copies := harness.StartZooKeeper(t), harness.StartZooKeeper(t)
			bridge := harness.ConfiguredBridge(t, dubboCopies(zookeeper, copies, nacos, copied))
			bridge.Start(t)
			bridge.AwaitReady(t)
			applications := make(map[string]*harness.Dubbo)
			calls := dubboCalls{sources: []string{"zookeeper://" + zookeeper.Address, nacos.Java()}}
			calls.copies = []string{"zookeeper://" + copies.Address, copied.Java()}
			for _, v := range dubboVersions() {
				applications[v] = harness.StartDubboOf(t, v)
				calls.provide(t, applications[v], v)
			}
			for _, v := range dubboVersions() {
				t.Run("a consumer of "+v, func(t *testing.T) { calls.make(t, applications[v]) })
			}
		})
	}
}

func dubboCopies(zookeeper, copies *harness.ZooKeeper, nacos, copied *harness.Nacos) string {
	return fmt.Sprintf(`owner: integration
registries:
  zk: { zookeeper: { servers: [%q] } }
  zk2: { zookeeper: { servers: [%q] } }
  nacos: { nacos: { %s } }
  nacos2: { nacos: { %s } }
bridges:
  - { name: zk-zk2, from: zk, to: zk2, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] } }
  - { name: zk-nacos2, from: zk, to: nacos2, formats: [{ format: dubbo-interface, legacyNames: true }], select: { allow: [127.0.0.0/8] } }
  - { name: nacos-zk2, from: nacos, to: zk2, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] } }
  - { name: nacos-nacos2, from: nacos, to: nacos2, formats: [{ format: dubbo-interface, legacyNames: true }], select: { allow: [127.0.0.0/8] } }`,
		zookeeper.Address, copies.Address, nacos.Settings(), copied.Settings())
}

// dubboCalls are what consumers of all versions call, each by the port of its provider.
type dubboCalls struct {
	sources, copies []string // registries, as Java Dubbo knows them
	provided        []dubboProvider
}

type dubboProvider struct {
	source string
	key    dubboKey
	port   int
}

// provide starts the providers of an application in each source.
func (c *dubboCalls) provide(t *testing.T, application *harness.Dubbo, version string) {
	t.Helper()
	for i, source := range c.sources {
		for _, key := range dubboKeys(version) {
			key = key.in(i)
			port := application.Provide(t, "dubbo", append([]string{"registry=" + source}, key.provider...)...)
			c.provided = append(c.provided, dubboProvider{source, key, port})
		}
	}
}

// in returns the key with another group for each source.
func (k dubboKey) in(source int) dubboKey {
	suffix := fmt.Sprintf("-%d", source)
	named := func(settings []string) []string {
		out := make([]string, len(settings))
		for i, s := range settings {
			out[i] = s
			if name, _, _ := strings.Cut(s, "="); strings.HasSuffix(name, "group") {
				out[i] += suffix
			}
		}
		return out
	}
	return dubboKey{named(k.provider), named(k.consumer)}
}

// make has an application call each provider at its source and, if that succeeds, at both copies.
func (c *dubboCalls) make(t *testing.T, application *harness.Dubbo) {
	for i, p := range c.provided {
		refer := func(at int, registry string) harness.Consumer {
			return application.ReferAt(t, fmt.Sprintf("c%d-%d", i, at), registry, p.key.consumer...)
		}
		consumer := refer(0, p.source)
		if port, err := firstAnswer(t, consumer); err != nil {
			t.Logf("%v is not found at its source %s: %v", p.key.consumer, p.source, err)
			continue
		} else if port != p.port {
			t.Fatalf("%v is answered at its source by port %d, want %d", p.key.consumer, port, p.port)
		}
		consumer.Stop(t)
		for j, registry := range c.copies {
			consumer := refer(j+1, registry)
			consumer.AwaitOnly(t, time.Minute, p.port)
			consumer.Stop(t)
		}
	}
}

// firstAnswer calls until a call succeeds, for so long as a consumer may need to read its registry.
func firstAnswer(t *testing.T, c harness.Consumer) (port int, err error) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if port, err = c.Call(t); err == nil {
			return port, nil
		}
	}
	return 0, err
}
