package states_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/internal/statustest"
)

// statesOfRealServers returns what is said in the states that
// TestStates_RealServers brings the world into.
func statesOfRealServers() map[string]statustest.Row {
	return statustest.ByState(
		statustest.Row{State: "well", Column: "SYNCED", Why: "synced", Event: "-", Alert: "none", Ready: "200", Live: "200"},
		statustest.Row{State: "mesh slow", Column: "SYNCED", Why: "synced", Event: "-", Alert: "none", Ready: "200", Live: "200"},
		statustest.Row{State: "mesh frozen", Conditions: []string{"source mesh stale"}, Column: "STALE", Exit: 1, Why: "synced", Event: "condition stale", Alert: "XdsBridgeSourceStale", Ready: "200", Live: "200"},
		statustest.Row{State: "mesh killed", Conditions: []string{"source mesh stale"}, Column: "STALE", Exit: 1, Why: "synced", Event: "condition stale", Alert: "XdsBridgeSourceStale", Ready: "200", Live: "200"},
		statustest.Row{State: "mesh empty", Conditions: []string{"target zk held"}, Column: "HELD", Exit: 5, Why: "held", Holds: 5, Event: "hold held back: 6 deletions", Alert: "XdsBridgeHold", Ready: "200", Live: "200"},
		statustest.Row{State: "import without a reader", Conditions: []string{"target mesh no-reader"}, Column: "NO READER", Exit: 1, Why: "synced", Event: "condition no-reader", Alert: "XdsBridgeTargetUnreachable", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper slow", Column: "SYNCED", Why: "synced", Event: "-", Alert: "none", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper read: frozen", Conditions: []string{"source zk stale"}, Column: "STALE", Exit: 1, Why: "synced", Event: "condition stale", Alert: "XdsBridgeSourceStale", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper written: frozen", Conditions: []string{"target zk unreachable"}, Column: "UNREACHABLE", Exit: 1, Why: "any", Event: "condition unreachable", Alert: "XdsBridgeTargetUnreachable", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper read: killed", Conditions: []string{"source zk stale"}, Column: "STALE", Exit: 1, Why: "synced", Event: "condition stale", Alert: "XdsBridgeSourceStale", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper written: killed", Conditions: []string{"target zk unreachable"}, Column: "UNREACHABLE", Exit: 1, Why: "any", Event: "condition unreachable", Alert: "XdsBridgeTargetUnreachable", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper read: a parent znode refused", Conditions: []string{"source zk partial"}, Column: "PARTIAL", Exit: 1, Why: "any", Event: "condition partial", Alert: "XdsBridgePartial", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper read: the root emptied", Conditions: []string{"source zk partial"}, Column: "PARTIAL", Exit: 1, Why: "any", Event: "condition partial", Alert: "XdsBridgePartial", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper written: read-only", Conditions: []string{"target zk refused"}, Column: "REFUSED", Exit: 1, Why: "refused", Event: "refused 1 of its entries refused", Alert: "XdsBridgeWritesFail", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper written: another's entry", Conditions: []string{"target zk conflict"}, Column: "CONFLICT", Exit: 1, Why: "conflict", Event: "conflict claim to", Alert: "XdsBridgeConflict", Ready: "200", Live: "200"},
		statustest.Row{State: "a bridge claims nothing", Conditions: []string{"target zk idle"}, Column: "IDLE", Exit: 1, Why: "skipped", Event: "condition idle", Alert: "XdsBridgeIdle", Ready: "200", Live: "200"},
		statustest.Row{State: "a reload refused", Conditions: []string{"process reload-refused"}, Column: "-", Exit: 1, Why: "synced", Event: "reload the configuration was refused", Alert: "XdsBridgeReloadRefused", Ready: "200", Live: "200"},
		statustest.Row{State: "Nacos slow", Column: "SYNCED", Why: "synced", Event: "-", Alert: "none", Ready: "200", Live: "200"},
		statustest.Row{State: "Nacos read: frozen", Conditions: []string{"source nacos stale"}, Column: "STALE", Exit: 1, Why: "synced", Event: "condition stale", Alert: "XdsBridgeSourceStale", Ready: "200", Live: "200"},
		statustest.Row{State: "Nacos written: frozen", Conditions: []string{"target nacos unreachable"}, Column: "UNREACHABLE", Exit: 1, Why: "any", Event: "condition unreachable", Alert: "XdsBridgeTargetUnreachable", Ready: "200", Live: "200"},
		statustest.Row{State: "Nacos read: killed", Conditions: []string{"source nacos stale"}, Column: "STALE", Exit: 1, Why: "synced", Event: "condition stale", Alert: "XdsBridgeSourceStale", Ready: "200", Live: "200"},
		statustest.Row{State: "Nacos written: killed", Conditions: []string{"target nacos unreachable"}, Column: "UNREACHABLE", Exit: 1, Why: "any", Event: "condition unreachable", Alert: "XdsBridgeTargetUnreachable", Ready: "200", Live: "200"},
		statustest.Row{State: "the bridge killed", Silent: true, Column: "-", Exit: 4, Why: "-", Holds: 4, Event: "-", Alert: "XdsBridgeDown", Ready: "-", Live: "-"},
	)
}

// TestStates_RealServers brings real servers into each state that they
// can be brought into, and asks the bridge with every command.
func TestStates_RealServers(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	var mesh, nacos *asked
	t.Run("servers", func(t *testing.T) {
		t.Run("istiod and ZooKeeper", func(t *testing.T) {
			t.Parallel()
			mesh = ofMeshAndZooKeeper(t)
		})
		t.Run("Nacos", func(t *testing.T) {
			t.Parallel()
			nacos = ofNacos(t)
		})
	})
	if t.Failed() || mesh == nil || nacos == nil { // or one was asked for alone
		return
	}
	for state := range mesh.rows {
		if !mesh.done[state] && !nacos.done[state] {
			t.Errorf("nothing was brought into the state %q", state)
		}
	}
}

// asked is a bridge that is asked with every command.
type asked struct {
	bridge   *harness.Bridge
	rows     map[string]statustest.Row
	question statustest.Question
	done     map[string]bool
}

// ask returns it; services are those that why is asked for, by the direction and
// registry that a state is of, and shown is how registries are shown that are not shown by their name.
func ask(t *testing.T, b *harness.Bridge, services, shown map[string]string) *asked {
	t.Helper()
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{harness.Root(t)}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	q := statustest.Question{Services: services, Shown: shown, Rules: read("deploy", "alerts.yaml")}
	return &asked{bridge: b, rows: statesOfRealServers(), question: q, done: make(map[string]bool)}
}

// is waits until everything is said that the rows say of states, which hold at
// the same time since a moment.
func (a *asked) is(t *testing.T, since time.Time, all ...string) {
	t.Helper()
	q := a.question
	q.Since = since
	for _, state := range all {
		q.Registries = append(q.Registries, a.rows[state].Registries(q)...)
	}
	for _, state := range all {
		row, ok := a.rows[state]
		if !ok {
			t.Fatalf("there is no row %q", state)
		}
		name := state
		if state == "well" && len(a.done) > 0 {
			name = "well again"
		}
		if !t.Run(name, func(t *testing.T) {
			harness.Eventually(t, 2*time.Minute, "everything is said of the state "+state, func() error { return row.Says(commands{t, a.bridge}, q) })
		}) {
			t.FailNow() // what comes after would begin in another state than it thinks
		}
		a.done[state] = true
	}
}

// in brings the world into states, asks, and waits until all is well again.
func (a *asked) in(t *testing.T, all []string, begin, end func()) {
	t.Helper()
	since := time.Now()
	begin()
	a.is(t, since, all...)
	end()
	a.is(t, since, "well")
}

// commands asks a bridge.
type commands struct {
	t      *testing.T
	bridge *harness.Bridge
}

func (v commands) Do(args ...string) (int, string) {
	v.t.Helper()
	code, out, errOut := v.bridge.Do(v.t, args[0], args[1:]...)
	return code, out + errOut
}

func (v commands) Get(path string) (int, string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, "http://"+v.bridge.Telemetry+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, ""
	}
	return res.StatusCode, string(body)
}

