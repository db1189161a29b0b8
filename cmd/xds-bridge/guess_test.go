package main

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestRun_GuessedProtocol shows that an address which its provider registered
// itself under another protocol is not written under the one that is but a guess,
// and that a rule makes it none.
func TestRun_GuessedProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := func(host string) string {
		return "/dubbo/api.Orders/providers/" + url.QueryEscape("dubbo://"+host+":20880/api.Orders?interface=api.Orders&side=provider&version=1.0")
	}
	if err := w.zk.Put(own("10.0.0.1"), nil); err != nil {
		t.Fatal(err)
	}
	written := func(want ...string) func() bool {
		return func() bool {
			var got []string
			for _, name := range w.providers("api.Orders") {
				if u, err := url.QueryUnescape(name); err == nil && strings.HasPrefix(u, "tri://") {
					host, _, _ := strings.Cut(strings.TrimPrefix(u, "tri://"), ":20880/")
					got = append(got, host)
				}
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		}
	}
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	eventually(t, "only the other address is written", written("10.0.0.2"))
	eventually(t, "status and why name the setting", func() bool {
		s, y := do(t, "status", "-f", file), do(t, "why", orders, "-f", file)
		return s.code == exitFindings && strings.Contains(s.out, "dubbo://10.0.0.1:20880") && strings.Contains(s.out, "formats[].rules can set it") &&
			strings.Contains(y.out, "formats[].rules can set it")
	})
	if err := w.zk.Put(own("10.0.0.2"), nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one that registers later has its address too", written())
	w.zk.Delete(own("10.0.0.1"))
	eventually(t, "one that deregistered is a conflict", func() bool {
		return strings.Contains(do(t, "why", orders, "-f", file).out, "deregistered")
	})
	w.offer(orders, "10.0.0.2")
	eventually(t, "the mesh leaves it out", func() bool { return !strings.Contains(do(t, "why", orders, "-f", file).out, "10.0.0.1") })
	w.offer(orders, "10.0.0.1", "10.0.0.2")
	eventually(t, "one that comes back to the mesh is written", written("10.0.0.1"))
	w.replaced(file, "formats: [dubbo-interface]", `formats: [{ format: dubbo-interface, rules: [{ host: "orders.*", protocol: tri }] }]`)
	do(t, "reload", "-f", file).want(t, exitOK)
	eventually(t, "what is reported is written beside the other", written("10.0.0.1", "10.0.0.2"))
	isInSync(t, file)
}
