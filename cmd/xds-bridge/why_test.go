package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// registers has a provider register an interface as Java Dubbo does.
func (w *world) registers(iface, address string) {
	w.t.Helper()
	node := url.QueryEscape("tri://" + address + "/" + iface + "?interface=" + iface + "&side=provider")
	if err := w.zk.Put("/dubbo/"+iface+"/providers/"+node, nil); err != nil {
		w.t.Fatal(err)
	}
}

// A host without endpoints answers its callers with 503: that is not in sync.
func TestWhy_NoValidEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.registers("api.Pay", "127.0.0.1:20001")
	w.registers("api.Orders", "10.0.0.1:20001")
	file := w.importConfig("127.0.0.1:0", "")
	r := w.start(file)
	var why string
	eventually(t, "it is unwritable", func() bool {
		why = do(t, "why", "api.Pay", "-f", file).out
		return strings.Contains(why, "reason    unwritable: left out: endpoint \"127.0.0.1:20001\": loopback address")
	})
	var d admin.Document
	if err := json.Unmarshal([]byte(do(t, "status", "-o", "json", "-f", file).out), &d); err != nil {
		t.Fatal(err)
	}
	names := make(map[admin.ConditionName]string)
	for _, c := range d.Conditions {
		names[c.Name] = c.Detail
	}
	if names[admin.Unwritable] != "1 service cannot be written; see why SERVICE" {
		t.Errorf("conditions are %v", names)
	}
	if _, text := r.probe(t, "/metrics"); !strings.Contains(text, `xdsbridge_unwritable_services{listen="127.0.0.1:0",registry="mesh"} 1`) {
		t.Error("no metric counts it")
	}
	for _, name := range []string{"api.Orders", "api.x-orders.k0-0-tri.zk.bridge.internal:50051", "api.x-orders.k0-0-tri.zk.bridge.internal"} {
		do(t, "why", " ", "-f", file).want(t, exitUsage, "why requires the name of a service", "fqdn:port")
		do(t, "why", name, "-f", file).want(t, exitOK, "source zk", "endpoint  10.0.0.1:20001", "reason    synced")
	}
	do(t, "why", "api.Order", "-f", file).want(t, exitFindings, "did you mean ", "api.Orders")
	do(t, "events", "-f", file).want(t, exitOK, "without endpoints: left out")
}

// A registry that holds only what came from the mesh is the first day of every
// migration, and nothing is wrong then.
func TestStatus_BothDirections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := w.text(w.config(fileOptions{bridge: quick, mesh: `, import: { keys: "off" }`}))
	file := w.file("config.yaml", strings.Replace(text, "bridges:\n",
		"bridges:\n  - { name: zk-to-mesh, from: zk, to: mesh, listen: \"127.0.0.1:0\", formats: [dubbo-interface] }\n", 1))
	const imported, unasked = "api.x-orders.k0-0-tri.zk.bridge.internal:50051", "kubernetes.default.svc.cluster.local:443"
	w.offer(imported, "10.0.0.1")
	w.offer(unasked, "10.0.0.99")
	r := w.start(file)
	var why string
	eventually(t, "it was read back", func() bool {
		why = do(t, "why", "api.Orders", "-f", file).out
		return strings.Contains(why, "target mesh (127.0.0.1:0), bridge zk-to-mesh")
	})
	if said := do(t, "events", "-f", file).out; strings.Contains(said, "create  of ") {
		t.Errorf("a key is empty: %s", said)
	}
	if !strings.Contains(why, "reason    synced: left out: ") || !strings.Contains(why, "loop: it came from the target registry") {
		t.Error(why)
	}
	eventually(t, "all is in sync but that nobody reads", func() bool {
		said := do(t, "status", "-f", file).out
		return strings.Contains(said, ", not in sync: mesh (127.0.0.1:0) no-reader\n")
	})
	said := do(t, "status", "-f", file).out
	if strings.Contains(said, imported+": ") || !strings.Contains(said, "skipped of mesh: "+unasked+": no service key") {
		t.Errorf("what was imported is listed, or what has no key is not: %s", said)
	}
	do(t, "why", imported, "-f", file).want(t, exitOK, "it was imported from another registry, and is not exported")
	if _, text := r.probe(t, "/metrics"); !strings.Contains(text, `xdsbridge_invalid_inputs{registry="mesh"} 0`) {
		t.Error("the metric counts what nothing is wrong with")
	}
}

// A time that is over is not one until which anything lasts.
func TestStatus_PastTimes(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for want, until := range map[string]time.Time{
		", until 12:05:00: ":      now.Add(5 * time.Minute),
		", until the next read: ": now.Add(-time.Second),
		" for 0s: ":               {},
	} {
		var out buffer
		c := newCLI(&out, &out, lookup(nil), nil)
		printConditions(c.terminal, now, []admin.Condition{{Direction: admin.OfSource, Registry: "mesh", Name: admin.Partial, Detail: "why", Since: now, Until: until}})
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	}
}

