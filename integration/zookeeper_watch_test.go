package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestZooKeeper_WatchedAfterRestart restarts the server that is written to, time and
// again, and deletes a parent after each: its nodes are there again within two seconds, or
// the bridge says until then that it is not in sync.
func TestZooKeeper_WatchedAfterRestart(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const (
		restarts = 20
		promised = 2 * time.Second
		parent   = "/dubbo/shop.Api/providers"
	)
	source, target := sourceOf(t, "shop.Api", 2), harness.StartZooKeeper(t)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  from: { zookeeper: { servers: [%q] } }
  to: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: b, from: from, to: to, formats: [dubbo-interface] }`, source.Address, target.Address))
	bridge.Start(t)
	bridge.AwaitReady(t)
	away, said := 0, 0
	for n := range restarts {
		if target.Process().Running() {
			target.Process().Signal(t, syscall.SIGTERM)
			<-target.Process().Exited()
		}
		time.Sleep(time.Second)
		target.Start(t)
		target.AwaitServing(t)
		znodes := harness.Connect(t, target.Address)
		gone := func() bool { return len(znodes.Children(t, parent)) == 0 }
		harness.Eventually(t, soon, "it is written", func() error { return harness.Same(gone(), false) })
		time.Sleep(time.Duration(n) * 500 * time.Millisecond) // at each time of what follows a restart
		znodes.Prune(t, parent)
		deleted, hidden := time.Now(), time.Duration(0)
		for before := false; gone(); {
			inSync := saysInSync(t, bridge)
			if since := time.Since(deleted); gone() && since > promised {
				away++
				switch {
				case !inSync:
					said++
				case before: // one look may come while what was just written is read back over a new connection
					hidden = since
				}
			}
			before = inSync
			if time.Since(deleted) > 6*time.Minute {
				t.Fatalf("restart %d: still away", n)
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("restart %d: back after %v", n, time.Since(deleted))
		if hidden > 0 {
			t.Errorf("restart %d: in sync while the parent was away, up to %v after its deletion", n, hidden)
		}
	}
	t.Logf("away for longer than %v at %d looks, not in sync at %d of them", promised, away, said)
}

func saysInSync(t *testing.T, b *harness.Bridge) bool {
	t.Helper()
	r, err := http.Get("http://" + b.Admin + "/api/v1/status") //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		InSync *bool `json:"in_sync"`
	}
	if err := json.Unmarshal(text, &d); err != nil || d.InSync == nil {
		t.Fatalf("status: %v, %s", err, text)
	}
	return *d.InSync
}
