package faults_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

// javaInterface is what an application outside the mesh provides in Nacos.
const javaInterface = "api.Java"

// nacosWorld is a mesh that is kept in a Nacos, and an application of Nacos
// that is kept in a ZooKeeper, by one bridge.
type nacosWorld struct {
	*faults.Mesh
	server  *harness.Nacos
	toNacos *harness.NacosProxy
	bridge  *harness.Bridge
	sdk     *nacossdk.Client
	app     *nacossdk.Client // another's: instances of its own, one of them in our service
}

func newNacosWorld(t *testing.T, version int) *nacosWorld {
	t.Helper()
	w := &nacosWorld{Mesh: faults.StartMesh(t)}
	w.server = harness.StartNacos(t, harness.NacosOptions{Version: version, PushDelay: 50 * time.Millisecond})
	w.toNacos = harness.StartNacosProxy(t, w.server)
	zookeeper := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, zookeeper.Address)
	w.sdk, w.app = nacossdk.Connect(t, w.server.URL), nacossdk.Connect(t, w.server.URL)
	w.app.Register(t, faults.Key(javaInterface), provided(javaInterface, "127.0.0.1", 17001), provided(javaInterface, "127.0.0.1", 17002))
	w.app.Register(t, faults.Key(faults.SteadyInterface), provided(faults.SteadyInterface, "10.9.9.1", 20000))
	w.bridge = harness.ConfiguredBridge(t, fmt.Sprintf(`owner: faults
registries:
  %s
  nacos:
    nacos: { servers: [%q], listInterval: 1s }
    timing: { refresh: 5s, retryMax: 2s }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: mesh-to-nacos, from: mesh, to: nacos, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }
  - { name: nacos-to-zk, from: nacos, to: zk, formats: [dubbo-interface], select: { include: ["*%s::"], allow: [127.0.0.0/8] }, guard: { %[4]s } }`,
		w.Registry(), w.toNacos.URL, zookeeper.Address, patient, javaInterface))

	all := w.sdk.Subscribe(t, faults.Key(faults.SteadyInterface))
	oracle := faults.NewOracle(w.bridge, func(testing.TB) string { return "" })
	oracle.Within = 90 * time.Second // a source of Nacos asks for each service once a minute
	oracle.Subscribe(faults.SteadyService, "consumer", faults.WithoutOthers(all))
	oracle.Subscribe(faults.MovingService, "consumer", w.sdk.Subscribe(t, faults.Key(faults.MovingInterface)))
	oracle.Subscribe(javaInterface, "consumer", znodes.Watch(t, faults.ProvidersPath(javaInterface)))
	oracle.Writes(harness.Log(zookeeper), map[string]string{faults.ProvidersPath(javaInterface): javaInterface}, znodes)
	w.JudgedBy(oracle)
	oracle.Has(javaInterface, faults.Addresses(17001, 17002)...)
	w.bridge.Start(t)
	oracle.Agree(t)
	oracle.Others = func(t testing.TB) string {
		t.Helper()
		var theirs string
		harness.Eventually(t, faults.HealTime, "what is another's in a service of ours is seen", func() error {
			for _, in := range all.Instances() {
				if in.Ip == "10.9.9.1" {
					theirs = fmt.Sprintf("%s:%d %v %v %v", in.Ip, in.Port, in.Weight, in.Enable, in.Metadata)
					return nil
				}
			}
			return fmt.Errorf("not among %v", all.Instances())
		})
		return theirs
	}
	return w
}

func provided(iface, ip string, port uint64) model.Instance {
	return model.Instance{
		Ip: ip, Port: port, Weight: 2, Enable: true, Healthy: true, Ephemeral: true,
		Metadata: map[string]string{"protocol": "tri", "path": iface, "interface": iface, "side": "provider"},
	}
}

// TestNacos has everything go wrong between istiod, the bridge and a Nacos.
func TestNacos(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for _, version := range harness.NacosVersions() {
		t.Run(fmt.Sprintf("Nacos %d", version), func(t *testing.T) {
			t.Parallel()
			w := newNacosWorld(t, version)
			w.connection(t)
			w.frozen(t)
			w.bridgeAway(t)
			w.serverAway(t)
		})
	}
}

// Try is the mesh's. What is written to a Nacos is known from its subscriber,
// to whom an instance that the server removes is as one that was withdrawn:
// it may come back, and with what the bridge knew of the mesh just then.
func (w *nacosWorld) Try(t *testing.T, f faults.Fault) {
	t.Helper()
	if f.Loses != "" {
		defer w.Allow([]guarantees.Guarantee{guarantees.NoResurrection}, f.Keeps...)()
	}
	w.Mesh.Try(t, f)
}

