package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

// lastReload returns how the last reload went, as status has it.
func lastReload(t *testing.T, file string) admin.Reload {
	t.Helper()
	if r := statusOf(t, file).Reload; r != nil {
		return *r
	}
	return admin.Reload{}
}

func isInSync(t *testing.T, file string) {
	t.Helper()
	eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
}

// TestReload_InvalidFile shows that everything that is wrong
// is reported, in all the places where a user looks.
func TestReload_InvalidFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	r := w.start(file)
	isInSync(t, file)
	w.config(fileOptions{bridge: quick + ", polcy: sync", file: "nonsense: 1\n"})
	do(t, "validate", "-f", file).want(t, exitUsage)
	do(t, "reload", "--admin", "unix:"+w.dir+"/a").want(t, exitUsage, `unknown key "polcy"`, `unknown key "nonsense"`, "the previous one remains in use")
	_, metrics := r.probe(t, "/metrics")
	for place, text := range map[string]string{"metrics": metrics, "log": r.log.String(), "events": do(t, "events", "--admin", "unix:"+w.dir+"/a").out} {
		want := map[string]string{"metrics": "xdsbridge_config_last_reload_successful 0", "log": `"level":"ERROR","msg":"configuration refused`, "events": "was refused"}[place]
		if !strings.Contains(text, want) {
			t.Errorf("%s do not report it: no %s", place, want)
		}
	}
	w.config(fileOptions{bridge: quick})
	if last := lastReload(t, file); last.OK || len(last.Errors) != 2 {
		t.Errorf("status: %+v", last)
	}
	do(t, "status", "-f", file).want(t, exitFindings, "process reload-refused", "was rejected", "polcy")
	w.offer(orders, "10.0.0.1", "10.0.0.7")
	eventually(t, "the old configuration still works", func() bool {
		return slices.ContainsFunc(w.providers("api.Orders"), func(n string) bool { return strings.Contains(n, "10.0.0.7") })
	})
	do(t, "reload", "-f", file).want(t, exitOK, "nothing differs")
	if _, metrics := r.probe(t, "/metrics"); !strings.Contains(metrics, "xdsbridge_config_last_reload_successful 1") {
		t.Error("a file that is good again is not reported")
	}
}

// TestReload_RestartsChanged shows for each kind of change which parts
// continue, by the connections that the servers see.
func TestReload_RestartsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	w.start(file)
	isInSync(t, file)
	eventually(t, "what was written is watched", func() bool { return len(w.zk.Sessions()) == 2 })
	untouched := w.touched()
	streams, sessions := w.mesh.Streams(), w.zk.Sessions()
	for _, step := range []struct {
		what    string
		options fileOptions
		changed []string
		streams int  // that are new
		anew    bool // sessions, instead of the old ones
	}{
		{"the guard and the log level", fileOptions{bridge: quick, file: "#"}, []string{"loop zk: guards and timing changed"}, 0, false},
		{"the selection of a bridge", fileOptions{bridge: quick + ", select: { exclude: [nobody] }"}, []string{"loop zk: restarted"}, 0, false},
		{"the name rules of a mesh", fileOptions{bridge: quick + ", select: { exclude: [nobody] }, names: [{ host: none, interface: api.None }]"}, []string{"source mesh: restarted", "loop zk: restarted"}, 1, false},
		{"the connection to ZooKeeper", fileOptions{bridge: quick, zk: ", sessionTimeout: 20s"}, []string{"source mesh: restarted", "target zk: connected anew"}, 1, true},
	} {
		t.Run(step.what, func(t *testing.T) {
			w.config(step.options)
			r := do(t, "reload", "-f", file)
			r.want(t, exitOK, step.changed...)
			if n := strings.Count(r.out, "\n"); n != len(step.changed) {
				t.Errorf("more than that changed: %s", r.out)
			}
			isInSync(t, file)
			streams += step.streams
			eventually(t, "one session that writes and one that watches, both new where the connection changed", func() bool {
				now := w.zk.Sessions()
				stay := slices.ContainsFunc(now, func(id int64) bool { return slices.Contains(sessions, id) })
				return len(now) == 2 && (step.anew && !stay || slices.Equal(now, sessions))
			})
			if sessions = w.zk.Sessions(); w.mesh.Streams() != streams {
				t.Errorf("%d streams to the mesh so far, want %d", w.mesh.Streams(), streams)
			}
			sameNodes(t, untouched, w.touched())
		})
	}
}

