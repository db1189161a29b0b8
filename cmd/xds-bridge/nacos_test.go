package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
)

// nacosWorld is a world whose bridge leads into a Nacos in this process.
type nacosWorld struct {
	*world
	nacos *nacosfake.Server
	at    string // its URL
}

func newNacosWorld(t *testing.T, user string) *nacosWorld {
	t.Helper()
	server := nacosfake.NewServer()
	server.User, server.Password = user, "secret"
	return serveNacos(t, server)
}

func serveNacos(t *testing.T, server *nacosfake.Server) *nacosWorld {
	t.Helper()
	w := &nacosWorld{world: newWorld(t), nacos: server}
	web, rpc := nacosPorts(t)
	w.at = "http://" + web.Addr().String()
	w.nacos.Serve(rpc, web)
	t.Cleanup(w.nacos.Close)
	return w
}

// nacosPorts listens on a free port and on the one 1000 above it.
func nacosPorts(t *testing.T) (web, rpc net.Listener) {
	t.Helper()
	var config net.ListenConfig
	for range 100 {
		web, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := web.Addr().(*net.TCPAddr).Port
		if rpc, err := config.Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1000))); err == nil {
			return web, rpc
		}
		_ = web.Close()
	}
	t.Fatal("no two free ports, one 1000 above the other")
	return nil, nil
}