// One cause is one line, whatever it keeps from being known.
func TestStatus_OneCause(t *testing.T) {
	t.Parallel()
	now := time.Now()
	condition := func(of admin.Direction, from string, name admin.ConditionName, detail string) admin.Condition {
		return admin.Condition{Direction: of, Registry: from, Name: name, Detail: detail, Since: now}
	}
	var out buffer
	c := newCLI(&out, &out, lookup(nil), nil)
	printConditions(c.terminal, now, []admin.Condition{
		condition(admin.OfSource, "mesh", admin.Pending, "xds istiod:15012: dial tcp 10.0.0.1:15012: connect: connection refused"),
		condition(admin.OfSource, "mesh", admin.Stale, "not connected: xds istiod:15012: dial tcp 10.0.0.1:15012: connect: connection refused"),
		condition(admin.OfSource, "mesh", admin.Partial, "mapping from istiod:15012: connect: connection refused; check that istiod runs"),
		condition(admin.OfSource, "zk", admin.Stale, "zookeeper: connect: connection refused"),
		condition(admin.OfTarget, "zk", admin.Unreachable, "zookeeper: connect: connection refused"),
	})
	var got []string
	for line := range strings.Lines(out.String()) {
		line, _, _ = strings.Cut(line, " for ")
		got = append(got, line)
	}
	if want := "‼ mesh pending, stale, partial|‼ zk stale|‼ zk unreachable"; strings.Join(got, "|") != want {
		t.Errorf("lines %q, want %q:\n%s", got, want, out.String())
	}
}

// What was not looked up is not denied.
func TestWhy_UnknownService(t *testing.T) {
	seen, pending := []admin.Seen{{Source: "zk"}}, []admin.Condition{{Registry: "zk", Name: admin.Pending}}
	for want, why := range map[string]admin.Why{
		"No service has this name.": {},
		"skipped  web3: no address": {Skipped: []admin.Skipped{{Input: "web3", Reason: "no address"}}},
		"No bridge claims it yet.":  {Sources: seen, Conditions: pending},
		"No bridge claims it.":      {Sources: seen},
		"":                          {Services: []admin.Service{{Target: "zk"}}},
		"‼ 2 entries kept in zk: no bridge writes there": {Kept: []admin.Kept{{Target: "zk", Kept: bridge.Kept{Why: "no bridge writes there", Entries: 2}}}},
		"    test:/api.Pay tri://10.0.0.1:1":             {Kept: []admin.Kept{{Target: "zk", Kept: bridge.Kept{Entries: 1, Keys: []string{"test:/api.Pay tri://10.0.0.1:1"}}}}},
	} {
		var out buffer
		c := newCLI(&out, &out, lookup(nil), nil)
		printWhy(c.terminal, why)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; last != want && (want != "" || strings.HasPrefix(last, "No ")) {
			t.Errorf("it says %q, want %q", last, want)
		}
	}
}

// Thousands of entries that belong to another are not as many lines, each thrice.
func TestStatus_ConflictsPerService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3")
	for _, host := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		node := url.QueryEscape("tri://" + host + ":20880/api.Orders?interface=api.Orders&side=provider&version=1.0")
		if err := w.zk.Put("/dubbo/api.Orders/providers/"+node, nil); err != nil {
			t.Fatal(err)
		}
	}
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	var said string
	eventually(t, "the conflicts are shown", func() bool {
		said = do(t, "status", "-f", file).out
		return strings.Contains(said, "3 entries belong to an entry without owner") && strings.Contains(said, "zk conflict for ")
	})
	if strings.Contains(said, "20880?") || strings.Count(said, "belong") != 1 {
		t.Errorf("each is listed: %s", said)
	}
	do(t, "events", "-f", file).want(t, exitOK, "; ends once the other entry is deleted and the source has omitted the address")
	do(t, "events", "--after", "100000", "-f", file).want(t, exitOK, "There are no events after event 100000.")
	if why := do(t, "why", "api.Orders", "-f", file).out; strings.Count(why, "10.0.0.2:20880?") != 1 || strings.Count(why, "without owner") != 4 {
		t.Errorf("each is not listed once: %s", why)
	}
}

func TestStatus_SeveralReasons(t *testing.T) {
	t.Parallel()
	var out buffer
	c := newCLI(&out, &out, lookup(nil), nil)
	sv := bridge.ServiceStatus{Service: "api.A", Reason: bridge.ReasonSynced, Detail: "left out: a: loop\nb: loop\nc: loop"}
	d := admin.Document{Loops: []bridge.Status{{Target: "zk", Services: []bridge.ServiceStatus{sv}}}}
	printStatus(c.terminal, d, d, serviceFilter{all: true})
	if said := out.String(); !strings.Contains(said, "left out: a: loop, and 2 more\n") {
		t.Errorf("status says %s", said)
	}
	printWhy(c.terminal, admin.Why{Services: []admin.Service{{Target: "zk", ServiceStatus: sv}}})
	if said := out.String(); !strings.Contains(said, "  reason    synced: left out: a: loop\n            b: loop\n            c: loop\n") || strings.Contains(said, `\n`) {
		t.Errorf("why says %s", said)
	}
}

// TestPrintWhy_Refused: a refusal is called one once.
func TestPrintWhy_Refused(t *testing.T) {
	t.Parallel()
	var out buffer
	refused := registry.Refused{"k": fmt.Errorf("%w: no rights", registry.ErrRefused)}
	sv := bridge.ServiceStatus{Service: "api.A", Reason: bridge.ReasonRefused, Detail: refused.Error()}
	printWhy(newCLI(&out, &out, lookup(nil), nil).terminal, admin.Why{Services: []admin.Service{{Target: "zk", ServiceStatus: sv}}})
	if got, want := out.String(), `  reason    refused: "k": no rights`+"\n"; !strings.Contains(got, want) {
		t.Errorf("printWhy = %s, want %s", got, want)
	}
}
