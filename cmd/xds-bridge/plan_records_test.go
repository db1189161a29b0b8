package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/internal/operation"
)

// twenty is a world with twenty services of one endpoint below /a, which a bridge
// copies to /b.
type twenty struct {
	*world
	file string
}

func newTwenty(t *testing.T) twenty {
	t.Helper()
	w := twenty{world: newWorld(t)}
	for i := range 20 {
		w.put(i)
	}
	w.file = w.world.file("config.yaml", fmt.Sprintf(`owner: shop
registries:
  a: { zookeeper: { servers: ["%s/a"] } }
  b: { zookeeper: { servers: ["%[1]s/b"] }, timing: { debounce: 1ms, retryMin: 10ms, retryMax: 100ms } }
bridges:
  - { name: ab, from: a, to: b, formats: [kratos], guard: { settle: 0s, lastEndpoint: 0s } }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json, level: debug }
`, w.zkAt, w.dir))
	return w
}

func (twenty) node(i int) string { return fmt.Sprintf("/a/microservices/s%02d/1", i) }

func (w twenty) put(i int) {
	w.t.Helper()
	if err := w.zk.Put(w.node(i), fmt.Appendf(nil, `{"id":"1","name":"s%02d","version":"v1","endpoints":["grpc://10.0.0.%d:9000"]}`, i, i+1)); err != nil {
		w.t.Fatal(err)
	}
}

// remove withdraws services from one to before another.
func (w twenty) remove(from, to int) {
	for i := from; i < to; i++ {
		w.zk.Delete(w.node(i))
	}
}

// protect sets what anybody may do to the written services.
func (w twenty) protect(perms int32) {
	w.t.Helper()
	for i := range 20 {
		if err := w.zk.SetACL(fmt.Sprintf("/b/microservices/s%02d", i), zkfake.WorldACL(perms)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// written counts the entries that are written.
func (w twenty) written() (n int) {
	for _, p := range w.zk.Paths("/b/microservices") {
		if strings.Count(p, "/") == 4 {
			n++
		}
	}
	return n
}

func (w twenty) holds() []admin.Hold {
	w.t.Helper()
	var page admin.Page[admin.Hold]
	if err := json.Unmarshal([]byte(do(w.t, "holds", "-f", w.file, "-o", "json").out), &page); err != nil {
		w.t.Fatal(err)
	}
	return page.Items
}

// hold waits for the hold of so many entries and returns its id.
func (w twenty) hold(entries int) (id string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d are held", entries), func() bool {
		list := w.holds()
		if len(list) == 1 && list[0].Count == entries {
			id = list[0].ID
		}
		return id != ""
	})
	return id
}

// plans compares what a plan counts.
func (w twenty) plans(deleted, held int) {
	w.t.Helper()
	var d operation.Difference
	r := do(w.t, "plan", "-f", w.file, "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		w.t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	if d.Summary.Delete != deleted || d.Summary.Held != held {
		w.t.Errorf("the plan has %d to delete and %d held, want %d and %d", d.Summary.Delete, d.Summary.Held, deleted, held)
	}
}

// TestPlan_Approval shows that a plan deletes entries whose deletion an operator approved.
func TestPlan_Approval(t *testing.T) {
	t.Parallel()
	w := newTwenty(t)
	r := w.start(w.file)
	isInSync(t, w.file)
	w.protect(zkfake.PermRead)
	w.remove(0, 8)
	do(t, "approve", w.hold(8), "-f", w.file).want(t, exitOK)
	r.stop()
	w.protect(zkfake.PermAll)
	w.plans(8, 0)
	w.start(w.file)
	eventually(t, "the next start deletes them", func() bool { return w.written() == 12 })
}

// TestPlan_Denial shows that a plan keeps what an operator denied, next to the bridge and
// without it.
func TestPlan_Denial(t *testing.T) {
	t.Parallel()
	w := newTwenty(t)
	r := w.start(w.file)
	isInSync(t, w.file)
	w.remove(0, 8)
	do(t, "deny", w.hold(8), "-f", w.file).want(t, exitOK)
	for i := 2; i < 8; i++ {
		w.put(i)
	}
	w.hold(2)
	w.plans(0, 2)
	r.stop()
	w.plans(0, 2)
}

// TestPlan_Losses shows that a plan counts what was lost within the hour, and that a
// dry run records nothing.
func TestPlan_Losses(t *testing.T) {
	t.Parallel()
	w := newTwenty(t)
	r := w.start(w.file)
	isInSync(t, w.file)
	w.remove(0, 5)
	eventually(t, "five are deleted", func() bool { return w.written() == 15 })
	r.stop()
	w.remove(5, 8)
	w.plans(0, 3)
	before := w.records()
	r = w.start(w.file, "--dry-run")
	w.hold(3)
	do(t, "approve", w.hold(3), "-f", w.file).want(t, exitOK)
	eventually(t, "the dry run would delete them", func() bool { return strings.Count(r.log.String(), `"would delete"`) >= 3 })
	r.stop()
	if after := w.records(); after != before || before == "" {
		t.Errorf("recorded before the dry run:\n%s\nafter it:\n%s", before, after)
	}
	w.start(w.file)
	w.hold(3)
}

// records returns what is recorded, as text.
func (w twenty) records() string {
	var all strings.Builder
	for _, p := range w.zk.Paths("/b/xds-bridge/shop") {
		n, _ := w.zk.Get(p)
		fmt.Fprintf(&all, "%s %s\n", p, n.Data)
	}
	return all.String()
}
