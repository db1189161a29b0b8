package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/internal/statustest"
)

// commands asks a bridge in this process.
type commands struct {
	t    *testing.T
	r    running
	file string
}

func (v commands) Do(args ...string) (int, string) {
	v.t.Helper()
	r := do(v.t, append(args, "-f", v.file)...)
	return r.code, r.out + r.err
}

func (v commands) Get(path string) (int, string) {
	v.t.Helper()
	return v.r.probe(v.t, path)
}

// statesOfOneProcess returns what is said in the states that
// TestStates_OneProcess brings the world into.
func statesOfOneProcess() map[string]statustest.Row {
	return statustest.ByState(
		statustest.Row{State: "mesh never read", Conditions: []string{"source mesh pending", "target zk syncing"}, Column: "PENDING", Exit: 1, Why: "any", Event: "condition pending", Alert: "XdsBridgeSourceStale", Ready: "503", Live: "200"},
		statustest.Row{State: "service keys refused", Conditions: []string{"source mesh partial"}, Column: "PARTIAL", Exit: 1, Why: "synced", Event: "condition partial", Alert: "XdsBridgePartial", Ready: "200", Live: "200"},
		statustest.Row{State: "ZooKeeper never listed", Conditions: []string{"target zk unreachable"}, Column: "UNREACHABLE", Exit: 1, Why: "any", Event: "condition unreachable", Alert: "XdsBridgeTargetUnreachable", Ready: "503", Live: "200"},
		statustest.Row{State: "ZooKeeper unwatched", Conditions: []string{"target zk unwatched"}, Column: "UNWATCHED", Exit: 1, Why: "synced", Event: "condition unwatched", Alert: "XdsBridgeUnwatched", Ready: "200", Live: "200"},
		statustest.Row{State: "a loss cannot be recorded", Conditions: []string{"target zk unrecorded"}, Column: "UNRECORDED", Exit: 1, Why: "synced", Event: "condition unrecorded", Alert: "XdsBridgeUnrecorded", Ready: "200", Live: "200"},
		statustest.Row{State: "a hold was denied", Conditions: []string{"target zk denied"}, Column: "DENIED", Exit: 1, Why: "held", Event: "condition denied", Alert: "none", Ready: "200", Live: "200"},
		statustest.Row{State: "the owner was changed", Conditions: []string{"target zk2 owner-conflict"}, Column: "OWNER CONFLICT", Exit: 1, Why: "conflict", Event: "condition owner-conflict", Alert: "XdsBridgeTargetUnreachable", Ready: "503", Live: "200"},
		statustest.Row{State: "the lease out of reach", Conditions: []string{"process lease-unreachable"}, Column: "-", Exit: 1, Why: "any", Event: "condition lease-unreachable", Alert: "XdsBridgeLeaseUnreachable", Ready: "200", Live: "200"},
		statustest.Row{State: "a replica too few", Conditions: []string{"process replica-missing"}, Column: "-", Exit: 1, Why: "any", Event: "condition replica-missing", Alert: "XdsBridgeReplicaMissing", Ready: "200", Live: "200"},
		statustest.Row{State: "audit.file out of reach", Conditions: []string{"process unrecorded"}, Column: "-", Exit: 1, Why: "any", Event: "condition unrecorded", Alert: "XdsBridgeUnrecorded", Ready: "200", Live: "200"},
		statustest.Row{State: "a wrong root", Conditions: []string{"target zk2 idle"}, Column: "IDLE", Exit: 1, Why: "-", Event: "condition idle", Alert: "XdsBridgeIdle", Ready: "200", Live: "200"},
	)
}

