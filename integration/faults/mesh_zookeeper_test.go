package faults_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// patient is a guard that is about safety and does not keep a test waiting for
// a minute.
const patient = "settle: 5s, share: 1"

// session is how long a server keeps a session without its client.
const session = 6 * time.Second

// refresh is how long a bridge trusts what it read of a ZooKeeper.
const refresh = 5 * time.Second

// meshToZooKeeper is the configuration of a bridge that keeps a mesh in a
// ZooKeeper.
func meshToZooKeeper(m *faults.Mesh, settings, guard string, servers ...string) string {
	return fmt.Sprintf(`owner: faults
registries:
  %s
  zk:
    zookeeper: { servers: [%s], sessionTimeout: %s, timeout: 2s, %s }
    timing: { refresh: %s, retryMax: 2s }
bridges:
  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }`,
		m.Registry(), quoted(servers), session, settings, refresh, guard)
}

func quoted(words []string) string { return `"` + strings.Join(words, `", "`) + `"` }

// kept starts a bridge from the mesh into a ZooKeeper in which others are
// already, and waits until all agree.
func kept(t *testing.T, m *faults.Mesh, znodes *harness.Znodes, config string, servers ...*harness.ZooKeeper) *harness.Bridge {
	t.Helper()
	bridge := harness.ConfiguredBridge(t, config)
	keptBy(t, m, znodes, bridge, servers...)
	return bridge
}

// keptBy does so with a bridge that is to be started.
func keptBy(t *testing.T, m *faults.Mesh, znodes *harness.Znodes, bridge *harness.Bridge, servers ...*harness.ZooKeeper) {
	t.Helper()
	oracle := faults.NewOracle(bridge, faults.PlantOthers(t, znodes))
	parents := make(map[string]string)
	for service, iface := range map[string]string{faults.SteadyService: faults.SteadyInterface, faults.MovingService: faults.MovingInterface} {
		oracle.Subscribe(service, "consumer", faults.WithoutOthers(znodes.Watch(t, faults.ProvidersPath(iface))))
		parents[faults.ProvidersPath(iface)] = service
	}
	oracle.Writes(harness.Log(servers...), parents, znodes)
	m.JudgedBy(oracle)
	bridge.Start(t)
	oracle.Agree(t)
}

// TestMeshToZooKeeper has everything go wrong between istiod, the bridge and
// one ZooKeeper, one thing after the other.
func TestMeshToZooKeeper(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, server.Address)
	toZooKeeper := harness.StartZooKeeperProxy(t, server.Address)
	m := faults.StartMesh(t)
	bridge := kept(t, m, znodes, meshToZooKeeper(m, "", patient, toZooKeeper.Address), server)

	m.Try(t, faults.Fault{
		Name:  "kill -9 while endpoints change: what stays is never gone, and nothing is there twice",
		Break: func(*testing.T) { bridge.Kill() },
		Heal:  func(t *testing.T) { bridge.Start(t) },
	})
	m.Try(t, faults.Fault{
		Name:  "a SIGTERM and the next start lose nothing",
		Break: func(t *testing.T) { bridge.Stop(t) },
		Heal:  func(t *testing.T) { bridge.Start(t) },
	})
	m.Try(t, faults.Fault{
		Name:  "frozen for longer than its session, the bridge continues where the mesh is by then",
		Break: func(t *testing.T) { bridge.Process().Signal(t, syscall.SIGSTOP) },
		Lasts: 2 * session,
		Heal:  func(t *testing.T) { bridge.Process().Signal(t, syscall.SIGCONT) },
	})
	m.Try(t, faults.Fault{
		Name:  "a stream that is reset is opened again, and what changed is all that is written",
		Break: func(t *testing.T) { recordWrites(t, m, toZooKeeper, reset(m, bridge)) },
		After: func(t *testing.T) { wroteOneChange(t, toZooKeeper) },
	})
	m.Try(t, faults.Fault{
		Name:  "what was removed while the stream was away is removed after it is back",
		Break: func(*testing.T) { m.ToIstiod.Cut() },
		Lasts: time.Second,
		Heal:  func(*testing.T) { m.ToIstiod.Heal() },
	})
	m.Try(t, faults.Fault{
		Name:  "without the debug API the known keys continue",
		Break: func(*testing.T) { m.ToDebug.Cut() },
		After: func(*testing.T) { m.ToDebug.Heal() },
	})
	m.Try(t, faults.Fault{
		Name: "a connection that is lost for less than the session is no loss, and what changed is all that is written",
		Break: func(*testing.T) {
			toZooKeeper.Forget()
			toZooKeeper.Cut()
		},
		Lasts: session / 3,
		Heal:  func(*testing.T) { toZooKeeper.Heal() },
		After: func(t *testing.T) { wroteOneChange(t, toZooKeeper) },
	})
	m.Try(t, faults.Fault{
		Name: "what somebody changed while the connection was lost is seen and mended",
		Break: func(t *testing.T) {
			toZooKeeper.Cut()
			znodes.Delete(t, m.NodeOf(t, znodes, 0))
		},
		Heal: func(*testing.T) { toZooKeeper.Heal() },
	})
	m.Try(t, faults.Fault{
		Name: "a parent znode that is denied is an error, and the other continues",
		Break: func(t *testing.T) {
			znodes.Deny(t, faults.ProvidersPath(faults.SteadyInterface), zk.PermAll)
		},
		Change: func(t *testing.T) {
			m.Change(t)
			harness.Eventually(t, faults.HealTime, "the other parent znode follows", func() error { return m.Shown(faults.MovingService) })
		},
		Heal: func(t *testing.T) { znodes.Allow(t, faults.ProvidersPath(faults.SteadyInterface)) },
	})
	m.Try(t, faults.Fault{
		Name:  "reads and deletions work and nothing may be created: the last entry stays, and the status reports it",
		Break: func(t *testing.T) { znodes.Deny(t, faults.ProvidersPath(faults.MovingInterface), zk.PermCreate) },
		Change: func(t *testing.T) {
			for range 3 { // all of them are replaced
				m.Change(t)
			}
			m.SaysReason(t, faults.MovingService, "refused")
			harness.Unchanged(t, "something of it stays", func() bool { return len(znodes.Children(t, faults.ProvidersPath(faults.MovingInterface))) > 0 })
			if names := znodes.Children(t, faults.ProvidersPath(faults.MovingInterface)); len(names) == 0 {
				t.Error("no entry is left, and none may be made")
			}
		},
		Heal: func(t *testing.T) { znodes.Allow(t, faults.ProvidersPath(faults.MovingInterface)) },
	})
	m.Try(t, faults.Fault{
		Name:  "writes arrive and no answer does: nothing is written twice, nothing is lost",
		Break: func(*testing.T) { toZooKeeper.Deafen() },
		Lasts: 2 * session,
		Heal:  func(*testing.T) { toZooKeeper.Heal() },
	})
	m.Try(t, faults.Fault{
		Name:  "a ZooKeeper that answers after a second is slow and nothing else",
		Break: func(*testing.T) { toZooKeeper.Delay(time.Second) },
		Lasts: 2 * time.Second,
		Heal:  func(*testing.T) { toZooKeeper.Heal() },
	})
	m.Try(t, faults.Fault{
		Name:  "a ZooKeeper that is killed and comes back finds the changes of its absence",
		Break: func(*testing.T) { server.Kill() },
		Heal: func(t *testing.T) {
			server.Start(t)
			server.AwaitServing(t)
		},
	})
	frozenZooKeeper(t, m, server, znodes)
	actors(t, m, znodes, toZooKeeper)
	owners(t, m, meshToZooKeeper(m, "", patient, toZooKeeper.Address))
	rootDeleted(t, m, znodes)
}

