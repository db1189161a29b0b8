package integration_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// removing is two bridges from real ZooKeepers into another, of which the second
// is removed from the file.
type removing struct {
	target *harness.Znodes
	bridge *harness.Bridge
	second string // its line of the file
}

// secondEntries is how many the second bridge writes.
const secondEntries = 12

func newRemoving(t *testing.T) *removing {
	t.Helper()
	to := harness.StartZooKeeper(t)
	r := &removing{target: harness.Connect(t, to.Address)}
	first, second := sourceOf(t, "first.Api", 2), sourceOf(t, "second.Api", secondEntries)
	line := "  - { name: %s, from: %[1]s, to: to, formats: [dubbo-interface], guard: { settle: 1s, lastEndpoint: 1s } }\n"
	r.second = fmt.Sprintf(line, "second")
	r.bridge = harness.ConfiguredBridge(t, fmt.Sprintf(`owner: removing
registries:
  first: { zookeeper: { servers: [%q] } }
  second: { zookeeper: { servers: [%q] } }
  to: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
%s%s`, first.Address, second.Address, to.Address, fmt.Sprintf(line, "first"), r.second))
	r.bridge.Start(t)
	r.bridge.AwaitReady(t)
	r.await(t, "first.Api", 2)
	r.await(t, "second.Api", secondEntries)
	return r
}

// sourceOf starts a ZooKeeper in which n providers of an interface register.
func sourceOf(t *testing.T, iface string, n int) *harness.ZooKeeper {
	t.Helper()
	from := harness.StartZooKeeper(t)
	source := harness.Connect(t, from.Address)
	for i := range n {
		provider := fmt.Sprintf("dubbo://10.1.0.%d:20880/%s?application=shop&category=providers&interface=%[2]s&side=provider", i+1, iface)
		source.Create(t, "/dubbo/"+iface+"/providers/"+url.QueryEscape(provider), "")
	}
	return from
}

func (r *removing) entries(t *testing.T, iface string) int {
	t.Helper()
	return len(r.target.Children(t, "/dubbo/"+iface+"/providers"))
}

func (r *removing) await(t *testing.T, iface string, n int) {
	t.Helper()
	harness.Eventually(t, soon, "the entries of "+iface, func() error { return harness.Same(r.entries(t, iface), n) })
}

// remove removes the second bridge from the file, by a reload or a restart.
func (r *removing) remove(t *testing.T, by string) {
	t.Helper()
	text, err := os.ReadFile(r.bridge.Config)
	if err != nil {
		t.Fatal(err)
	}
	if by == "restart" {
		r.bridge.Stop(t)
	}
	if err := os.WriteFile(r.bridge.Config, []byte(strings.Replace(string(text), r.second, "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if by == "restart" {
		r.bridge.Start(t)
		r.bridge.AwaitReady(t)
		return
	}
	if code, out, errOut := r.bridge.Do(t, "reload"); code != 0 || !strings.Contains(out, "bridge second: leaves to") {
		t.Fatalf("reload ends with %d: %s%s", code, out, errOut)
	}
}

// holds returns the ids of what is held back.
func (r *removing) holds(t *testing.T) []string {
	t.Helper()
	_, out, errOut := r.bridge.Do(t, "holds", "-o", "json")
	var page struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(out), &page); err != nil {
		t.Fatalf("holds: %v: %s%s", err, out, errOut)
	}
	var ids []string
	for _, h := range page.Items {
		ids = append(ids, h.ID)
	}
	return ids
}

// TestReload_RemovedBridge shows what happens to the entries of a bridge that is
// removed from the file, in a real ZooKeeper.
func TestReload_RemovedBridge(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for _, by := range []string{"reload", "restart"} {
		t.Run("approved after a "+by, func(t *testing.T) {
			r := newRemoving(t)
			before := r.target.Tree(t, "/dubbo")
			r.remove(t, by)
			harness.Eventually(t, 2*time.Minute, "its entries are held", func() error { return harness.Same(len(r.holds(t)), 1) })
			if diff := harness.Same(r.target.Tree(t, "/dubbo"), before); diff != nil {
				t.Errorf("an entry changed before a person decided: %v", diff)
			}
			if code, out, errOut := r.bridge.Do(t, "approve", r.holds(t)[0]); code != 0 {
				t.Fatalf("approve: %s%s", out, errOut)
			}
			r.await(t, "second.Api", 0)
			r.await(t, "first.Api", 2)
		})
		t.Run("purged after a "+by, func(t *testing.T) {
			r := newRemoving(t)
			r.remove(t, by)
			if code, out, errOut := r.bridge.Do(t, "purge", "--bridge", "second", "--yes"); code != 0 {
				t.Fatalf("purge: %s%s", out, errOut)
			}
			r.await(t, "second.Api", 0)
			r.await(t, "first.Api", 2)
			if ids := r.holds(t); len(ids) > 0 {
				t.Errorf("what is gone is held: %v", ids)
			}
		})
	}
}
