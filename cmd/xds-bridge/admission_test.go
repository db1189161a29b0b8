package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// second returns a configuration of an owner that leads into a second
// ZooKeeper too, and that ZooKeeper.
func (w *world) second() (other *zkfake.Server, both func(owner string) string) {
	w.t.Helper()
	other = zkfake.New(zkfake.Options{})
	at, err := other.Listen(w.t.Context(), "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = other.Close() })
	one, err := os.ReadFile(w.config(fileOptions{bridge: quick}))
	if err != nil {
		w.t.Fatal(err)
	}
	return other, func(owner string) string {
		text := strings.Replace(string(one), "bridges:\n", fmt.Sprintf("  zk2: { zookeeper: { servers: [%q] }, timing: { retryMin: 10ms, retryMax: 100ms } }\n"+
			"bridges:\n  - { name: second, from: mesh, to: zk2, formats: [dubbo-interface] %s }\n", at, quick), 1)
		return strings.Replace(text, "owner: shop", "owner: "+owner, 1)
	}
}

// TestReload_RefusingTarget shows that it costs itself
// alone, that a user sees why, and that it is applied once an operator decided.
func TestReload_RefusingTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other, both := w.second()
	do(t, "run", "--once", "-f", w.file("before.yaml", both("shpo"))).want(t, exitOK)
	do(t, "purge", "--owner", "shpo", "--target", "zk", "--yes", "-f", w.file("before.yaml", both("shpo"))).want(t, exitOK)
	file := w.config(fileOptions{bridge: quick})
	r := w.start(file)
	isInSync(t, file)
	w.file("config.yaml", both("shop"))
	do(t, "reload", "-f", file).want(t, exitOK, "target zk2: begun")

	why := `under owner "shpo"`
	eventually(t, "status names the cause", func() bool {
		s := do(t, "status", "-f", file)
		return s.code == exitFindings && strings.Contains(s.out, why)
	})
	eventually(t, "readiness names the cause, and the first registry alone is ready again", func() bool {
		code, text := r.probe(t, "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "[-]target/zk2 failed: the owner was changed") && strings.Contains(text, "[+]target/zk ok")
	})
	if code, text := r.probe(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez is %d: %s", code, text)
	}
	do(t, "events", "-f", file).want(t, exitOK, "nothing may be written to the target", why)
	w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3")
	eventually(t, "the first registry continues", func() bool { return len(w.providers("api.Orders")) == 3 })
	if n := len(other.Children("/dubbo/api.Orders/providers")); n != 2 {
		t.Errorf("%d entries in the second registry, want the 2 of the other owner", n)
	}
	if n := strings.Count(r.log.String(), `"level":"ERROR"`); n != 1 {
		t.Errorf("%d errors were logged, want 1", n)
	}

	do(t, "adopt", "--from", "shpo", "--target", "zk2", "--yes", "-f", file).want(t, exitOK)
	isInSync(t, file)
	eventually(t, "the second registry is kept too", func() bool { return len(other.Children("/dubbo/api.Orders/providers")) == 3 })
	if code, text := r.probe(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz is %d: %s", code, text)
	}
	if code := r.stop(); code != exitOK {
		t.Errorf("it ended with %d", code)
	}
}

// TestStatus_OwnerHeldElsewhere: a target that may not be written to yet is
// not in sync, though it holds what is desired; the process is ready nevertheless.
func TestStatus_OwnerHeldElsewhere(t *testing.T) {
	t.Parallel()
	const sign = "/xds-bridge/shop/alive"
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	if err := w.zk.Put(sign, []byte(`{"host":"another","process":7,"timeout":3600000000000}`)); err != nil {
		t.Fatal(err)
	}
	r := w.start(file)
	const waits = `‼ zk failing for `
	eventually(t, "nothing else is amiss", func() bool {
		said := do(t, "status", "-f", file)
		return said.code == exitFindings && strings.Contains(said.out, "not in sync: zk failing\n") && strings.Contains(said.out, waits) &&
			strings.Contains(said.out, `writes wait for a check that no other bridge of owner "shop" runs`)
	})
	if code, text := r.probe(t, "/readyz"); code != http.StatusOK {
		t.Errorf("%d: %s", code, text)
	}
	const inSync = `"msg":"in sync"`
	if strings.Contains(r.log.String(), inSync) {
		t.Errorf("another process may write: %s", r.log)
	}
	w.zk.Delete(sign)
	isInSync(t, file)
	eventually(t, "it is logged", func() bool {
		return do(t, "status", "-f", file).code == exitOK && strings.Contains(r.log.String(), inSync)
	})
}

// TestAMissingLivenessNodeIsShown: until its liveness node may be made, a second
// bridge of the owner would not be refused.
func TestStatus_UnwritableAliveNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	if err := w.zk.SetACL("/xds-bridge/shop", zkfake.WorldACL(zkfake.PermRead)); err != nil {
		t.Fatal(err)
	}
	w.start(file)
	eventually(t, "nothing else is amiss", func() bool {
		said := do(t, "status", "-f", file)
		return said.code == exitFindings && strings.Contains(said.out, "not in sync: zk failing\n") && strings.Contains(said.out, "a second bridge of this owner is not refused")
	})
}
