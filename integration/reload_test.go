package integration_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// reloads is how often each kind of reload is tried.
const reloads = 10

// A reloading is a kind of change of the configuration: what of the text it
// replaces, in turn, and what the bridge then says that it did.
type reloading struct {
	name     string
	old, new string
	says     string
}

// reloading replaces a text in the file of a bridge, has it read again, and
// waits until the bridge is in sync.
func (r reloading) do(t *testing.T, b *harness.Bridge, there bool) { //nolint:revive // and back
	t.Helper()
	from, to := r.old, r.new
	if !there {
		from, to = to, from
	}
	text, err := os.ReadFile(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), from, to, 1)
	if changed == string(text) {
		t.Fatalf("no %q in\n%s", from, text)
	}
	if err := os.WriteFile(b.Config, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := b.Do(t, "reload")
	if code != 0 || !strings.Contains(out, r.says) {
		t.Fatalf("reload: %d %s%s, want %q", code, out, errOut, r.says)
	}
	isInSync(t, b)
}

// TestReloadZooKeeper reloads in every case while a subscriber watches real
// ZooKeeper: no entry goes, and what a reload does not concern is not written.
func TestReloadZooKeeper(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 18431, 18432, 18433)
	w.publish(t)
	config := w.config()
	config.Timing = "debounce: 50ms"
	bridge := harness.StartBridge(t, config)
	w.awaitEntries(t, providers, 18431, 18432, 18433)
	children := w.znodes.Watch(t, providers)
	for _, kind := range []reloading{
		{"guards and timing", "debounce: 50ms", "debounce: 20ms", "guards and timing changed"},
		{"the selection of a bridge", "allow: [127.0.0.0/8]", "allow: [127.0.0.0/8], exclude: [nobody]", "loop zk: restarted"},
		{"how the mesh is read", "interval: 200ms", "interval: 300ms", "source mesh: restarted"},
		{"the connection to the registry", "sessionTimeout: 6s", "sessionTimeout: 8s", "target zk: connected anew"},
		{"a file that is wrong", "x", "x", ""},
	} {
		t.Run(kind.name, func(t *testing.T) {
			w.untouched(t, func() {
				for i := range reloads {
					if kind.says == "" {
						wrong(t, bridge)
						continue
					}
					kind.do(t, bridge, i%2 == 0)
				}
			})
		})
	}
	if n := children.Fewest(); n < 3 {
		t.Errorf("at some time only %d entries were there", n)
	}
	w.greet(t, 18431, 18434)
	w.awaitEntries(t, providers, 18431, 18434)
}

// wrong has a bridge read a file that is none, and puts the file back.
func wrong(t *testing.T, b *harness.Bridge) {
	t.Helper()
	good, err := os.ReadFile(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.Config, append([]byte("nonsense: 1\n"), good...), 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(b.Config, good, 0o600); err != nil {
			t.Error(err)
		}
	}()
	b.Signal(t, syscall.SIGHUP)
	harness.Eventually(t, soon, "the metric says so", func() error {
		if !strings.Contains(b.Metrics(t), "xdsbridge_config_last_reload_successful 0") {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestReloadNacos does the same on real Nacos, where instances live only
// as long as a connection: a new one publishes before the old one ends.
func TestReloadNacos(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	eachNacos(t, func(t *testing.T, version int) {
		w := &nacosMesh{mesh: harness.NewMesh(t), whole: t}
		w.istiod, w.second = harness.StartIstiod(t, w.mesh), harness.StartIstiod(t, w.mesh)
		w.server = harness.SharedNacos(t, version)
		w.watch()
		w.greet(t, 18441, 18442)
		config := w.config()
		config.Timing = "debounce: 50ms"
		config.Nacos += ", limits: { maxReceive: 64MiB }"
		bridge := harness.StartBridge(t, config)
		harness.Publish(t, w.istiod.GRPC, fmt.Sprintf("greet-%d", version), map[string]string{greetKey: greetAddress})
		w.await(t, 18441, 18442)
		for _, kind := range []reloading{
			{"guards and timing", "debounce: 50ms", "debounce: 20ms", "guards and timing changed"},
			{"the selection of a bridge", "allow: [127.0.0.0/8]", "allow: [127.0.0.0/8], exclude: [nobody]", "loop nacos: restarted"},
			{"how the mesh is read", "interval: 200ms", "interval: 300ms", "source mesh: restarted"},
			{"the connection to the registry", "maxReceive: 64MiB", "maxReceive: 32MiB", "target nacos: connected anew"},
		} {
			t.Run(kind.name, func(t *testing.T) {
				at := time.Now()
				for i := range reloads {
					kind.do(t, bridge, i%2 == 0)
				}
				w.neverFewer(t, at, 2)
			})
		}
		w.greet(t, 18441, 18443)
		w.await(t, 18441, 18443)
		bridge.Stop(t)
	})
}

// neverFewer fails the test where the subscriber was notified of fewer instances
// since a time, the seconds after this included.
func (w *nacosMesh) neverFewer(t *testing.T, since time.Time, want int) {
	t.Helper()
	harness.Stays(t, 3*time.Second, "no instance goes", func() error {
		for _, list := range w.greets.Since(since) {
			if len(list.Addresses) < want {
				return fmt.Errorf("the SDK was notified of %v", list)
			}
		}
		return nil
	})
}
