package main

import (
	"net/url"
	"strings"
	"testing"
)

// TestRun_RegisteredOtherwise shows that plan, status and why say what the address of a
// service registers itself as, if its key has another version or interface.
func TestRun_RegisteredOtherwise(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := func(iface, rest string) string {
		return "/dubbo/" + iface + "/providers/" + url.QueryEscape("dubbo://"+rest)
	}
	version := own("api.Orders", "10.0.0.1:20880/api.Orders?interface=api.Orders&side=provider&version=2.0")
	iface := own("api.Order", "10.0.0.9:20880/api.Order?interface=api.Order&side=provider&version=1.0")
	for _, path := range []string{version, iface} {
		if err := w.zk.Put(path, nil); err != nil {
			t.Fatal(err)
		}
	}
	file := w.config(fileOptions{bridge: quick})
	const (
		asVersion = "10.0.0.1:20880 registers itself as dubbo-interface:/dubbo/api.Orders dubbo://10.0.0.1:20880?version=2.0, " +
			"not as dubbo-interface:/dubbo/api.Orders "
		asInterface = "10.0.0.9:20880 registers itself as dubbo-interface:/dubbo/api.Order dubbo://10.0.0.9:20880?version=1.0, " +
			"not as dubbo-interface:/dubbo/api.Orders "
	)
	do(t, "plan", "-f", file).want(t, exitFindings, "2 to create", orders+": "+asVersion)
	w.start(file)
	eventually(t, "status and why show another version", func() bool {
		s, y := do(t, "status", "-f", file), do(t, "why", orders, "-f", file)
		return s.code == exitOK && strings.Contains(s.out, orders+" in zk: "+asVersion) && strings.Contains(y.out, asVersion)
	})
	w.offer(orders, "10.0.0.9")
	eventually(t, "status shows another interface", func() bool {
		return strings.Contains(do(t, "status", "-f", file).out, orders+" in zk: "+asInterface)
	})
	w.zk.Delete(iface)
	eventually(t, "an address that registers nothing is not shown", func() bool {
		return !strings.Contains(do(t, "status", "-f", file).out, "registers itself")
	})
	if err := w.zk.Put(own("api.Orders", "192.0.2.9:30880/api.Orders?interface=api.Orders&side=provider&version=1.0"), nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "why shows who else registered the same name", func() bool {
		out := do(t, "why", orders, "-f", file).out
		return strings.Contains(out, "1 entry that providers registered themselves") && strings.Contains(out, "dubbo://192.0.2.9:30880?version=1.0")
	})
}
