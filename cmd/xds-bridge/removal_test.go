package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry/zookeeper/zktest"
)

// TestWhatBecomesOfTheEntriesOfARemovedBridge_F09 shows both words of onRemove
// by a reload and by a restart.
func TestWhatBecomesOfTheEntriesOfARemovedBridge_F09(t *testing.T) {
	t.Parallel()
	for _, onRemove := range []string{"", "keep", withdraw} {
		for _, way := range []string{"reload", "restart"} {
			t.Run(fmt.Sprintf("%s by a %s", orWord(onRemove, "unsaid"), way), func(t *testing.T) {
				w := newWorld(t)
				w.publish(map[string]string{"providers:api.Orders:1.0:": orders, "providers:api.Greeter:1.0:": greeter})
				w.offer(greeter, "10.0.1.1", "10.0.1.2")
				trail := filepath.Join(w.dir, "audit.ndjson")
				one := w.config(fileOptions{bridge: quick + `, select: { include: ["orders.*"] }`, file: "audit: { file: " + trail + " }\n"})
				text, err := os.ReadFile(one)
				if err != nil {
					t.Fatal(err)
				}
				second := quick + `, select: { include: ["greeter.*"] }`
				if onRemove != "" {
					second += ", onRemove: " + onRemove
				}
				both := strings.Replace(string(text), "bridges:\n", "bridges:\n  - { name: second, from: mesh, to: zk, formats: [dubbo-interface] "+second+" }\n", 1)
				file := w.file("config.yaml", both)
				r := w.start(file)
				inStep(t, file)
				if n := len(w.providers("api.Greeter")); n != 2 {
					t.Fatalf("%d providers of the second bridge, want 2", n)
				}
				if onRemove == withdraw && way == "restart" {
					eventually(t, "what onRemove is is remembered", func() bool { return len(w.zk.Children("/xds-bridge/shop/removals")) == 1 })
				}
				if way == "restart" {
					r.stop()
				}
				w.file("config.yaml", string(text))
				if way == "restart" {
					w.start(file)
				} else {
					want := map[string]string{"": "its entries stay", "keep": "its entries stay", withdraw: "its entries are taken back as the guard lets them"}[onRemove]
					do(t, "reload", "-f", file).want(t, exitOK, "bridge second: removed; "+want)
				}
				if onRemove == withdraw {
					eventually(t, "its entries are taken back", func() bool { return len(w.providers("api.Greeter")) == 0 })
					eventually(t, "it is recorded", func() bool { _, err := os.Stat(trail); return err == nil })
					text, err := os.ReadFile(trail)
					if n := strings.Count(string(text), `"action":"withdraw"`); err != nil || n != 1 || !strings.Contains(string(text), `"bridge":"second"`) {
						t.Errorf("%d lines of the audit tell of it: %s, %v", n, text, err)
					}
				}
				w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3") // a change that is seen to have gone through
				eventually(t, "the other bridge goes on", func() bool { return len(w.providers("api.Orders")) == 3 })
				inStep(t, file)
				if n := len(w.providers("api.Greeter")); onRemove != withdraw && n != 2 {
					t.Errorf("%d of the 2 entries stayed", n)
				}
			})
		}
	}
}

// TestARemovedBridgeThatComesBack shows that what was remembered of it holds
// no more, and that a copy of the record from before keeps to the guard.
func TestARemovedBridgeThatComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick + ", onRemove: withdraw"})
	do(t, "run", "--once", "-f", file).want(t, exitOK, "2 entries of ours")
	if n := len(w.zk.Children("/xds-bridge/shop/removals")); n != 1 {
		t.Fatalf("%d records", n)
	}
	file = w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK, "2 entries of ours")
	if n := w.zk.Children("/xds-bridge/shop/removals"); len(n) != 0 {
		t.Errorf("it is still remembered: %v", n)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := w.file("other.yaml", strings.Replace(strings.Replace(string(text), "name: mesh-to-zk", "name: another", 1), quick, quick+", select: { include: [nobody] }", 1))
	do(t, "run", "--once", "-f", other).want(t, exitOK, "2 entries of ours")
	if n := len(w.providers("api.Orders")); n != 2 {
		t.Errorf("%d of the 2 entries of a bridge that was removed with onRemove: keep are left", n)
	}
}

// TestABridgeThatWasRenamedIsShown_V62 shows that what nobody writes any more
// is told of after a restart, with what helps.
func TestABridgeThatWasRenamedIsShown_V62(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	r := w.start(file)
	inStep(t, file)
	r.stop()
	w.offer(orders, "10.0.0.7") // the two others are dead by now
	w.replaced(file, "name: mesh-to-zk", "name: renamed")
	r = w.start(file)
	inStep(t, file)
	eventually(t, "status", func() bool {
		return strings.Contains(do(t, "status", "-f", file).out, "2 entries of ours stay in zk: its bridge")
	})
	do(t, "status", "-f", file).want(t, exitOK, "put it back with onRemove: withdraw")
	do(t, "why", "api.Orders", "-f", file).want(t, exitOK, "entries of ours stay in zk")
	if !strings.Contains(r.log.String(), `"WARN","msg":"entries of ours stay that no bridge writes"`) {
		t.Error("the log does not tell")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := "  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface], select: { include: [nobody] }, onRemove: withdraw" + quick + " }\n"
	w.file("config.yaml", strings.Replace(string(text), "bridges:\n", "bridges:\n"+line, 1))
	do(t, "reload", "-f", file).want(t, exitOK)
	eventually(t, "what the message says helps", func() bool { return len(w.providers("api.Orders")) == 1 })
}

// TestAWithdrawThatCannotBeRememberedIsTold shows that records which are
// refused cost onRemove its word over a restart, and that this is said.
func TestAWithdrawThatCannotBeRememberedIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/xds-bridge", "/xds-bridge/shop", "/xds-bridge/shop/removals"} {
		if err := w.zk.Put(path, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.zk.SetACL("/xds-bridge/shop/removals", []zktest.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}}); err != nil {
		t.Fatal(err)
	}
	file := w.config(fileOptions{bridge: quick + ", onRemove: withdraw"})
	r := w.start(file)
	eventually(t, "it is told", func() bool { return strings.Contains(r.log.String(), "onRemove: withdraw cannot be remembered") })
}
