package dataplane_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
)

const rules = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: { name: greeter }
spec:
  host: %[1]s
  subsets:
    - { name: stable, labels: { version: v1 } }
    - { name: canary, labels: { version: v2 } }
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: greeter }
spec:
  hosts: [ %[1]s ]
  http:
    - match: [ { headers: { canary: { exact: "yes" } } } ]
      route: [ { destination: { host: %[1]s, subset: canary } } ]
    - route: [ { destination: { host: %[1]s, subset: stable } } ]
`

// TestDataPlane_Bridge has gRPC without a proxy call what Kratos
// registers in ZooKeeper, while the bridge in between ends and begins again. The
// mesh has no istiod.
func TestDataPlane_Bridge(t *testing.T) {
	t.Parallel()
	zookeeper := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, zookeeper.Address)
	register := func(version string, port uint32) {
		znodes.Create(t, fmt.Sprintf("/microservices/greeter/%d", port), fmt.Sprintf(
			`{"id":"%d","name":"greeter","version":%q,"metadata":{"version":%[2]q},"endpoints":["grpc://127.0.0.1:%[1]d"]}`, port, version))
	}
	stable, canary := backend(t), backend(t)
	register("v1", stable)
	register("v2", canary)
	host := naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}.Of(naming.MeshName{Name: "greeter", Protocol: "grpc"})
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, rules, host), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := harness.Address(t)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { import: { dataPlanes: true, exportTo: [shop], rulesFile: %q } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [kratos], select: { allow: [127.0.0.0/8] }, guard: { %s } }
`, file, zookeeper.Address, listen, harness.Swift))
	bridge.Start(t)
	bridge.AwaitReady(t)
	conn := proxyless(t, listen, "xds:///"+host+":50051")
	for range 20 {
		if got := call(t, conn); got != stable {
			t.Fatalf("%d answers, want %d", got, stable)
		}
		if got := call(t, conn, "canary", "yes"); got != canary {
			t.Fatalf("%d answers a call with the header, want %d", got, canary)
		}
	}
	t.Run("the bridge shows who reads", func(t *testing.T) {
		harness.Eventually(t, soon, "a data plane in the status", func() error {
			_, out, _ := bridge.Do(t, "status", "-o", "json")
			if !strings.Contains(out, `"data_plane": true`) {
				return errors.New(out)
			}
			return nil
		})
	})
	t.Run("a bridge that is killed and starts again costs no call", func(t *testing.T) {
		stop := callAll(t, conn)
		bridge.Kill()
		<-bridge.Exited()
		stop.await(t)
		bridge.Start(t)
		bridge.AwaitReady(t)
		next := backend(t)
		register("v1", next)
		seen := make(map[uint32]bool)
		harness.Eventually(t, soon, "the provider that came meanwhile", func() error {
			seen[call(t, conn)] = true
			return harness.Same(seen[next], true)
		})
		stop.end()
	})
}

// load is calls without a pause.
type load struct {
	ended   atomic.Bool
	calls   atomic.Int64
	running sync.WaitGroup
}

func callAll(t *testing.T, conn *grpc.ClientConn) *load {
	t.Helper()
	l := &load{}
	for range 4 {
		l.running.Go(func() {
			for !l.ended.Load() {
				if _, err := tryCall(t.Context(), conn); err != nil {
					t.Error(err)
					return
				}
				l.calls.Add(1)
			}
		})
	}
	return l
}

// await waits for some more calls.
func (l *load) await(t *testing.T) {
	t.Helper()
	before := l.calls.Load()
	harness.Eventually(t, soon, "calls", func() error {
		if l.calls.Load() < before+100 {
			return errors.New("too few")
		}
		return nil
	})
}

func (l *load) end() {
	l.ended.Store(true)
	l.running.Wait()
}
