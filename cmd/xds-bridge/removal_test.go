package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/admin"
)

const firstAlone = quick + `, select: { include: ["orders.*"] }, names: [{ host: "orders.*", service: orders }]`

// removing is a world of two bridges, of which the second goes.
type removing struct {
	*world

	running
	file, first string // and the text with the first bridge alone
	trail       string
}

// secondMark is what the second bridge is called once it is not configured.
const secondMark = "mark:2or"

// second returns the line of the second bridge.
func second(formats string) string {
	return "bridges:\n  - { name: second, from: mesh, to: zk, formats: [" + formats + "], select: { include: [\"greeter.*\"] }, names: [{ host: \"greeter.*\", service: greeter }]" + quick + " }\n"
}

// newRemoving starts both bridges, each with two endpoints in two formats.
func newRemoving(t *testing.T) *removing {
	t.Helper()
	r := &removing{world: newWorld(t)}
	r.publish(map[string]string{"providers:api.Orders:1.0:": orders, "providers:api.Greeter:1.0:": greeter})
	r.offer(greeter, "10.0.1.1", "10.0.1.2")
	r.trail = filepath.Join(r.dir, "audit.ndjson")
	r.file = r.config(fileOptions{bridge: firstAlone, file: "audit: { file: " + r.trail + " }\n"})
	r.replaced(r.file, "formats: [dubbo-interface]", "formats: [dubbo-interface, kratos]")
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	r.first = string(text)
	r.with("dubbo-interface, kratos")
	r.running = r.start(r.file)
	isInSync(t, r.file)
	r.left(t, 2, 2)
	return r
}

// with writes the file with the second bridge in some formats; without them
// the first is alone.
func (r *removing) with(formats string) {
	text := r.first
	if formats != "" {
		text = strings.Replace(text, "bridges:\n", second(formats), 1)
	}
	r.world.file("config.yaml", text)
}

// apply has a change of the file applied by a reload or by a restart.
func (r *removing) apply(t *testing.T, by string) {
	t.Helper()
	if by == "reload" {
		do(t, "reload", "-f", r.file).want(t, exitOK)
		return
	}
	r.stop()
	r.running = r.start(r.file)
	eventually(t, "it is in sync but for what it holds or a person denied", func() bool {
		d := statusOf(t, r.file)
		return d.Ready && !slices.ContainsFunc(d.Conditions, func(c admin.Condition) bool { return c.Lasts() && c.Name != admin.Held && c.Name != admin.Denied })
	})
}

// left fails unless so many entries of the second bridge are there.
func (r *removing) left(t *testing.T, dubbo, kratos int) {
	t.Helper()
	if is := [2]int{len(r.providers("api.Greeter")), len(r.zk.Children("/microservices/greeter"))}; is != [2]int{dubbo, kratos} {
		t.Errorf("%v entries in dubbo-interface and kratos, want %d and %d", is, dubbo, kratos)
	}
	if n := len(r.providers("api.Orders")); n != 2 {
		t.Errorf("%d entries of the other bridge, want 2", n)
	}
}

// holds returns what is held of the second bridge and not denied.
func (r *removing) holds(t *testing.T) []admin.Hold {
	t.Helper()
	var page admin.Page[admin.Hold]
	if err := json.Unmarshal([]byte(do(t, "holds", "--bridge", "second", "-o", "json", "-f", r.file).out), &page); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(page.Items, func(h admin.Hold) bool { return h.Denied })
}

// TestPurge_Bridge shows that a plan holds what a bridge that is gone
// wrote, and that purge deletes that alone, at once.
func TestPurge_Bridge(t *testing.T) {
	t.Parallel()
	r := newRemoving(t)
	r.elsewhere()
	do(t, "purge", "--bridge", "second", "--yes", "-f", r.file).want(t, exitUsage, "a bridge of owner shop still runs", "stop it first")
	r.with("")
	do(t, "reload", "-f", r.file).want(t, exitOK, "bridge second: leaves zk; its entries there are held for approval as those of "+secondMark)
	do(t, "plan", "-f", r.file).want(t, exitFindings, "held: bridge "+secondMark+" is not configured", "4 held by the guard")
	do(t, "purge", "--bridge", "third", "--yes", "-f", r.file).want(t, exitOK, "There is nothing of bridge third of owner shop to purge.")
	do(t, "purge", "--bridge", "second at kratos:/", "--yes", "-f", r.file).want(t, exitUsage, "is no bridge")
	do(t, "purge", "--bridge", "second", "--owner", "else", "--yes", "-f", r.file).want(t, exitFindings, `no owner "else" is known`)
	do(t, "purge", "--bridge", "second", "-f", r.file).want(t, exitOK, "4 entries of bridge second of owner shop would be deleted; set --yes")
	r.left(t, 2, 2)
	do(t, "purge", "--bridge", secondMark, "--yes", "-f", r.file).want(t, exitOK, "4 entries of bridge "+secondMark+" of owner shop: deleted.")
	r.left(t, 0, 0)
	isInSync(t, r.file)
	do(t, "plan", "-f", r.file).want(t, exitOK, "Nothing differs.")
	if text, err := os.ReadFile(r.trail); err != nil || !strings.Contains(string(text), `"action":"purge","owner":"shop","target":"zk","bridge":"`+secondMark) {
		t.Errorf("the audit does not report it: %s, %v", text, err)
	}
	if _, known := r.zk.Get("/xds-bridge/shop/alive"); !known {
		t.Error("the owner is forgotten with its bridge")
	}
}