// actors are others who write to the same registry.
func actors(t *testing.T, m *faults.Mesh, znodes *harness.Znodes, toZooKeeper *harness.ZooKeeperProxy) {
	t.Helper()
	var began time.Time
	m.Try(t, faults.Fault{
		Name: "somebody who deletes an entry again and again wins none of it, and is met without haste",
		Break: func(t *testing.T) {
			toZooKeeper.Forget()
			began = time.Now()
			for range 20 {
				for _, name := range znodes.Children(t, faults.ProvidersPath(faults.MovingInterface)) {
					znodes.Delete(t, faults.ProvidersPath(faults.MovingInterface)+"/"+name)
					break
				}
				<-time.NewTimer(100 * time.Millisecond).C
			}
		},
		After: func(t *testing.T) {
			// A group is written ten times at once, and then once a second; the
			// change is a write or two besides.
			took := time.Since(began)
			most := 10 + int(took/time.Second) + 2
			if n := len(toZooKeeper.Writes(faults.ProvidersPath(faults.MovingInterface))); n > most {
				t.Errorf("%d writes in %s, want %d at most", n, took, most)
			}
		},
	})
	foreign := faults.Registered(faults.MovingInterface, m.NextPort())
	m.Try(t, faults.Fault{
		Name:  "an address that another registered before us is theirs, and reported as a conflict",
		Break: func(t *testing.T) { znodes.Create(t, foreign, "theirs") },
		Change: func(t *testing.T) {
			before := znodes.Tree(t, foreign)
			m.Change(t)
			m.SaysReason(t, faults.MovingService, "conflict")
			if err := harness.Same(znodes.Tree(t, foreign), before); err != nil {
				t.Errorf("what is another's was touched: %v", err)
			}
		},
		Heal: func(t *testing.T) { znodes.Delete(t, foreign) },
	})
}

// owners are bridges that are started by mistake.
func owners(t *testing.T, m *faults.Mesh, config string) {
	t.Helper()
	refused := func(text string) func(*testing.T) {
		return func(t *testing.T) {
			other := harness.ConfiguredBridge(t, text)
			other.Start(t)
			if code := other.Process().Wait(t, faults.HealTime); code != 2 {
				t.Errorf("it ended with %d, want 2:\n%s", code, other.Log())
			}
		}
	}
	m.Try(t, faults.Fault{
		Name:  "a second bridge of the same owner is refused, and the first continues",
		Break: refused(config),
	})
	m.Try(t, faults.Fault{
		Name: "a bridge whose owner was changed is refused, and what the old one wrote stays",
		Break: func(t *testing.T) {
			m.Bridge.Stop(t)
			refused(strings.Replace(config, "owner: faults", "owner: mistake", 1))(t)
		},
		Heal: func(t *testing.T) { m.Bridge.Start(t) },
	})
}

// rootDeleted is the last of its world: what is others' goes too.
func rootDeleted(t *testing.T, m *faults.Mesh, znodes *harness.Znodes) {
	t.Helper()
	t.Run("a root that somebody deletes is written again", func(t *testing.T) {
		znodes.Prune(t, "/dubbo")
		m.Change(t)
		m.Agree(t)
	})
}