func TestReload_Triggers(t *testing.T) {
	w := newWorld(t)
	level := func(l string) string {
		return w.config(fileOptions{bridge: ", guard: { settle: " + l + " }", file: "reload: { interval: 20ms }\n"})
	}
	file := level("1s")
	w.start(file)
	isInSync(t, file)
	level("2s")
	eventually(t, "a change of the file is applied", func() bool { l := lastReload(t, file); return l.OK && l.Trigger == "file" })
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "SIGHUP", func() bool { return lastReload(t, file).Trigger == "signal" })
	do(t, "reload", "-f", file).want(t, exitOK, "nothing differs")
	if l := lastReload(t, file); l.Trigger != "request" {
		t.Errorf("%+v", l)
	}
}

// TestReload_DuringStart shows that a file which changes after it was
// read, and before anything runs, is read again.
func TestReload_DuringStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var file string
	write := func(settle string) {
		file = w.config(fileOptions{bridge: ", guard: { settle: " + settle + " }", file: "reload: { interval: 20ms }\naudit: { file: \"${TRAIL:-}\" }\n"})
	}
	write("1s")
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	log, done := &buffer{}, make(chan int, 1)
	go func() {
		c := newCLI(log, log, func(name string) (string, bool) {
			if name == "TRAIL" {
				once.Do(func() { write("2s") }) // as the kubelet does with a ConfigMap
			}
			return "", false
		}, nil)
		done <- execute(ctx, c, []string{"run", "-f", file})
	}()
	defer func() { cancel(); <-done }()
	eventually(t, "the bridge listens", func() bool { return strings.Contains(log.String(), `"listening"`) })
	eventually(t, "the file on disk is applied", func() bool { return lastReload(t, file).Trigger == "file" })
}

// TestReload_Sockets shows that a reload which is refused leaves no socket
// open, and that an address may be widened while it is listened at.
func TestReload_Sockets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	with := func(listen ...string) {
		lines := []string{fmt.Sprintf("  mesh2: { istiod: { address: %q, import: { keys: off } } }\nbridges:\n", w.xds)}
		for i, at := range listen {
			lines = append(lines, fmt.Sprintf("  - { name: in%d, from: zk, to: mesh2, listen: %q, formats: [dubbo-interface] }\n", i, at))
		}
		w.file("config.yaml", strings.Replace(string(text), "bridges:\n", strings.Join(lines, ""), 1))
	}
	at, busy := porttest.Address(t), listener(t)
	defer busy.Close()
	r := w.start(file)
	with(at, busy.Addr().String())
	do(t, "reload", "-f", file).want(t, exitUsage, "address already in use")
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at); err == nil {
		_ = conn.Close()
		t.Errorf("the reload was refused, and %s is open all the same: who connects is never answered", at)
	}
	with(at)
	do(t, "reload", "-f", file).want(t, exitOK, "target mesh2 ("+at+"): begun")
	_, port, _ := strings.Cut(at, ":")
	with(":" + port)
	do(t, "reload", "-f", file).want(t, exitOK, "target mesh2 (:"+port+"): begun", "target mesh2 ("+at+"): ended; nobody is answered there any more")
	if _, text := r.probe(t, "/metrics"); strings.Contains(text, `listen="`+at+`"`) || !strings.Contains(text, `listen=":`+port+`",registry="mesh2"`) {
		t.Error("metrics show the address before, or do not show the new one")
	}
	if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at); err == nil {
		_ = l.Close()
		t.Error("the port is free for others")
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestReload_MovedTarget shows that a change of the owner, or of which registry
// is meant, is refused with a remedy, and that one of the root is not.
func TestReload_MovedTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	isInSync(t, file)
	before := w.touched()
	w.config(fileOptions{bridge: quick, zk: ", id: other"})
	w.replaced(file, "owner: shop", "owner: shop2")
	do(t, "reload", "-f", file).want(t, exitUsage, `owner: changes from "shop" to "shop2"`, "xds-bridge adopt -f "+file+" --from shop --yes",
		`registries.zk.zookeeper.id: changes from "" to "other"`, "undo the change, or restart the bridge with it")
	sameNodes(t, before, w.touched())
	w.config(fileOptions{bridge: quick})
	w.replaced(file, "  zk: {", "  registry: {")
	w.replaced(file, "to: zk", "to: registry")
	do(t, "reload", "-f", file).want(t, exitUsage, `registries.registry: is the registry that was called "zk": undo the change, or restart the bridge with it`)
	sameNodes(t, before, w.touched())
	w.config(fileOptions{bridge: quick})
	w.replaced(file, "formats: [dubbo-interface]", "formats: [{ format: dubbo-interface, root: /other }]")
	do(t, "reload", "-f", file).want(t, exitOK, "loop zk: restarted", "bridge mesh-to-zk: leaves dubbo-interface:/dubbo/; its entries there are held for approval")
	eventually(t, "written at the new place", func() bool { return len(w.zk.Children("/other/api.Orders/providers")) == 2 })
	sameNodes(t, before, w.touched())
}

