package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// TestReplicas_ScaleUp: replicas.lease is added to
// the file of a bridge that runs, which waits for its restart, and a second
// replica is started. That one writes once the first has ended, not before.
func TestReplicas_ScaleUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	r := w.start(file)
	isInSync(t, file)
	first := w.elsewhere()
	file = w.config(fileOptions{bridge: quick, file: "replicas: { lease: { zookeeper: zk } }\n"})
	do(t, "reload", "-f", file).want(t, exitOK, "replicas: waits for a restart")

	writers := w.writers()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	second := w.start(w.file("second.yaml", strings.ReplaceAll(string(text), w.dir+"/a", w.dir+"/b")))
	eventually(t, "the second sees the first", func() bool {
		return strings.Contains(second.log.String(), "another bridge of this owner may be running")
	})
	for i := range 20 {
		host := fmt.Sprintf("10.0.1.%d", i)
		w.offer(orders, "10.0.0.1", host)
		eventually(t, "a change is written", func() bool { return w.provides(host) })
	}
	if all := writers(); !slices.Equal(all, []int64{first}) {
		t.Errorf("sessions %v wrote, want %d alone", all, first)
	}

	if code := r.stop(); code != exitOK {
		t.Errorf("the first ended with %d", code)
	}
	w.offer(orders, "10.0.0.1", "10.0.2.1")
	eventually(t, "the second writes once the first has ended", func() bool { return w.provides("10.0.2.1") })
	if all := writers(); len(all) != 2 {
		t.Errorf("sessions %v wrote", all)
	}
}

func (w *world) provides(host string) bool {
	return slices.ContainsFunc(w.providers("api.Orders"), func(n string) bool { return strings.Contains(n, host) })
}

// elsewhere makes the liveness node of the bridge that runs that of a process
// on another machine, and returns its session: of two in one process the other
// is known to be no other.
func (w *world) elsewhere() (session int64) {
	w.t.Helper()
	const path = "/xds-bridge/shop/alive"
	eventually(w.t, "a liveness node", func() bool { _, there := w.zk.Get(path); return there })
	n, _ := w.zk.Get(path)
	host, err := os.Hostname()
	if err != nil {
		w.t.Fatal(err)
	}
	data := strings.Replace(string(n.Data), fmt.Sprintf("%q", host), `"elsewhere"`, 1)
	if data == string(n.Data) {
		w.t.Fatalf("%s does not name host %s", data, host)
	}
	if err := w.zk.Put(path, []byte(data)); err != nil {
		w.t.Fatal(err)
	}
	return n.Stat.EphemeralOwner
}

// writers returns what reports which sessions have written entries since, in
// the order in which they came.
func (w *world) writers() func() []int64 {
	var mu sync.Mutex
	var all []int64
	w.zk.SetFault(func(r zkfake.Request) zkfake.Fault {
		if r.Op == zkfake.OpMulti && strings.Contains(strings.Join(r.Paths, " "), "/dubbo/") {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(all, r.Session) {
				all = append(all, r.Session)
			}
		}
		return zkfake.Fault{}
	})
	return func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestReplicas_OlderFile shows that what only the file of
// another replica has stays while that one runs, and when it has just ended: a
// rollout that is in progress, or stuck, costs no consumer an address.
func TestReplicas_OlderFile(t *testing.T) {
	t.Parallel()
	const older = `, select: { include: ["orders.*"] }`
	for name, newer := range map[string]func(text string) string{
		"a service more": func(text string) string {
			return strings.Replace(text, older, `, select: { include: ["orders.*", "greeter.*"] }`, 1)
		},
		"a bridge more": func(text string) string {
			line := "  - { name: second, from: mesh, to: zk, formats: [dubbo-interface], select: { include: [\"greeter.*\"] }" + quick + " }\n"
			return strings.Replace(text, "bridges:\n", "bridges:\n"+line, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.publish(map[string]string{"providers:api.Orders:1.0:": orders, "providers:api.Greeter:1.0:": greeter})
			w.offer(greeter, "10.0.1.1", "10.0.1.2")
			file := w.config(fileOptions{bridge: quick + older, file: "replicas: { lease: { zookeeper: zk }, ttl: 2s }\n"})
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			next := w.file("newer.yaml", strings.ReplaceAll(newer(string(text)), w.dir+"/a", w.dir+"/b"))
			first := w.start(next)
			eventually(t, "the newer file is written", func() bool { return len(w.providers("api.Greeter")) == 2 })
			second := w.start(file)
			eventually(t, "it knows of the other", func() bool {
				return strings.Contains(second.log.String(), `"msg":"replicas differ","component":"bridge","registry":"zk","reason":"replica `)
			})
			eventually(t, "status reports who leads", func() bool {
				return strings.Contains(do(t, "status", "-f", file).out, "one of 2, standby of zk (led by ")
			})
			eventually(t, "metrics show who leads", func() bool {
				_, one := first.probe(t, "/metrics")
				_, other := second.probe(t, "/metrics")
				return strings.Contains(one, `xdsbridge_replica_leads{registry="zk"} 1`) && strings.Contains(other, `xdsbridge_replica_leads{registry="zk"} 0`)
			})
			first.stop()
			w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3")
			eventually(t, "the older leads", func() bool { return len(w.providers("api.Orders")) == 3 })
			eventually(t, "it reports what it keeps", func() bool {
				return strings.Contains(do(t, "status", "-f", file).out, "is configured otherwise")
			})
			if n := len(w.providers("api.Greeter")); n != 2 {
				t.Errorf("%d of the 2 entries that only the newer file has are left", n)
			}
			w.offer(greeter, "10.0.1.1", "10.0.1.3")
			w.start(next)
			second.stop()
			eventually(t, "the newer continues where it ended", func() bool {
				names := strings.Join(w.providers("api.Greeter"), " ")
				return strings.Contains(names, "10.0.1.3") && !strings.Contains(names, "10.0.1.2")
			})
		})
	}
}