// TestStates_OneProcess brings the world into the states that real servers
// cannot be brought into in a moment.
func TestStates_OneProcess(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rows := statesOfOneProcess()
	brought := map[string]func(*testing.T, *world) (file string, r running){
		"mesh never read": func(_ *testing.T, w *world) (string, running) {
			text := w.text(w.config(fileOptions{bridge: quick}))
			file := w.file("config.yaml", strings.Replace(text, w.xds, "127.0.0.1:1", 1))
			return file, w.start(file)
		},
		"service keys refused": func(t *testing.T, w *world) (string, running) {
			file := w.config(fileOptions{bridge: quick})
			r := w.start(file)
			isInSync(t, file)
			w.refuse(http.StatusForbidden)
			return file, r
		},
		"ZooKeeper never listed": func(_ *testing.T, w *world) (string, running) {
			file := w.config(fileOptions{bridge: quick})
			_ = w.zk.Close()
			return file, w.start(file)
		},
		"ZooKeeper unwatched": func(_ *testing.T, w *world) (string, running) {
			w.zk.SetFault(func(r zkfake.Request) (f zkfake.Fault) {
				if r.Op == zkfake.OpSync { // the first request over a connection for watches
					f.Cut = zkfake.CutBefore
				}
				return f
			})
			file := w.config(fileOptions{bridge: quick})
			return file, w.start(file)
		},
		"a loss cannot be recorded": func(t *testing.T, w *world) (string, running) {
			w.zk.SetFault(func(r zkfake.Request) (f zkfake.Fault) {
				if slices.ContainsFunc(r.Paths, func(p string) bool { return strings.HasPrefix(p, "/xds-bridge/shop/guard") }) && r.Op != zkfake.OpGetChildren2 {
					f.Code = -102 // no authorization
				}
				return f
			})
			w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3")
			file := w.config(fileOptions{bridge: quick})
			r := w.start(file)
			isInSync(t, file)
			w.offer(orders, "10.0.0.1", "10.0.0.2")
			return file, r
		},
		"a hold was denied": func(t *testing.T, w *world) (string, running) {
			w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
			file := w.config(fileOptions{bridge: ", guard: { settle: 0s, lastEndpoint: 0s, atLeast: 1 }"})
			r := w.start(file)
			isInSync(t, file)
			w.offer(orders, "10.0.0.1")
			var page admin.Page[admin.Hold]
			eventually(t, "all that is gone is held", func() bool {
				out := do(t, "holds", "-o", "json", "-f", file).out
				return json.Unmarshal([]byte(out), &page) == nil && len(page.Items) == 1 && page.Items[0].Count == 4
			})
			do(t, "deny", page.Items[0].ID, "-f", file).want(t, exitOK)
			return file, r
		},
		"the owner was changed": func(t *testing.T, w *world) (string, running) {
			_, both := w.second()
			do(t, "run", "--once", "-f", w.file("before.yaml", both("shpo"))).want(t, exitOK)
			do(t, "purge", "--owner", "shpo", "--target", "zk", "--yes", "-f", w.file("before.yaml", both("shpo"))).want(t, exitOK)
			file := w.config(fileOptions{bridge: quick})
			r := w.start(file)
			isInSync(t, file)
			w.file("config.yaml", both("shop"))
			do(t, "reload", "-f", file).want(t, exitOK)
			return file, r
		},
		"the lease out of reach": func(t *testing.T, w *world) (string, running) {
			locks := zkfake.New(zkfake.Options{})
			at, err := locks.Listen(t.Context(), "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			text := w.text(w.config(fileOptions{bridge: quick, file: "replicas: { expected: 1, lease: { zookeeper: locks } }\n"}))
			file := w.file("config.yaml", strings.Replace(text, "bridges:\n", "  locks: { zookeeper: { servers: [\""+at+"\"], timeout: 2s } }\nbridges:\n", 1))
			r := w.start(file)
			isInSync(t, file)
			_ = locks.Close()
			return file, r
		},
		"a replica too few": func(_ *testing.T, w *world) (string, running) {
			file := w.config(fileOptions{bridge: quick, file: "replicas: { lease: { zookeeper: zk } }\n"})
			return file, w.start(file)
		},
		"audit.file out of reach": func(_ *testing.T, w *world) (string, running) {
			file := w.config(fileOptions{bridge: quick, file: "audit: { file: " + w.dir + "/nowhere/audit.ndjson }\n"})
			return file, w.start(file)
		},
		"a wrong root": func(_ *testing.T, w *world) (string, running) {
			_, both := w.second()
			registries, rest, _ := strings.Cut(both("shop"), "bridges:\n")
			_, rest, _ = strings.Cut(rest, "admin:")
			const wrong = "bridges:\n  - { name: wrong, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /wrong }] }\n"
			file := w.file("config.yaml", registries+wrong+"admin:"+rest)
			return file, w.start(file)
		},
	}
	for state, row := range rows {
		bring := brought[state]
		if bring == nil {
			t.Errorf("nothing is brought into the state %q", state)
			continue
		}
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			since := time.Now()
			file, r := bring(t, w)
			q := statustest.Question{Since: since, Services: map[string]string{"source mesh": orders, "target zk": orders, "target zk2": orders}, Rules: string(rules)}
			q.Registries = row.Registries(q)
			var said error
			t.Cleanup(func() {
				if said != nil {
					t.Log(said)
				}
			})
			eventually(t, "it is said", func() bool { said = row.Says(commands{t, r, file}, q); return said == nil })
		})
	}
	if len(rows) != len(brought) {
		t.Errorf("brought into %d states, want %v", len(brought), slices.Sorted(maps.Keys(rows)))
	}
}

// text returns what a file holds.
func (w *world) text(file string) string {
	w.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}