// replaced writes a file again with a text instead of another.
func (w *world) replaced(file, old, with string) {
	w.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		w.t.Fatalf("no %s in %s", old, text)
	}
	w.file(filepath.Base(file), strings.Replace(string(text), old, with, 1))
}

// plainNames gives the services of a mesh names of plain formats.
const plainNames = quick + `, names: [{ host: "orders.*", service: orders }]`

// TestReload_RenamedTarget shows that formats are known again wherever they
// are in a list.
func TestReload_RenamedTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: plainNames})
	w.replaced(file, "[dubbo-interface]", "[dubbo-interface, kratos]")
	w.start(file)
	isInSync(t, file)
	w.replaced(file, "[dubbo-interface, kratos]", "[kratos, dubbo-interface]")
	r := do(t, "reload", "-f", file)
	if r.want(t, exitOK, "loop zk: restarted"); strings.Contains(r.out, "leaves") {
		t.Error(r.out)
	}
	isInSync(t, file)
	w.config(fileOptions{bridge: plainNames})
	do(t, "reload", "-f", file).want(t, exitOK, "bridge mesh-to-zk: leaves kratos:/microservices/; its entries there are held for approval")
	w.config(fileOptions{bridge: plainNames + ", policy: upsert-only"})
	r = do(t, "reload", "-f", file)
	if r.want(t, exitOK, "loop zk: restarted"); strings.Contains(r.out, "leaves") {
		t.Errorf("it left at the reload before: %s", r.out)
	}
}

// TestReload_ChangedEnsemble shows that the id that a registry keeps
// of itself says whether it is the same one, and not how to connect to it.
func TestReload_ChangedEnsemble(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	isInSync(t, file)
	before := w.touched()
	_, port, _ := strings.Cut(w.zkAt, ":")
	w.replaced(file, strconv.Quote(w.zkAt), strconv.Quote("localhost:"+port))
	var moved result
	eventually(t, "the registry reports its id", func() bool { moved = do(t, "reload", "-f", file); return moved.code == exitOK })
	moved.want(t, exitOK, "target zk: connected anew")
	isInSync(t, file)
	sameNodes(t, before, w.touched())
	w.replaced(file, "localhost:"+port, w.zkAt+"/app")
	do(t, "reload", "-f", file).want(t, exitUsage, "another registry")
	other := zkfake.New(zkfake.Options{})
	at, err := other.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	w.replaced(file, w.zkAt+"/app", at)
	do(t, "reload", "-f", file).want(t, exitUsage, "registries.zk.zookeeper.servers: changes from", "another registry", "restart the bridge with it")
	sameNodes(t, before, w.touched())
}

// TestReload_RemovedTarget shows what happens to the entries of a
// registry that no bridge leads to any more, and that it can come back.
func TestReload_RemovedTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := zkfake.New(zkfake.Options{})
	at, err := other.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	file := w.config(fileOptions{bridge: quick})
	one, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	both := strings.Replace(string(one), "bridges:\n", fmt.Sprintf("  zk2: { zookeeper: { servers: [%q] } }\nbridges:\n  - { name: second, from: mesh, to: zk2, formats: [dubbo-interface] %s }\n", at, quick), 1)
	w.start(file)
	isInSync(t, file)
	w.file("config.yaml", both)
	do(t, "reload", "-f", file).want(t, exitOK, "target zk2: begun")
	eventually(t, "the second registry", func() bool { return len(other.Children("/dubbo/api.Orders/providers")) == 2 })
	w.file("config.yaml", string(one))
	do(t, "reload", "-f", file).want(t, exitOK, "target zk2: ended; its entries stay")
	do(t, "status", "-f", file).want(t, exitOK, "target zk2: no bridge leads there any more, and its entries stay")
	eventually(t, "nothing looks alive there, so that purge may withdraw them", func() bool { return len(other.Sessions()) == 0 })
	w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3")
	eventually(t, "the first registry continues", func() bool { return len(w.providers("api.Orders")) == 3 })
	if n := len(other.Children("/dubbo/api.Orders/providers")); n != 2 {
		t.Errorf("%d entries are left in the second registry, want the 2 it had", n)
	}
	w.file("config.yaml", both)
	do(t, "reload", "-f", file).want(t, exitOK, "target zk2: begun")
	if st := do(t, "status", "-f", file); strings.Contains(st.out, "no bridge leads there") {
		t.Error(st.out)
	}
	eventually(t, "the second registry is back", func() bool { return len(other.Children("/dubbo/api.Orders/providers")) == 3 })
}