// moving is the service of the mesh whose endpoints change here.
func moving(t *testing.T, m *faults.Mesh, ports ...int) {
	t.Helper()
	m.Services.Apply(t, harness.Service{Host: "moving.shop.svc.cluster.local", Port: 20000, Endpoints: harness.Local(ports...)})
}

const java = "/java" // where the providers of ZooKeeper are that no bridge writes

// meshWorld is a mesh that is kept in a ZooKeeper, and providers of that
// ZooKeeper which are served to an istiod, by one bridge.
type meshWorld struct {
	*asked

	mesh   *faults.Mesh
	zk     *harness.ZooKeeper
	toZK   *harness.Proxy
	znodes *harness.Znodes
	reader *harness.Istiod
	config string
}

func newMeshWorld(t *testing.T) *meshWorld {
	t.Helper()
	w := &meshWorld{mesh: faults.StartMesh(t), zk: harness.StartZooKeeper(t)}
	w.znodes = harness.Connect(t, w.zk.Address)
	w.toZK = harness.StartProxy(t, w.zk.Address)
	w.registers(t)
	listen := harness.Address(t)
	b := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: states
registries:
  %s
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s, timeout: 2s }, timing: { refresh: 5s, retryMin: 100ms, retryMax: 1s } }
bridges:
  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { settle: 1s, lastEndpoint: 1s } }
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [{ format: dubbo-interface, root: %s }], select: { allow: [127.0.0.0/8] }, guard: { settle: 1s, lastEndpoint: 1s } }
reload: { interval: 0s }`,
		w.mesh.Registry(), w.toZK.Address, listen, java))
	text, err := os.ReadFile(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	w.config = string(text)
	b.Start(t)
	harness.Eventually(t, faults.HealTime, "the bridge listens for istiod", func() error { return harness.Listens(t, listen) })
	reading := harness.NewMesh(t)
	reading.From(listen)
	w.reader = harness.StartIstiod(t, reading)
	w.asked = ask(t, b, map[string]string{
		"source mesh": faults.MovingService, "target zk": faults.MovingService, "source zk": "api.Java", "target mesh": "api.Java",
	}, map[string]string{"target mesh": "mesh (" + listen + ")"})
	return w
}

// registers has a Java application register where no bridge writes.
func (w *meshWorld) registers(t *testing.T) {
	t.Helper()
	w.znodes.Create(t, w.provider(), "")
}

func (*meshWorld) provider() string {
	return java + strings.TrimPrefix(faults.Registered("api.Java", 17001), "/dubbo")
}

// reload has the bridge read another text instead of its configuration.
func (w *meshWorld) reload(t *testing.T, text string, want int) {
	t.Helper()
	if err := os.WriteFile(w.bridge.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := w.bridge.Do(t, "reload"); code != want {
		t.Fatalf("reload ended with %d, want %d: %s%s", code, want, out, errOut)
	}
}

func ofMeshAndZooKeeper(t *testing.T) *asked {
	t.Helper()
	w := newMeshWorld(t)
	w.is(t, time.Now(), "well")
	w.slow(t)
	w.settings(t)
	w.entries(t)
	w.in(t, []string{"mesh empty"}, func() { w.mesh.Hide(t, faults.SteadyService, faults.MovingService) }, func() { w.mesh.Show(t) })
	w.away(t)
	w.bridge.Kill()
	w.is(t, time.Now(), "the bridge killed")
	return w.asked
}

// slow has every answer delayed.
func (w *meshWorld) slow(t *testing.T) {
	t.Helper()
	for state, proxies := range map[string][]*harness.Proxy{"mesh slow": {w.mesh.ToIstiod, w.mesh.ToDebug}, "ZooKeeper slow": {w.toZK}} {
		w.in(t, []string{state}, func() {
			for _, p := range proxies {
				p.Delay(300 * time.Millisecond)
			}
			moving(t, w.mesh, 18101, 18102, 18103, 18104)
			w.awaitEntries(t, 4)
		}, func() {
			for _, p := range proxies {
				p.Heal()
			}
			w.mesh.Show(t)
			w.awaitEntries(t, 3)
		})
	}
}

func (w *meshWorld) awaitEntries(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, faults.HealTime, "entries of the moving service", func() error {
		return harness.Same(len(w.znodes.Children(t, faults.ProvidersPath(faults.MovingInterface))), n)
	})
}

// settings changes the file of the bridge.
func (w *meshWorld) settings(t *testing.T) {
	t.Helper()
	back := func() { w.reload(t, w.config, 0) }
	w.in(t, []string{"a reload refused"}, func() { w.reload(t, w.config+"\nnonsense: 1\n", 2) }, back)
	idle := "bridges:\n  - { name: nothing, from: mesh, to: zk, formats: [dubbo-interface], select: { include: [\"none.*\"], allow: [127.0.0.0/8] } }\n"
	w.in(t, []string{"a bridge claims nothing"}, func() { w.reload(t, strings.Replace(w.config, "bridges:\n", idle, 1), 0) }, back)
}

// entries makes single entries and parent znodes what the bridge cannot read or write.
func (w *meshWorld) entries(t *testing.T) {
	t.Helper()
	parent, theirs := faults.ProvidersPath(faults.MovingInterface), faults.Registered(faults.MovingInterface, 18190)
	w.in(t, []string{"ZooKeeper written: another's entry"}, func() {
		w.znodes.Create(t, theirs, "")
		moving(t, w.mesh, 18101, 18102, 18103, 18190)
	}, func() {
		w.mesh.Show(t)
		w.znodes.Delete(t, theirs)
	})
	w.in(t, []string{"ZooKeeper written: read-only"}, func() {
		w.znodes.Deny(t, parent, zk.PermCreate|zk.PermDelete)
		moving(t, w.mesh, 18101, 18102, 18103, 18191)
	}, func() {
		w.znodes.Allow(t, parent)
		w.mesh.Show(t)
	})
	java := strings.TrimSuffix(w.provider(), w.provider()[strings.LastIndex(w.provider(), "/"):])
	w.in(t, []string{"ZooKeeper read: a parent znode refused"}, func() {
		w.znodes.Deny(t, java, zk.PermRead)
		w.toZK.Reset() // everything is read once more
	}, func() { w.znodes.Allow(t, java) })
	w.in(t, []string{"ZooKeeper read: the root emptied"}, func() { w.znodes.Prune(t, "/java") }, func() { w.registers(t) })
}

// away freezes and kills the servers.
func (w *meshWorld) away(t *testing.T) {
	t.Helper()
	w.in(t, []string{"mesh frozen"},
		func() { w.mesh.Istiod.Process().Signal(t, syscall.SIGSTOP) },
		func() { w.mesh.Istiod.Process().Signal(t, syscall.SIGCONT) })
	w.in(t, []string{"mesh killed"}, func() { w.mesh.Istiod.Kill() }, func() {
		w.mesh.Restart(t)
		w.mesh.Publish(t)
	})
	w.in(t, []string{"import without a reader"}, func() { w.reader.Kill() }, func() { w.reader.Start(t) })
	w.in(t, []string{"ZooKeeper read: frozen", "ZooKeeper written: frozen"},
		func() { w.zk.Process().Signal(t, syscall.SIGSTOP) },
		func() { w.zk.Process().Signal(t, syscall.SIGCONT) })
	w.in(t, []string{"ZooKeeper read: killed", "ZooKeeper written: killed"}, func() { w.zk.Kill() }, func() {
		w.zk.Start(t)
		w.zk.AwaitServing(t)
	})
}

func ofNacos(t *testing.T) *asked {
	t.Helper()
	server, zookeeper := harness.StartNacos(t, harness.NacosOptions{Version: 3, PushDelay: 50 * time.Millisecond}), harness.StartZooKeeper(t)
	toNacos, znodes, sdk := harness.StartNacosProxy(t, server), harness.Connect(t, zookeeper.Address), nacossdk.Connect(t, server.URL)
	register := func() {
		sdk.Register(t, faults.Key("api.Java"), model.Instance{
			Ip: "127.0.0.1", Port: 17001, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
			Metadata: map[string]string{"protocol": "tri", "path": "api.Java", "interface": "api.Java", "side": "provider"},
		})
	}
	register()
	znodes.Create(t, faults.Registered("api.Old", 17002), "")
	b := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: states
registries:
  nacos: { nacos: { servers: [%q], listInterval: 500ms }, timing: { refresh: 5s, retryMin: 100ms, retryMax: 1s } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: nacos-to-zk, from: nacos, to: zk, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { settle: 1s, lastEndpoint: 1s } }
  - { name: zk-to-nacos, from: zk, to: nacos, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { settle: 1s, lastEndpoint: 1s } }`,
		toNacos.URL, zookeeper.Address))
	b.Start(t)
	a := ask(t, b, map[string]string{"source nacos": "api.Java", "target nacos": "api.Old"}, nil)
	a.is(t, time.Now(), "well")
	a.in(t, []string{"Nacos slow"},
		func() { toNacos.Both(func(p *harness.Proxy) { p.Delay(300 * time.Millisecond) }) },
		func() { toNacos.Both((*harness.Proxy).Heal) })
	a.in(t, []string{"Nacos read: frozen", "Nacos written: frozen"},
		func() { server.Process().Signal(t, syscall.SIGSTOP) },
		func() { server.Process().Signal(t, syscall.SIGCONT) })
	since := time.Now()
	server.Kill()
	a.is(t, since, "Nacos read: killed", "Nacos written: killed")
	return a
}