// TestReload_RemovedFormat shows that they are those of the bridge at
// that place.
func TestReload_RemovedFormat(t *testing.T) {
	t.Parallel()
	r := newRemoving(t)
	r.with("kratos")
	do(t, "plan", "-f", r.file).want(t, exitFindings, "held: bridge second at dubbo-interface:/dubbo/ is not configured", "2 held by the guard")
	r.with("dubbo-interface, { format: kratos, root: /other }")
	do(t, "plan", "-f", r.file).want(t, exitFindings, "held: bridge second at kratos:/microservices/ is not configured", "2 to create", "2 held by the guard")
	r.left(t, 2, 2)
}

// TestReload_RemovedBridge shows how a
// bridge or a format goes, and how each hold on it ends.
func TestReload_RemovedBridge(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a minute, guard.settle of a bridge that is not configured: make test-all runs it")
	}
	t.Parallel()
	const format = "second at kratos:/microservices/"
	for name, test := range map[string]struct {
		by, formats, bridge string
		held                int
		end                 func(r *removing, t *testing.T, id string)
	}{
		"a bridge by a reload, denied":      {"reload", "", secondMark, 4, (*removing).denied},
		"a bridge by a restart, approved":   {"restart", "", secondMark, 4, (*removing).approved},
		"a format by a reload, approved":    {"reload", "dubbo-interface", format, 2, (*removing).approved},
		"a format by a restart, configured": {"restart", "dubbo-interface", format, 2, (*removing).configured},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRemoving(t)
			r.with(test.formats)
			r.apply(t, test.by)
			eventually(t, "it is held", func() bool { return strings.Contains(r.log.String(), "deletions exceed what the guard allows") })
			r.left(t, 2, 2)
			all := r.holds(t)
			if len(all) != 1 || all[0].Bridge != test.bridge || len(all[0].Entries) != test.held {
				t.Fatalf("%+v", all)
			}
			do(t, "status", "-f", r.file).want(t, exitHeld, "bridge "+test.bridge+" is not configured")
			test.end(r, t, all[0].ID)
		})
	}
}

// TestReload_RenamedBridge: an address that died while a bridge was
// renamed and restarted is nobody's claim. It is shown, and decided by an operator.
func TestReload_RenamedBridge(t *testing.T) {
	t.Parallel()
	r := newRemoving(t)
	r.stop()
	r.offer(greeter, "10.0.1.1")
	r.file = r.world.file("config.yaml", strings.Replace(r.first, "bridges:\n", strings.Replace(second("dubbo-interface, kratos"), "name: second", "name: renamed", 1), 1))
	do(t, "plan", "-f", r.file).want(t, exitFindings, "held: bridge "+secondMark+" is not configured", "2 to update", "2 held by the guard")
	if testing.Short() {
		t.Skip("waits for a minute, guard.settle of a bridge that is not configured: make test-all runs it")
	}
	r.running = r.start(r.file)
	eventually(t, "it is held", func() bool { return do(t, "status", "-f", r.file).code == exitHeld })
	do(t, "status", "-f", r.file).want(t, exitHeld, "zk held", "bridge "+secondMark+" is not configured")
	do(t, "holds", "-f", r.file).want(t, exitHeld, "10.0.1.2")
	if _, metrics := r.probe(t, "/metrics"); !strings.Contains(metrics, `xdsbridge_guard_holds{listen="",registry="zk"} 1`) {
		t.Error("no metric reports it")
	}
	r.left(t, 2, 2)
}

// approved shows that an approval deletes what is held, and nothing else.
func (r *removing) approved(t *testing.T, id string) {
	t.Helper()
	dubbo := 4 - len(r.holds(t)[0].Entries)
	do(t, "approve", id, "-f", r.file).want(t, exitOK)
	eventually(t, "they are deleted", func() bool { return len(r.zk.Children("/microservices/greeter")) == 0 })
	isInSync(t, r.file)
	r.left(t, dubbo, 0)
}

// denied shows that a denial keeps them over a restart, until the bridge is back.
func (r *removing) denied(t *testing.T, id string) {
	t.Helper()
	do(t, "deny", id, "-f", r.file).want(t, exitOK)
	r.apply(t, "restart")
	r.left(t, 2, 2)
	r.configured(t, id)
}

// configured shows that nothing is held of a bridge that is configured again.
func (r *removing) configured(t *testing.T, _ string) {
	t.Helper()
	r.with("dubbo-interface, kratos")
	r.apply(t, "reload")
	isInSync(t, r.file)
	if all := r.holds(t); len(all) > 0 {
		t.Errorf("still held: %+v", all)
	}
	r.left(t, 2, 2)
}
