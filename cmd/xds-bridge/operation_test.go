package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/internal/operation"
	"github.com/xds-bridge/xds-bridge/metadata"
)

// What another process publishes into a Nacos only that one can withdraw.
func TestPurge_PublishingBridge(t *testing.T) {
	t.Parallel()
	w := newNacosWorld(t, "")
	file := w.conf("")
	r := w.start(file)
	w.await("api.Orders", "10.0.0.1", "10.0.0.2")
	for _, args := range [][]string{{}, {"--yes"}, {"--yes", "-o", "json"}} {
		p := do(t, append([]string{"purge", "--owner", "shop", "-f", file}, args...)...)
		p.want(t, exitUsage, "target nacos: a bridge of owner shop still runs: it publishes 10.0.0.1:20880", "stop it")
		if p.out != "" {
			t.Errorf("purge %v says %s", args, p.out)
		}
	}
	w.await("api.Orders", "10.0.0.1", "10.0.0.2")
	r.stop()
	w.await("api.Orders")
	do(t, "purge", "--owner", "shop", "--yes", "-f", file).want(t, exitOK, "There is nothing of owner shop to purge.")
}

// What was not read is not said to hold nothing.
func TestOperation_UnreachableZooKeeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	w.zk.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{Cut: zkfake.CutBefore} })
	for _, command := range [][]string{{"purge", "--owner", "shop"}, {"release", "--owner", "shop"}, {"adopt", "--from", "bank"}} {
		for _, form := range []string{"text", "json"} {
			for _, yes := range []string{"--yes=false", "--yes"} {
				r := do(t, append(command, yes, "-o", form, "--timeout", "300ms", "-f", file)...)
				r.want(t, exitUnreachable, "target zk")
				if r.out != "" {
					t.Errorf("%s %s says %s", command[0], yes, r.out)
				}
			}
		}
	}
}

// Entries of one group that may not be deleted cost that group, and are not
// counted as done.
func TestPurge_Incomplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(greeter, "10.0.1.1")
	w.publish(map[string]string{"providers:api.Orders:1.0:": orders, "providers:api.Greeter:1.0:": greeter})
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK, "3 own entries")
	if err := w.zk.SetACL("/dubbo/api.Greeter/providers", zkfake.WorldACL(zkfake.PermRead)); err != nil {
		t.Fatal(err)
	}
	do(t, "purge", "--owner", "shop", "-f", file).want(t, exitOK, "3 entries of owner shop would be deleted")
	r := do(t, "purge", "--owner", "shop", "--yes", "-o", "json", "-f", file)
	r.want(t, exitFindings, "not done, or not known to be: 1 entry; the first is tri://10.0.1.1:20880")
	var d operation.Result
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	if d.Done || !d.Whole || len(d.Entries) != 2 || len(d.Left) != 1 || !strings.Contains(d.Left[0].Failed, "read back as it was: ") {
		t.Errorf("%+v", d)
	}
	if n := len(w.providers("api.Orders")) + len(w.providers("api.Greeter")); n != 1 {
		t.Errorf("%d are left", n)
	}
	if err := w.zk.SetACL("/dubbo/api.Greeter/providers", zkfake.WorldACL(zkfake.PermAll)); err != nil {
		t.Fatal(err)
	}
	do(t, "purge", "--owner", "shop", "--yes", "-f", file).want(t, exitOK, "1 entry of owner shop: deleted.")
}

// Of another owner an entry reports its mark, and commands accept that. Conflicts have its
// name if its node can be read.
func TestOperation_OwnerByMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	other := w.ownedBy("bank", "")
	mark := metadata.OwnerMark("shop")
	for _, tt := range []struct {
		perms int32
		want  string
	}{{zkfake.PermAll ^ zkfake.PermRead, "mark:" + mark}, {zkfake.PermAll, "shop"}} {
		if err := w.zk.SetACL("/xds-bridge", zkfake.WorldACL(tt.perms)); err != nil {
			t.Fatal(err)
		}
		do(t, "plan", "-f", other).want(t, exitFindings, "belongs to owner "+tt.want)
	}
	do(t, "purge", "--owner", mark, "--yes", "-f", other).want(t, exitUsage, "owner "+mark+" holds nothing, and 2 entries bear "+mark+" as their mark; write mark:"+mark)
	do(t, "adopt", "--from", mark, "-f", other).want(t, exitUsage, "write mark:"+mark)
	do(t, "purge", "--owner", "mark:x", "-f", other).want(t, exitUsage, `"mark:x" is no owner`)
	do(t, "adopt", "--from", "mark:"+mark, "-f", other).want(t, exitOK, "2 entries would be marked as owner bank")
	if err := w.zk.Put("/xds-bridge/shop/alive", []byte(`{"host":"another","process":7}`)); err != nil {
		t.Fatal(err)
	}
	do(t, "release", "--owner", "mark:"+mark, "--yes", "-f", other).want(t, exitUsage, "a bridge of owner shop still runs")
	w.zk.Delete("/xds-bridge/shop/alive")
	do(t, "purge", "--owner", "mark:"+mark, "--yes", "-f", other).want(t, exitOK, "2 entries of owner mark:"+mark+": deleted.")
	if n := w.providers("api.Orders"); len(n) != 0 {
		t.Errorf("left: %q", n)
	}
}

// A misspelled owner has nothing, and who deletes in its name does not see that all is done.
func TestOperation_UnknownOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	for _, command := range [][]string{{"purge", "--owner"}, {"release", "--owner"}, {"adopt", "--from"}} {
		do(t, append(command, "nobody", "--yes", "-f", file)...).want(t, exitFindings, `no owner "nobody" is known, and no entry bears its mark; known are shop`)
	}
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	do(t, "purge", "--owner", "shop", "--yes", "-f", file).want(t, exitOK, "2 entries of owner shop: deleted.")
	do(t, "purge", "--owner", "shop", "--yes", "-f", file).want(t, exitOK, "There is nothing of owner shop to purge.")

	do(t, "run", "--once", "-f", w.ownedBy("bank", "")).want(t, exitOK)
	for _, command := range [][]string{{"purge", "--owner"}, {"release", "--owner"}, {"adopt", "--from"}} {
		r := do(t, append(command, "bnk", "-o", "json", "-f", file)...)
		if r.want(t, exitFindings, `no owner "bnk" is known`, `did you mean "bank"?`); r.out != "" {
			t.Errorf("%s says %s", command[0], r.out)
		}
	}
	do(t, "purge", "--owner", "mark:000000", "-f", file).want(t, exitFindings, `no owner "mark:000000" is known`, "known are bank, shop")
	do(t, "purge", "--owner", "bank", "--bridge", "second", "-f", file).want(t, exitOK, "There is nothing of bridge second of owner bank to purge.")
	for _, path := range slices.Backward(w.zk.Paths("/xds-bridge/bank")) {
		w.zk.Delete(path)
	}
	do(t, "purge", "--owner", "bank", "--bridge", "second", "-f", file).want(t, exitOK, "There is nothing of bridge second of owner bank to purge.")
	do(t, "purge", "--owner", "bank", "--yes", "-f", file).want(t, exitOK, "2 entries of owner bank: deleted.")
	do(t, "purge", "--owner", "bank", "--yes", "-f", file).want(t, exitFindings, `no owner "bank" is known`)
}
