package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/internal/operation"
)

func TestOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	do(t, "run", "--once", "-f", w.config(fileOptions{})).want(t, exitOK, "zk: 2 own entries, 0 of others")
	nodes := w.providers("api.Orders")
	if len(nodes) != 2 {
		t.Fatalf("nodes: %q", nodes)
	}
	for i, n := range nodes {
		u, err := url.QueryUnescape(n)
		if err != nil || url.QueryEscape(u) != n {
			t.Errorf("%s is not encoded as consumers expect: %v", n, err)
		}
		if want := fmt.Sprintf("tri://10.0.0.%d:20880/api.Orders?", i+1); !strings.HasPrefix(u, want) || !strings.Contains(u, "version=1.0") {
			t.Errorf("got %s, want %s…", u, want)
		}
	}
}

func TestRun_Restart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	before := w.touched()
	t.Run("restart, nothing changed", func(t *testing.T) {
		do(t, "run", "--once", "-f", file).want(t, exitOK)
		sameNodes(t, before, w.touched())
	})
	t.Run("a running bridge is stopped and started again", func(t *testing.T) {
		for range 2 {
			r := w.start(file)
			eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
			if code := r.stop(); code != exitOK {
				t.Errorf("exit code %d\n%s", code, r.log)
			}
		}
		sameNodes(t, before, w.touched())
	})
	t.Run("the next start writes the difference alone", func(t *testing.T) {
		w.offer(orders, "10.0.0.2", "10.0.0.3")
		do(t, "run", "--once", "-f", file).want(t, exitOK)
		after := w.touched()
		kept := 0
		for path, stat := range after {
			if before[path] == stat && strings.Contains(path, "10.0.0.2") {
				kept++
			}
		}
		if nodes := w.providers("api.Orders"); kept != 1 || len(nodes) != 2 || !strings.Contains(nodes[1], "10.0.0.3") {
			t.Errorf("kept %d of %q", kept, nodes)
		}
	})
}

func TestOwnership_ForeignEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign := "/dubbo/api.Orders/providers/" + url.QueryEscape("dubbo://10.9.9.9:20880/api.Orders?application=legacy&interface=api.Orders&side=provider")
	if err := w.zk.Put(foreign, nil); err != nil {
		t.Fatal(err)
	}
	before, _ := w.zk.Get(foreign)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK, "2 own entries, 1 of others")
	do(t, "purge", "--owner", "shop", "-f", file).want(t, exitOK, "2 entries of owner shop would be deleted; set --yes")
	if n := len(w.providers("api.Orders")); n != 3 {
		t.Fatalf("a dry run deleted: %d nodes are left", n)
	}
	do(t, "purge", "--owner", "else", "--yes", "-f", file).want(t, exitFindings, `no owner "else" is known`)
	do(t, "purge", "--owner", "shop", "--yes", "-o", "json", "-f", file).want(t, exitOK, `"done": true`, `"msg":"audit"`)
	nodes := w.providers("api.Orders")
	if after, _ := w.zk.Get(foreign); len(nodes) != 1 || after.Stat != before.Stat {
		t.Errorf("left: %q", nodes)
	}
	do(t, "purge", "-f", file).want(t, exitUsage, "requires --owner")
	do(t, "purge", "--owner", "shop", "--target", "zkk", "-f", file).want(t, exitUsage, `"zkk" is no registry`)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "plan", "-f", file).want(t, exitFindings, "+ tri://10.0.0.1:20880/api.Orders", "2 to create, 0 to update, 0 to delete")
	if paths := w.zk.Paths("/"); slices.ContainsFunc(paths, func(p string) bool { return p != "/" && !strings.HasPrefix(p, "/zookeeper") }) {
		t.Errorf("a plan wrote: %q", paths)
	}
	do(t, "run", "--once", "--dry-run", "-f", file).want(t, exitFindings, "2 to create")
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	do(t, "plan", "-f", file).want(t, exitOK, "Nothing differs.")

	w.offer(orders, "10.0.0.2")
	before := w.touched()
	r := do(t, "plan", "-o", "json", "-f", file)
	r.want(t, exitFindings)
	var d operation.Difference
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Changes) != 1 || d.Changes[0].Op != "delete" || !strings.Contains(d.Changes[0].Old, "10.0.0.1") || d.Summary.Delete != 1 {
		t.Errorf("plan: %+v", d)
	}
	sameNodes(t, before, w.touched())
}