// TestReload_Allow shows that the source of a registry, which
// asks providers at the addresses that bridges allow, is held to the new list.
func TestReload_Allow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := porttest.Address(t)
	write := func(choice string) string {
		return w.file("config.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, import: { keys: off } } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [dubbo-application], select: { %s } }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json }
`, w.xds, w.zkAt, at, choice, w.dir))
	}
	file := write("exclude: [nobody]")
	w.start(file)
	r := do(t, "reload", "-f", write("exclude: [nobody, else]"))
	if r.want(t, exitOK, "loop mesh ("+at+"): restarted"); strings.Contains(r.out, "source") {
		t.Errorf("the source does not depend on what is chosen from it: %s", r.out)
	}
	write("exclude: [nobody, else], allow: [169.254.0.0/16]")
	do(t, "reload", "-f", file).want(t, exitOK, "source zk: restarted")
}

// TestReload_SelectAndNames shows that a loop that begins with the source that it
// reads reads nothing of what the source before reported: greeter has the name there
// under which the file before would have exported it.
func TestReload_SelectAndNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(greeter, "10.0.1.1", "10.0.1.2")
	file := w.config(fileOptions{bridge: quick + `, select: { exclude: ["greeter.*"] }, names: [{ host: "orders.*", service: orders }, { host: "greeter.*", service: before }]`})
	w.replaced(file, "formats: [dubbo-interface]", "formats: [kratos]")
	w.start(file)
	isInSync(t, file)
	w.refuse(http.StatusServiceUnavailable) // the source is not complete
	w.replaced(file, `select: { exclude: ["greeter.*"] }`, `select: { include: ["greeter.*"] }`)
	w.replaced(file, "service: before", "service: after")
	do(t, "reload", "-f", file).want(t, exitOK, "source mesh: restarted", "loop zk: restarted")
	eventually(t, "the loop has begun", func() bool {
		return strings.Contains(do(t, "status", "-f", file).out, "the source has not reported everything yet")
	})
	if n := len(w.zk.Children("/microservices/orders")); n != 2 {
		t.Errorf("%d instances of orders while nothing is known of them, want 2", n)
	}
	w.refuse(0)
	eventually(t, "greeter is there under its new name", func() bool { return len(w.zk.Children("/microservices/after")) == 2 })
	if all := w.zk.Children("/microservices/before"); len(all) > 0 {
		t.Errorf("neither file exports greeter as before: %v", all)
	}
}

// TestReload_Reentrant shows that the liveness node of the connection
// before keeps no reload waiting, where the system does not say which process is
// which.
func TestReload_Reentrant(t *testing.T) {
	t.Parallel()
	const sign = "/xds-bridge/shop/alive"
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	r := w.start(file)
	isInSync(t, file)
	shown, ok := w.zk.Get(sign)
	if !ok {
		t.Fatal("no liveness node")
	}
	w.zk.Delete(sign)
	if err := w.zk.PutEphemeral(sign, []byte(`{"host":"elsewhere","process":1,"timeout":30000000000}`), shown.Stat.EphemeralOwner); err != nil {
		t.Fatal(err)
	}
	w.config(fileOptions{bridge: quick, zk: ", sessionTimeout: 20s"})
	do(t, "reload", "-f", file).want(t, exitOK, "target zk: connected anew")
	w.offer(orders, "10.0.0.1", "10.0.0.3")
	eventually(t, "written over the new connection", func() bool { return strings.Contains(strings.Join(w.providers("api.Orders"), " "), "10.0.0.3") })
	if strings.Contains(r.log.String(), "another bridge of this owner may be running") {
		t.Error("it waited for its own liveness node")
	}
}

// What was read from one cluster is not gone because another lacks it.
func TestReload_ToAnotherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := fmt.Sprintf(`owner: shop
registries:
  mesh: { kubernetes: { import: { directory: %q } } }
  zk: { zookeeper: { servers: [%q], timeout: 2s } }
bridges: [{ name: b, from: zk, to: mesh, formats: [plain] }]
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json }
`, t.TempDir(), w.zkAt, w.dir)
	file := w.file("config.yaml", text)
	w.start(file)
	other := w.file("other", "{apiVersion: v1, kind: Config}")
	w.file("config.yaml", strings.Replace(text, "kubernetes: {", fmt.Sprintf("kubernetes: { kubeconfig: %q, context: c,", other), 1))
	do(t, "reload", "-f", file).want(t, exitUsage, `registries.mesh.kubernetes.kubeconfig: changes from "" to `, "kubernetes.context: changes", "restart the bridge with it")
}