// connection has the connections to the server fail in every mode.
func (w *nacosWorld) connection(t *testing.T) {
	t.Helper()
	heal := func(*testing.T) { w.toNacos.Both((*harness.Proxy).Heal) }
	w.Try(t, faults.Fault{
		Name:  "connections that are reset are made again at once",
		Break: func(*testing.T) { w.toNacos.Both((*harness.Proxy).Reset) },
		// It notifies its subscribers half a second later, here much earlier.
		Loses: "Nacos removes instances with the connection that published them",
		Keeps: []string{javaInterface},
	})
	w.Try(t, faults.Fault{
		Name:  "a half-open connection is found, and what it swallowed is written after it",
		Break: func(*testing.T) { w.toNacos.Both((*harness.Proxy).BlackHole) },
		Lasts: 6 * time.Second,
		Heal:  heal,
		Loses: "Nacos sees the old connection end before the next one has published, where the bridge had not given it up yet",
		Keeps: []string{javaInterface},
	})
	w.Try(t, faults.Fault{
		Name:  "requests arrive and no answer does: nothing is given up",
		Break: func(*testing.T) { w.toNacos.Both((*harness.Proxy).Deafen) },
		Lasts: 6 * time.Second,
		Heal:  heal,
		Loses: "as above",
		Keeps: []string{javaInterface},
	})
	w.Try(t, faults.Fault{
		Name:  "a Nacos that answers after a second is slow and nothing else",
		Break: func(*testing.T) { w.toNacos.Both(func(p *harness.Proxy) { p.Delay(time.Second) }) },
		Lasts: 2 * time.Second,
		Heal:  heal,
	})
}

// frozen stops the server's process for a while.
func (w *nacosWorld) frozen(t *testing.T) {
	t.Helper()
	var lines int
	w.Try(t, faults.Fault{
		Name: "a frozen Nacos is reported, floods no log, keeps nobody busy, and loses nothing",
		Break: func(t *testing.T) {
			w.server.Process().Signal(t, syscall.SIGSTOP)
			lines = strings.Count(w.bridge.Log(), "\n")
		},
		Change: func(t *testing.T) {
			w.Change(t)
			before := faults.CPU(t, w.bridge)
			<-time.NewTimer(5 * time.Second).C
			if used := faults.CPU(t, w.bridge) - before; used > 2*time.Second {
				t.Errorf("the bridge worked %s in 5 s in which there was nothing to do", used)
			}
			if n := strings.Count(w.bridge.Log(), "\n") - lines; n > 40 {
				t.Errorf("%d lines in the log", n)
			}
			saysAway(t, w.bridge, `xdsbridge_registry_up{direction="target",kind="nacos",listen="",registry="nacos"}`, 0)
			saysAway(t, w.bridge, `xdsbridge_source_stale{registry="nacos"}`, 1)
		},
		Heal: func(t *testing.T) { w.server.Process().Signal(t, syscall.SIGCONT) },
		// It may remove the instances of the application too, and this guard
		// lets all but the last of them go; the one by default holds them.
		Loses: "what the server thinks of its clients when it wakes up is its own affair",
	})
}

// bridgeAway ends the bridge, which is the only publisher.
func (w *nacosWorld) bridgeAway(t *testing.T) {
	t.Helper()
	var killed time.Time
	w.Try(t, faults.Fault{
		Name: "kill -9 of the only publisher: its instances go, and are back after the restart, each service in one piece",
		Break: func(*testing.T) {
			killed = time.Now()
			w.bridge.Kill()
		},
		Heal:  func(t *testing.T) { w.bridge.Start(t) },
		Loses: "Nacos removes instances with the connection of their only publisher",
		Keeps: []string{javaInterface},
		After: func(t *testing.T) {
			whole(t, w.Oracle, faults.SteadyService, killed, 3)
			whole(t, w.Oracle, faults.MovingService, killed, 3)
			if n := faults.Metric(t, w.bridge, `xdsbridge_changes_applied_total{bridge="mesh-to-nacos",listen="",op="delete",registry="nacos"}`); n != 0 {
				t.Errorf("%v deletions", n)
			}
		},
	})
	w.Try(t, faults.Fault{
		Name:  "frozen, the bridge continues where the mesh is by then",
		Break: func(t *testing.T) { w.bridge.Process().Signal(t, syscall.SIGSTOP) },
		Lasts: 3 * time.Second,
		Heal:  func(t *testing.T) { w.bridge.Process().Signal(t, syscall.SIGCONT) },
	})
}

// serverAway kills the server, and deletes its data.
func (w *nacosWorld) serverAway(t *testing.T) {
	t.Helper()
	var back time.Time
	var stopwatch harness.Stopwatch
	w.Try(t, faults.Fault{
		Name: "a Nacos that comes back with its data wiped: the import is held, what we publish is back within ten seconds",
		Break: func(t *testing.T) {
			w.server.Kill()
			w.server.Wipe(t)
		},
		Lasts: 2 * time.Second,
		Heal: func(t *testing.T) {
			w.server.Start(t)
			back, stopwatch = time.Now(), harness.StartStopwatch()
		},
		After: func(t *testing.T) {
			for _, service := range []string{faults.SteadyService, faults.MovingService} {
				if took := stopwatch.Between(back, w.LatestSince(service)); took > 10*time.Second {
					t.Errorf("%s was back after %s", service, took)
				}
			}
		},
		Loses: "a server without data has nothing to show at first",
		Keeps: []string{javaInterface}, // the application registers again by itself
	})
}