// conf writes a configuration with settings of the Nacos.
func (w *nacosWorld) conf(settings string) string {
	w.t.Helper()
	return w.file("nacos.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 50ms } } }
  nacos: { nacos: { servers: [%q] %s }, timing: { debounce: 1ms, retryMin: 10ms, retryMax: 100ms, refresh: 2s } }
bridges:
  - { name: mesh-to-nacos, from: mesh, to: nacos, formats: [dubbo-interface], guard: { settle: 0s, lastEndpoint: 0s, share: 1 } }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json, level: debug }
`, w.xds, strings.TrimPrefix(w.debug.URL, "http://"), w.at, settings, w.dir))
}

// source writes a configuration that reads the Nacos, with settings of it.
func (w *nacosWorld) source(settings string) string {
	w.t.Helper()
	return w.file("source.yaml", fmt.Sprintf(`owner: shop
registries:
  nacos: { nacos: { servers: [%q] %s } }
  zk: { zookeeper: { servers: [%q], timeout: 2s } }
bridges:
  - { name: nacos-to-zk, from: nacos, to: zk, formats: [dubbo-interface] }
admin: { address: "unix:%s/s" }
`, w.at, settings, w.zkAt, w.dir))
}

// login writes a password file and returns settings that name it.
func (w *nacosWorld) login(password string) string {
	return fmt.Sprintf(", username: nacos, passwordFile: %q", w.file("password", password+"\n"))
}

func nacosService(iface string) nacosfake.Service {
	return nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:" + iface + ":1.0:"}
}

// addresses returns who provides an interface, as everybody sees it.
func (w *nacosWorld) addresses(iface string) []string {
	var all []string
	for _, in := range w.nacos.Instances(nacosService(iface)) {
		all = append(all, in.Ip)
	}
	return all
}

func (w *nacosWorld) await(iface string, want ...string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%s is provided by %v and not by %v", iface, want, w.addresses(iface)), func() bool {
		return slices.Equal(w.addresses(iface), want)
	})
}

func statusOf(t *testing.T, file string) admin.Document {
	t.Helper()
	var d admin.Document
	r := do(t, "status", "-o", "json", "-f", file)
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatalf("%v\n%s%s", err, r.out, r.err)
	}
	return d
}

func TestNacos(t *testing.T) {
	t.Parallel()
	w := newNacosWorld(t, "nacos")
	file := w.conf(w.login("secret"))
	t.Run("run --once is refused with the reason", func(t *testing.T) {
		do(t, "run", "--once", "-f", file).want(t, exitUsage, "run --once into nacos", "when the connection of its publisher closes")
		if n := len(w.nacos.Requests("BatchInstanceRequest")); n != 0 {
			t.Errorf("%d batches were sent", n)
		}
	})
	t.Run("preflight logs in, lists and publishes for a moment", func(t *testing.T) {
		do(t, "preflight", "-f", file).want(t, exitOK, "√ login: as nacos", "√ list: 0 services", "√ write: an instance was registered and deregistered")
		eventually(t, "no connection is left", func() bool { return w.nacos.Connections() == 0 })
	})
	t.Run("preflight names a wrong password and a server that is away", func(t *testing.T) {
		patiently(t, []string{"preflight", "-f", w.conf(w.login("wrong"))}, exitFindings, "× login", "check username and passwordFile")
		at := w.at
		w.at = "http://127.0.0.1:1"
		do(t, "preflight", "-f", w.conf(""), "--timeout", "2s").want(t, exitUnreachable, "× reachable", "grpcPort, by default 1000 above the HTTP port")
		w.at = at
	})
	file = w.conf(w.login("secret"))
	r := w.start(file)
	w.await("api.Orders", "10.0.0.1", "10.0.0.2")
	t.Run("an instance is what a Java consumer reads", func(t *testing.T) {
		for _, in := range w.nacos.Instances(nacosService("api.Orders")) {
			if !in.Ephemeral || !in.Enable || !in.Healthy || in.Weight != 1 || in.Port != 20880 || in.ClusterName != "DEFAULT" ||
				in.Metadata["protocol"] != "tri" || in.Metadata["path"] != "api.Orders" || in.Metadata["category"] != "providers" || in.Metadata["version"] != "1.0" {
				t.Errorf("%+v", in)
			}
		}
	})
	t.Run("what is pushed again and did not change is not written", func(t *testing.T) {
		eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
		before := len(w.nacos.Requests("BatchInstanceRequest"))
		w.offer(orders, "10.0.0.1", "10.0.0.2")
		w.offer(greeter, "10.0.1.1")
		time.Sleep(200 * time.Millisecond)
		if n := len(w.nacos.Requests("BatchInstanceRequest")); n != before {
			t.Errorf("%d batches", n-before)
		}
	})
	t.Run("status knows the connection and the login", func(t *testing.T) {
		d := statusOf(t, file)
		if len(d.Targets) != 1 || !d.Targets[0].Connected || d.Targets[0].Kind != "nacos" || d.Targets[0].Login == nil || d.Targets[0].Login.Expires.IsZero() {
			t.Errorf("%+v", d.Targets)
		}
		do(t, "status", "-f", file).want(t, exitOK, "connected to 127.0.0.1:", "as nacos")
	})
	t.Run("plan beside the bridge shows only what differs", func(t *testing.T) {
		do(t, "plan", "-f", file).want(t, exitOK, "2 are equal, but another connection of this owner stored them", "Nothing differs.")
		w.nacos.Fail(func(r nacosfake.Request) (int, string) {
			if r.Type == "BatchInstanceRequest" {
				return 500, "out of order"
			}
			return 0, ""
		})
		before := len(w.nacos.Requests("BatchInstanceRequest"))
		w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3")
		do(t, "plan", "-f", file).want(t, exitFindings, "2 are equal, but another connection of this owner stored them", "1 to create, 0 to update")
		eventually(t, "a refused batch", func() bool { return len(w.nacos.Requests("BatchInstanceRequest")) > before })
		w.offer(orders, "10.0.0.1", "10.0.0.2")
		eventually(t, "two of its entries claimed", func() bool { return statusOf(t, file).Loops[0].Bridges[0].Entries == 2 })
		w.nacos.Fail(nil)
		eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
	})
	t.Run("a lost connection is reported, and everything is published once more, once", func(t *testing.T) {
		before := len(w.nacos.Requests("BatchInstanceRequest"))
		w.nacos.Drop()
		eventually(t, "connected again", func() bool { s := statusOf(t, file); return s.Targets[0].Reconnects == 1 && s.InSync })
		w.await("api.Orders", "10.0.0.1", "10.0.0.2")
		if n := len(w.nacos.Requests("BatchInstanceRequest")) - before; n != 1 {
			t.Errorf("%d batches for one service", n)
		}
	})
	t.Run("metrics count connections, logins and what was lost", func(t *testing.T) {
		_, body := r.probe(t, "/metrics")
		for _, want := range []string{
			`xdsbridge_registry_up{direction="target",kind="nacos",listen="",registry="nacos"} 1`,
			`xdsbridge_registry_reconnects_total{direction="target",kind="nacos",listen="",registry="nacos"} 1`,
			`xdsbridge_sessions_lost_total{registry="nacos"} 1`,
			`xdsbridge_logins_total{registry="nacos",result="ok"} 1`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("no %s", want)
			}
		}
	})
	t.Run("a restart publishes each service once, byte for byte as before", func(t *testing.T) {
		all := w.nacos.Requests("BatchInstanceRequest")
		before := batchOf(t, all[len(all)-1])
		if code := r.stop(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		w.await("api.Orders")
		w.start(file)
		w.await("api.Orders", "10.0.0.1", "10.0.0.2")
		eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
		now := w.nacos.Requests("BatchInstanceRequest")
		if n := len(now) - len(all); n != 1 || batchOf(t, now[len(now)-1]) != before {
			t.Errorf("%d batches, the last:\n%s\nbefore:\n%s", n, batchOf(t, now[len(now)-1]), before)
		}
	})
}

// batchOf returns the instances of a batch as they were sent.
func batchOf(t *testing.T, r nacosfake.Request) string {
	t.Helper()
	var b struct{ Instances json.RawMessage }
	if err := json.Unmarshal(r.Body, &b); err != nil {
		t.Fatal(err)
	}
	return string(b.Instances)
}

// TestNacosBadInput has one service that is invalid next to one
// that must not notice.
func TestNacosBadInput(t *testing.T) {
	t.Parallel()
	const pay = "pay.shop.svc.cluster.local:20880"
	for name, tt := range map[string]struct {
		code    int
		message string
		detail  string
	}{
		"metadata that the server refuses":             {400, "Param 'Metadata' is illegal, the param length should not exceed 1024.", "exceed 1024"},
		"a name that the server refuses":               {400, "Param 'serviceName' is illegal.", "serviceName"},
		"an instance of the other kind":                {400, "Current service DEFAULT_GROUP@@x is persistent service, can't register ephemeral instance.", "is persistent service"},
		"a service that our user may not write":        {403, "authorization failed!", "check username and passwordFile"},
		"a server that is over its threshold for this": {503, "over threshold", "over threshold"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newNacosWorld(t, "")
			w.offer(pay, "10.0.2.1")
			w.publish(map[string]string{"providers:api.Orders:1.0:": orders, "providers:api.Pay:1.0:": pay})
			file := w.conf("")
			w.start(file)
			w.await("api.Pay", "10.0.2.1")
			w.await("api.Orders", "10.0.0.1", "10.0.0.2")
			eventually(t, "in sync", func() bool { return statusOf(t, file).InSync })
			w.nacos.Fail(func(r nacosfake.Request) (int, string) {
				if strings.Contains(string(r.Body), "api.Pay") && r.Type == "BatchInstanceRequest" {
					return tt.code, tt.message
				}
				return 0, ""
			})
			w.offer(pay, "10.0.2.1", "10.0.2.2")
			w.offer(orders, "10.0.0.2", "10.0.0.3")
			w.await("api.Orders", "10.0.0.2", "10.0.0.3")
			eventually(t, "the service is marked", func() bool {
				bad, good := "", false
				for _, s := range statusOf(t, file).Loops[0].Services {
					if strings.HasPrefix(string(s.Service), "pay.") {
						bad = s.Detail + s.LastError
						good = good || s.Reason == "synced"
					} else if s.Reason != "synced" {
						return false
					}
				}
				return !good && strings.Contains(bad, tt.detail) && !strings.Contains(bad, "\n")
			})
			if got := w.addresses("api.Pay"); !slices.Equal(got, []string{"10.0.2.1"}) {
				t.Errorf("the service that went wrong holds %v, want what it held", got)
			}
			if n := len(w.nacos.Requests("InstanceRequest")); n != 0 {
				t.Errorf("%d requests that withdraw something", n)
			}
			w.nacos.Fail(nil)
			w.await("api.Pay", "10.0.2.1", "10.0.2.2")
		})
	}
}

func TestNacosAccess(t *testing.T) {
	t.Parallel()
	foreign := model.Instance{Ip: "10.9.9.9", Port: 20880, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, ClusterName: "DEFAULT"}
	t.Run("a wrong password is one clear line, and mending the file is enough", func(t *testing.T) {
		t.Parallel()
		w := newNacosWorld(t, "nacos")
		w.nacos.Set(nacosService("api.Orders"), "app", foreign)
		file := w.conf(w.login("wrong"))
		r := w.start(file)
		eventually(t, "reported by status", func() bool {
			s := do(t, "status", "-f", file)
			return s.code != exitOK && strings.Contains(s.out, `nacos login as "nacos"`) && strings.Contains(s.out, "check username and passwordFile")
		})
		if strings.Contains(r.log.String(), "wrong") {
			t.Error("the password is in the log")
		}
		w.await("api.Orders", "10.9.9.9")
		w.login("secret")
		w.await("api.Orders", "10.0.0.1", "10.0.0.2", "10.9.9.9")
	})
	t.Run("tokens that expire or are revoked never interrupt", func(t *testing.T) {
		t.Parallel()
		w := newNacosWorld(t, "nacos")
		w.nacos.TokenTTL = 2 * time.Second
		file := w.conf(w.login("secret"))
		w.start(file)
		for i := range 6 {
			want := []string{"10.0.0.1", fmt.Sprintf("10.0.1.%d", i)}
			w.offer(orders, want...)
			w.await("api.Orders", want...)
			if i%2 == 1 {
				w.nacos.Revoke()
			}
			time.Sleep(500 * time.Millisecond)
		}
		eventually(t, "no error is left", func() bool { return statusOf(t, file).Loops[0].LastError == "" })
	})
	t.Run("a namespace that our user may not touch is one clear line, and nothing is deleted", func(t *testing.T) {
		t.Parallel()
		w := newNacosWorld(t, "")
		w.nacos.Fail(func(r nacosfake.Request) (int, string) {
			if strings.Contains(string(r.Body), `"namespace":"theirs"`) {
				return 403, "authorization failed!"
			}
			return 0, ""
		})
		file := w.conf(", namespace: theirs")
		w.start(file)
		eventually(t, "reported by status", func() bool {
			s := do(t, "status", "-f", file)
			return s.code != exitOK && strings.Contains(s.out, `list namespace "theirs"`) && strings.Contains(s.out, "permission for the namespace")
		})
		do(t, "preflight", "-f", file, "--timeout", "3m").want(t, exitFindings, "× list", "allow anonymous clients to read the namespace theirs")
		if n := len(w.nacos.Requests("BatchInstanceRequest")); n != 1 { // preflight's own
			t.Errorf("%d batches", n)
		}
	})
}

// TestNacos_Replaced shows that a typo in the servers is
// refused, and removes nothing.
func TestNacos_Replaced(t *testing.T) {
	t.Parallel()
	w, other := newNacosWorld(t, ""), newNacosWorld(t, "")
	file := w.conf("")
	w.start(file)
	w.await("api.Orders", "10.0.0.1", "10.0.0.2")
	isInSync(t, file)
	w.replaced(file, w.at, other.at)
	do(t, "reload", "-f", file).want(t, exitUsage, "registries.nacos.nacos.servers: changes from", "another registry", "restart the bridge with it")
	w.await("api.Orders", "10.0.0.1", "10.0.0.2")
}

// TestNacos_Reconnect shows that a connection whose end went from the file
// stays with all that it published, and is the one that a bridge uses that leads
// there again; and that another registry under that name is not mistaken for it.
func TestNacos_Reconnect(t *testing.T) {
	t.Parallel()
	w, other := newNacosWorld(t, ""), newNacosWorld(t, "")
	file := w.conf("")
	with, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var without strings.Builder
	for line := range strings.Lines(string(with)) {
		switch {
		case strings.HasPrefix(line, "  nacos:"):
			fmt.Fprintf(&without, "  zk: { zookeeper: { servers: [%q] } }\n", w.zkAt)
		case strings.Contains(line, "mesh-to-nacos"):
			without.WriteString("  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface] }\n")
		default:
			without.WriteString(line)
		}
	}
	r := w.start(file)
	w.await("api.Orders", "10.0.0.1", "10.0.0.2")
	isInSync(t, file)
	batches := len(w.nacos.Requests("BatchInstanceRequest"))
	w.file("nacos.yaml", without.String())
	do(t, "reload", "-f", file).want(t, exitOK, "target nacos: ended; its entries stay")
	w.file("nacos.yaml", strings.Replace(string(with), w.at, other.at, 1))
	do(t, "reload", "-f", file).want(t, exitUsage, "registries.nacos.nacos.servers: changes from", "restart the bridge with it")
	w.file("nacos.yaml", string(with))
	do(t, "reload", "-f", file).want(t, exitOK, "target nacos: begun")
	isInSync(t, file)
	if n := len(w.nacos.Requests("BatchInstanceRequest")) - batches; n != 0 {
		t.Errorf("%d batches though nothing changed: it is written over another connection", n)
	}
	w.offer(orders, "10.0.0.1", "10.0.0.7")
	w.await("api.Orders", "10.0.0.1", "10.0.0.7")
	isInSync(t, file)
	if _, metrics := r.probe(t, "/metrics"); !strings.Contains(metrics, `xdsbridge_registry_up{direction="target",kind="nacos",listen="",registry="nacos"} 1`) {
		t.Error("metrics do not show the connection")
	}
}
