package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BridgeConfig is what differs between the configurations of the tests. The
// texts are inserted as they are: "a: 1, b: 2".
type BridgeConfig struct {
	Istiod    string   // address of xDS
	Security  string   // tls and tokenFile of the istiod registry
	Mapping   string   // settings of the mapping
	ZooKeeper []string // addresses
	Nacos     string   // settings of a Nacos to write to instead of ZooKeeper
	Timing    string   // of the writes, or empty for the defaults
	Guard     string   // settings of the guard: Swift, or empty for the defaults
}

// Swift is a guard that lets deletions go at once, for tests about speed.
const Swift = "lastEndpoint: 0s, settle: 0s, share: 1"

// Bridge is xds-bridge, which keeps the mesh of an istiod in a registry.
type Bridge struct {
	Config    string // the file
	Telemetry string // address of probes and metrics
	Admin     string // address of the status API

	Env    []string // what it is started with, next to the test's own
	Before []string // a program and its arguments that executes the bridge, such as prlimit

	owner   testing.TB // which the bridge ends with, whichever subtest starts it
	path    string
	process *Process
}

// NewBridge writes a configuration; Start starts the bridge with it.
func NewBridge(t testing.TB, c BridgeConfig) *Bridge {
	t.Helper()
	name, registry := "zk", fmt.Sprintf("zk:\n    zookeeper: { servers: [%s], sessionTimeout: 6s }", quoted(c.ZooKeeper))
	if c.Nacos != "" {
		name, registry = "nacos", fmt.Sprintf("nacos:\n    nacos: { %s }", c.Nacos)
	}
	return ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh:
    istiod:
      address: %s
      mapping: { %s }
      %s
  %s
    timing: { %s }
bridges:
  - name: mesh-to-%s
    from: mesh
    to: %[6]s
    formats: [dubbo-interface]
    select: { allow: [127.0.0.0/8] }
    guard: { %[7]s }
`, c.Istiod, c.Mapping, c.Security, registry, c.Timing, name, c.Guard))
}

// ConfiguredBridge writes a configuration of owner, registries and bridges;
// Start starts the bridge with it.
func ConfiguredBridge(t testing.TB, text string) *Bridge {
	t.Helper()
	b := &Bridge{owner: t, Config: filepath.Join(t.TempDir(), "config.yaml"), Telemetry: Address(t), Admin: Address(t), path: Program(t)}
	text = fmt.Sprintf("apiVersion: xds-bridge/v1\n%s\nadmin: { address: %q }\ntelemetry: { address: %q }\nlog: { level: debug }\n",
		text, b.Admin, b.Telemetry)
	must(t, os.WriteFile(b.Config, []byte(text), 0o600))
	return b
}

// StartBridge starts a bridge and waits until it is ready.
func StartBridge(t testing.TB, c BridgeConfig) *Bridge {
	t.Helper()
	b := NewBridge(t, c)
	b.Start(t)
	b.AwaitReady(t)
	return b
}

// Start starts the bridge, for the first time or once more.
func (b *Bridge) Start(t testing.TB) {
	t.Helper()
	command := append(slices.Clone(b.Before), b.path, "run", "--config", b.Config)
	b.process = Start(b.owner, Command{Name: "xds-bridge", Path: command[0], Args: command[1:], Env: b.Env})
}

// AwaitReady waits until the bridge has read the mesh completely.
func (b *Bridge) AwaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, startTime, "the bridge is ready", func() error {
		if !b.process.Running() {
			t.Fatalf("the bridge ended: %s", b.process.tail())
		}
		_, err := get(t, "http://"+b.Telemetry+"/readyz")
		return err
	})
}

// AwaitServed waits until istiods are answered by the bridge.
func (b *Bridge) AwaitServed(t testing.TB) {
	t.Helper()
	Eventually(t, startTime, "an istiod confirmed what it was sent", func() error {
		_, out, _ := b.Do(t, "status", "-o", "json")
		if !strings.Contains(out, `"acked": "`) {
			return fmt.Errorf("status: %s", out)
		}
		return nil
	})
}

// Process returns the running bridge.
func (b *Bridge) Process() *Process { return b.process }

// Kill ends the bridge at once.
func (b *Bridge) Kill() { b.process.Kill() }

// Stop asks the bridge to end and fails the test where it does not end well.
func (b *Bridge) Stop(t testing.TB) {
	t.Helper()
	if code := b.process.Stop(t); code != 0 {
		t.Errorf("the bridge ended with %d, want 0", code)
	}
}

// Signal sends the bridge a signal.
func (b *Bridge) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	b.process.Signal(t, s)
}

// Running reports whether the bridge runs.
func (b *Bridge) Running() bool { return b.process.Running() }

// Exited is closed when the bridge has ended.
func (b *Bridge) Exited() <-chan struct{} { return b.process.Exited() }

// Do runs another command of the program with the same configuration.
func (b *Bridge) Do(t testing.TB, command string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return Run(t, b.path, append([]string{command, "--config", b.Config}, args...)...)
}

// Log returns what the bridge printed since its last start.
func (b *Bridge) Log() string { return b.process.Log() }

// Metrics returns what the bridge serves for Prometheus.
func (b *Bridge) Metrics(t testing.TB) string {
	t.Helper()
	body, err := get(t, "http://"+b.Telemetry+"/metrics")
	must(t, err)
	return string(body)
}

// Program returns what XDS_BRIDGE_BINARY names, or builds it.
func Program(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("XDS_BRIDGE_BINARY"); path != "" {
		return path
	}
	path := filepath.Join(Root(t), "bin", "xds-bridge")
	code, _, errOut := Run(t, "env", "GOWORK=off", "go", "build", "-C", Root(t), "-trimpath", "-o", path, "./cmd/xds-bridge")
	if code != 0 {
		t.Fatalf("build the bridge: %s", errOut)
	}
	return path
}

func quoted(words []string) string {
	var parts []string
	for _, w := range words {
		parts = append(parts, fmt.Sprintf("%q", w))
	}
	return strings.Join(parts, ", ")
}

// unchangedTime is how long a test watches that nothing happens.
const unchangedTime = 3 * time.Second

// Unchanged fails the test where a value changes within a few seconds.
func Unchanged[T any](t testing.TB, what string, look func() T) {
	t.Helper()
	before := look()
	Stays(t, unchangedTime, what, func() error { return Same(look(), before) })
}