func TestHeldDeletions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
	file := w.config(fileOptions{bridge: ", guard: { settle: 0s, lastEndpoint: 0s, atLeast: 1 }"})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	w.offer(orders, "10.0.0.1")
	before := w.touched()
	do(t, "plan", "-f", file).want(t, exitFindings, "kept for now: held", "4 held by the guard")
	do(t, "run", "--once", "-f", file).want(t, exitHeld, "4 deletions", "1 hold")
	sameNodes(t, before, w.touched())

	off := w.config(fileOptions{bridge: ", guard: { settle: 0s, lastEndpoint: 0s, mode: off }"})
	do(t, "run", "--once", "-f", off).want(t, exitOK)
	if n := len(w.providers("api.Orders")); n != 1 {
		t.Errorf("%d nodes are left", n)
	}
}

func TestRun_NamingRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(greeter, "10.0.1.1")
	w.publish(nil)
	file := w.config(fileOptions{bridge: `, names: [{ host: "*.shop.svc.cluster.local", port: 20000, interface: "api.*", group: blue, protocol: dubbo }]`})
	do(t, "run", "--once", "-f", file).want(t, exitOK, "1 own entry")
	nodes := w.providers("api.greeter")
	if len(nodes) != 1 || !strings.HasPrefix(nodes[0], url.QueryEscape("dubbo://10.0.1.1:20880/api.greeter?")) || !strings.Contains(nodes[0], url.QueryEscape("group=blue")) {
		t.Errorf("nodes: %q", nodes)
	}
}

func TestOnce_Subscriptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(greeter, "10.0.1.1")
	asked := func() []string {
		var names []string
		for _, r := range w.mesh.Requests(istiodfake.EndpointType) {
			names = append(names, r.Subscribe...)
		}
		return names
	}
	do(t, "run", "--once", "-f", w.config(fileOptions{})).want(t, exitOK)
	if names := asked(); !slices.Contains(names, "outbound|20880||orders.shop.svc.cluster.local") || slices.Contains(names, "outbound|20000||greeter.shop.svc.cluster.local") {
		t.Errorf("asked for %q", names)
	}
	do(t, "run", "--once", "-f", w.config(fileOptions{mesh: ", exportAll: true"})).want(t, exitOK)
	if names := asked(); !slices.Contains(names, "outbound|20000||greeter.shop.svc.cluster.local") {
		t.Errorf("with exportAll asked for %q", names)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(greeter, "10.0.1.1")
	w.publish(map[string]string{"providers:api.Orders::": orders, "providers:api.Greeter::": greeter})
	do(t, "run", "--once", "-f", w.config(fileOptions{bridge: `, select: { exclude: ["greeter.*"] }`})).want(t, exitOK, "2 own entries")
	if n := w.providers("api.Greeter"); len(n) != 0 {
		t.Errorf("excluded, and written: %q", n)
	}
	do(t, "run", "--once", "-f", w.config(fileOptions{bridge: `, select: { include: ["greeter.*"] }` + quick})).want(t, exitOK, "1 own entry")
	if n := w.providers("api.Greeter"); len(n) != 1 {
		t.Errorf("included, and not written: %q", n)
	}
}

func TestOtherClusterDomain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const host = "pay.shop.svc.corp.example:20880"
	w.offer(host, "10.0.2.1")
	w.publish(map[string]string{"providers:api.Pay::": host})
	do(t, "run", "--once", "-f", w.config(fileOptions{mesh: ", clusterDomain: corp.example", bridge: `, select: { include: ["*.svc.corp.example"] }`})).
		want(t, exitOK, "1 own entry")
	if n := w.providers("api.Pay"); len(n) != 1 {
		t.Errorf("nodes: %q", n)
	}
}

func TestUnreachableRegistries(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"run": {"run", "--once"}, "plan": {"plan"}} {
		t.Run(name+" without a source", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.mesh.Refuse(istiodfake.ErrNotReady)
			patiently(t, append(args, "-f", w.config(fileOptions{})), exitUnreachable, "source mesh", "not ready")
		})
	}
	for name, tt := range map[string]struct{ args, want []string }{
		"run":       {[]string{"run", "--once"}, []string{"target zk", "refused"}},
		"preflight": {[]string{"preflight"}, []string{"× reachable", "check zookeeper.servers"}},
	} {
		t.Run(name+" without a target", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if err := w.zk.Close(); err != nil {
				t.Fatal(err)
			}
			patiently(t, append(tt.args, "-f", w.config(fileOptions{})), exitUnreachable, tt.want...)
		})
	}
	do(t, "status", "-f", newWorld(t).config(fileOptions{})).want(t, exitUnreachable, "is the bridge running")
	do(t, "healthcheck", "--telemetry", "127.0.0.1:1").want(t, exitUnreachable, "is the bridge running")
}
