package main

import (
	"testing"
)

// TestRun_SourceAtLimit shows that a registry which reports too much
// costs nothing that is there, says so, and is let go by a larger bound.
func TestRun_SourceAtLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(map[string]string{"providers:api.Orders:1.0:": orders, "providers:api.Greeter:1.0:": greeter})
	limited := func(n string) string {
		return w.config(fileOptions{bridge: quick, mesh: ", limits: { maxServices: " + n + " }"})
	}
	file := limited("1")
	w.start(file)
	isInSync(t, file)
	w.offer(greeter, "10.0.0.5")
	eventually(t, "status reports the bound", func() bool {
		d := statusOf(t, file)
		return d.Sources[0].Services == 1 && d.Sources[0].Stale != "" && !d.InSync
	})
	do(t, "status", "-f", file).want(t, exitFindings, "more than its limits allow; raise limits")
	if n := len(w.providers("api.Orders")); n != 2 {
		t.Errorf("%d entries are left of 2", n)
	}
	limited("2")
	do(t, "reload", "-f", file).want(t, exitOK, "source mesh: limits changed")
	eventually(t, "the other service too", func() bool { return len(w.providers("api.Greeter")) == 1 })
	isInSync(t, file)
	do(t, "plan", "--timeout", "2s", "-f", limited("1")).want(t, exitUnreachable, "more than its limits allow")
}
