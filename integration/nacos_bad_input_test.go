package integration_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// intoNacos is a bridge from a ZooKeeper of its own into a Nacos.
type intoNacos struct {
	znodes *harness.Znodes
	bridge *harness.Bridge
	reader *nacos.Target
}

// newIntoNacos starts one with settings of the Nacos.
func newIntoNacos(t *testing.T, reader nacos.Options, settings string) *intoNacos {
	t.Helper()
	zookeeper := harness.StartZooKeeper(t)
	b := &intoNacos{znodes: harness.Connect(t, zookeeper.Address)}
	b.reader, _ = nacosTarget(t, reader)
	b.bridge = harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  zk: { zookeeper: { servers: [%q] } }
  nacos: { nacos: { servers: [%q] %s }, timing: { refresh: 2s } }
bridges:
  - { name: zk-to-nacos, from: zk, to: nacos, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }`,
		zookeeper.Address, reader.Servers[0], settings, harness.Swift))
	return b
}

// holds waits until an interface has exactly these instances in Nacos.
func (b *intoNacos) holds(t *testing.T, iface string, keys ...string) {
	t.Helper()
	harness.Eventually(t, soon, iface+" in Nacos", func() error {
		return harness.Same(nacosKeys(t, b.reader, nacosGroup(iface)), keys)
	})
}

// marked waits until status shows an interface with a reason, and returns what
// it says in addition.
func (b *intoNacos) marked(t *testing.T, iface string, reasons ...string) string {
	t.Helper()
	said := ""
	harness.Eventually(t, soon, fmt.Sprintf("status shows %s as %v", iface, reasons), func() error {
		_, out, _ := b.bridge.Do(t, "status", "-o", "json")
		var d struct {
			Sources []struct {
				Skipped []struct{ Input, Reason string }
			}
			Loops []struct {
				Services []struct {
					Service, Reason, Detail string
					LastError               string `json:"last_error"`
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, s := range d.Sources {
			for _, in := range s.Skipped {
				if strings.Contains(in.Input, iface) && slices.Contains(reasons, "skipped") {
					said = in.Reason
					return nil
				}
			}
		}
		for _, l := range d.Loops {
			for _, s := range l.Services {
				if !strings.Contains(s.Service, iface) {
					continue
				}
				if slices.Contains(reasons, s.Reason) {
					said = s.Detail + s.LastError
					return nil
				}
				return fmt.Errorf("it is %+v", s)
			}
		}
		return fmt.Errorf("it is not in %s", out)
	})
	if strings.Contains(said, "\n") {
		t.Errorf("%s: more than one line: %q", iface, said)
	}
	return said
}

// says waits until status reports a fault in one line that holds all words.
func (b *intoNacos) says(t *testing.T, words ...string) {
	t.Helper()
	harness.Eventually(t, soon, fmt.Sprintf("status says %q", words), func() error {
		code, out, _ := b.bridge.Do(t, "status")
		for line := range strings.Lines(out) {
			found := true
			for _, w := range words {
				found = found && strings.Contains(line, w)
			}
			if found && code != 0 {
				return nil
			}
		}
		return fmt.Errorf("%d: %s", code, out)
	})
}

// nacosGetsBadInput has services that a server refuses next to one that must
// not notice.
func nacosGetsBadInput(t *testing.T, server *harness.Nacos) {
	t.Helper()
	b := newIntoNacos(t, nacos.Options{Servers: []string{server.URL}}, "")
	provide := func(iface string, port int) { b.znodes.Create(t, registered(iface, port), "") }
	persistent(t, server, nacosGroup("bad.Kind").Name)
	provide("bad.Kind", 20001)
	b.znodes.Create(t, "/dubbo/"+url.QueryEscape("bad.日本")+"/providers/"+url.QueryEscape("tri://127.0.0.1:20002/bad.日本?interface=bad.日本&side=provider"), "")
	provide("bad."+strings.Repeat("x", 600), 20003)
	provide("bad.Good", 20004)
	b.bridge.Start(t)
	b.holds(t, "bad.Good", "127.0.0.1:20004")
	t.Run("an instance of the other kind marks its service, and what is there stays", func(t *testing.T) {
		if said := b.marked(t, "bad.Kind", "refused"); !strings.Contains(said, "persistent") {
			t.Errorf("it says %q", said)
		}
		b.holds(t, "bad.Kind", "10.8.8.8:20000")
	})
	t.Run("a name that no server accepts marks its service", func(t *testing.T) {
		for _, iface := range []string{"bad.日本", "xxxxxx"} {
			if said := b.marked(t, iface, "skipped", "unwritable", "refused"); said == "" {
				t.Errorf("%s: no reason", iface)
			}
		}
	})
	t.Run("metadata over the limit is trimmed, and reported", func(t *testing.T) {
		long := strings.Replace(registered("bad.Long", 20005), "%26side", "%26zz%3D"+strings.Repeat("y", 2000)+"%26side", 1)
		b.znodes.Create(t, long, "")
		b.holds(t, "bad.Long", "127.0.0.1:20005")
		if said := b.marked(t, "bad.Long", "synced"); !strings.Contains(said, "zz") {
			t.Errorf("it says %q", said)
		}
	})
	t.Run("everything else continues", func(t *testing.T) {
		provide("bad.Good", 20006)
		b.holds(t, "bad.Good", "127.0.0.1:20004", "127.0.0.1:20006")
		b.marked(t, "bad.Good", "synced")
	})
	t.Run("the log does not repeat it with every attempt", func(t *testing.T) {
		lines := 0
		for line := range strings.Lines(b.bridge.Log()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "bad.Kind") {
				lines++
			}
		}
		if lines == 0 || lines > 5 {
			t.Errorf("%d lines about one service:\n%s", lines, b.bridge.Log())
		}
	})
	b.bridge.Stop(t)
}

// nacosLacksRights has bridges whose user may not do all they need, and one
// whose rights come back.
func nacosLacksRights(t *testing.T, server *harness.Nacos) {
	t.Helper()
	admin := nacosUser(server, harness.NacosUser, harness.NacosPassword)
	target, _ := nacosTarget(t, admin)
	foreign := nacosEntry(nacosGroup("rights.A"), 1, "another")
	if err := target.Write(t.Context(), nacosChange(foreign.Group, foreign)); err != nil {
		t.Fatal(err)
	}
	password := func(t *testing.T, text string) (file, setting string) {
		t.Helper()
		file = filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file, fmt.Sprintf("passwordFile: %q", file)
	}
	t.Run("a wrong password is one line, nothing is deleted, and mending the file is enough", func(t *testing.T) {
		file, setting := password(t, "not the password")
		b := newIntoNacos(t, admin, ", username: nacos, "+setting)
		b.znodes.Create(t, registered("rights.A", 20001), "")
		b.bridge.Start(t)
		b.says(t, `nacos login as "nacos"`) // what 2.2.4 answers is no HTTP, for lack of its console's module
		harness.Unchanged(t, "what is there", func() string { return fmt.Sprint(nacosKeys(t, b.reader, foreign.Group)) })
		if strings.Contains(b.bridge.Log(), "not the password") {
			t.Error("the password is in the log")
		}
		if err := os.WriteFile(file, []byte(harness.NacosPassword), 0o600); err != nil {
			t.Fatal(err)
		}
		b.holds(t, "rights.A", foreign.Key, "127.0.0.1:20001")
		b.bridge.Stop(t)
	})
	server.AddUser(t, "limited", "limited-password", "public")
	t.Run("a namespace that is another's is one line, and nothing is written", func(t *testing.T) {
		_, setting := password(t, "limited-password")
		b := newIntoNacos(t, admin, ", namespace: theirs, username: limited, "+setting)
		b.znodes.Create(t, registered("rights.B", 20001), "")
		b.bridge.Start(t)
		b.says(t, `list namespace "theirs"`, "permission for the namespace")
		b.bridge.Stop(t)
	})
	t.Run("a right that is revoked stops what depends on it, deletes nothing, and is used again once it is back", func(t *testing.T) {
		_, setting := password(t, "limited-password")
		b := newIntoNacos(t, admin, ", username: limited, "+setting)
		b.znodes.Create(t, registered("rights.C", 20001), "")
		b.bridge.Start(t)
		b.holds(t, "rights.C", "127.0.0.1:20001")
		server.Revoke(t, "limited", "public")
		limited, _ := nacosTarget(t, nacosUser(server, "limited", "limited-password"))
		harness.Eventually(t, 2*soon, "the server knows of it", func() error { // it loads its roles every 15 s
			if held, err := limited.Read(t.Context(), nacosGroup("rights.C")); err == nil {
				return fmt.Errorf("still read: %v", held)
			}
			return nil
		})
		b.znodes.Create(t, registered("rights.C", 20002), "")
		b.marked(t, "rights.C", "retrying", "refused", "unknown")
		harness.Unchanged(t, "what was published", func() string { return fmt.Sprint(nacosKeys(t, b.reader, nacosGroup("rights.C"))) })
		server.Grant(t, "limited", "public")
		harness.Eventually(t, 3*soon, "it is written once the right is back", func() error {
			return harness.Same(nacosKeys(t, b.reader, nacosGroup("rights.C")), []string{"127.0.0.1:20001", "127.0.0.1:20002"})
		})
		b.bridge.Stop(t)
	})
	t.Run("a token of a secret that is no more is replaced", func(t *testing.T) {
		logged, _ := nacosTarget(t, admin)
		g := nacosGroup("rights.D")
		if err := logged.Write(t.Context(), nacosChange(g, nacosEntry(g, 1, "me"))); err != nil {
			t.Fatal(err)
		}
		server.Kill()
		server.NewSecret(t)
		server.Start(t)
		harness.Eventually(t, 2*soon, "it is written with a new token", func() error {
			return logged.Write(t.Context(), nacosChange(g, nacosEntry(g, 1, "me")))
		})
		if held, err := logged.Read(t.Context(), g); err != nil || len(held) != 1 {
			t.Errorf("%v, %v", held, err)
		}
	})
}

// nacosHasTwoPublishers has two bridges that publish the same records, one of
// which is late: subscribers see the union of both, and never miss what both
// were reported.
func nacosHasTwoPublishers(t *testing.T, server *harness.Nacos) {
	t.Helper()
	zookeeper := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, zookeeper.Address)
	znodes.Create(t, registered("both.A", 20001), "")
	znodes.Create(t, registered("both.A", 20002), "")
	slow := harness.StartProxy(t, zookeeper.Address)
	const verify = 2 * time.Second
	replica := func(at string) *harness.Bridge {
		b := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  zk: { zookeeper: { servers: [%q], sessionTimeout: 4s } }
  nacos: { nacos: { servers: [%q] }, timing: { refresh: %s } }
bridges:
  - { name: zk-to-nacos, from: zk, to: nacos, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }`,
			at, server.URL, verify, harness.Swift))
		b.Start(t)
		b.AwaitReady(t)
		isInSync(t, b)
		return b
	}
	prompt, late := replica(zookeeper.Address), replica(slow.Address)
	reader, _ := nacosTarget(t, nacos.Options{Servers: []string{server.URL}})
	g := nacosGroup("both.A")
	sees := func(ports ...int) func() error {
		return func() error { return harness.Same(nacosKeys(t, reader, g), addresses(ports)) }
	}
	slow.BlackHole()
	znodes.Delete(t, registered("both.A", 20001))
	znodes.Create(t, registered("both.A", 20003), "")
	t.Run("while one does not know, the union is seen, and nothing is missing", func(t *testing.T) {
		harness.Eventually(t, soon, "the new one is there", sees(20001, 20002, 20003))
		harness.Stays(t, 2*verify, "the union", sees(20001, 20002, 20003))
	})
	t.Run("once both know, what was deleted is gone within the interval of verifying", func(t *testing.T) {
		slow.Heal()
		missing := make(map[string]bool)
		harness.Eventually(t, soon, "the late one is in sync", func() error {
			if err := sees(20002, 20003)(); err == nil {
				return nil
			}
			there := nacosKeys(t, reader, g)
			for _, key := range addresses([]int{20002, 20003}) {
				if !slices.Contains(there, key) {
					missing[key] = true
				}
			}
			return fmt.Errorf("there is %v", there)
		})
		if len(missing) > 0 {
			t.Errorf("missing meanwhile: %v", missing)
		}
		isInSync(t, prompt)
		isInSync(t, late)
		harness.Stays(t, 2*verify, "neither brings it back", sees(20002, 20003))
	})
	t.Run("a late one that comes back publishes nothing that is gone", func(t *testing.T) {
		late.Kill()
		znodes.Delete(t, registered("both.A", 20002))
		harness.Eventually(t, soon, "it is gone", sees(20003))
		late.Start(t)
		harness.Stays(t, 2*verify, "it stays gone", sees(20003))
	})
	prompt.Stop(t)
	late.Stop(t)
}
