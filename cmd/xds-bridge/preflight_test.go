package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

// A running bridge holds its port, which is as it should be.
func TestPreflightBesideTheRunningBridge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := porttest.Address(t)
	file := w.waysIn(at, "")
	do(t, "preflight", "-f", file).want(t, exitOK, "√ listen: "+at+" is free", "√ configSources: istiod names it as address: xds://"+at)
	w.start(file)
	do(t, "preflight", "-f", file).want(t, exitOK, "√ listen: "+at+" is held by the running bridge of owner shop")

	others := w.file("others.yaml", strings.Replace(w.text(file), "owner: shop", "owner: other", 1))
	do(t, "preflight", "-f", others).want(t, exitFindings, "× listen", "address already in use", "end the other process that holds the port")
}

func TestPreflightNamesWhoMayHoldThePort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	do(t, "preflight", "-f", w.waysIn(l.Addr().String(), "")).want(t, exitFindings, "× listen", "address already in use", "is the bridge running")
	w.start(w.waysIn("127.0.0.1:0", ""))
	do(t, "preflight", "-f", w.waysIn(l.Addr().String(), "")).want(t, exitFindings, "× listen", "serves nothing there")
	r := do(t, "preflight", "-f", w.waysIn("192.0.2.1:15031", "")) // of nobody
	r.want(t, exitFindings, "× listen", "an address that this machine has", "xds://192.0.2.1:15031")
	if strings.Contains(r.out, "holds the port") {
		t.Error(r.out)
	}
}

func TestPreflightTellsSourceAndTargetApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.waysIn("127.0.0.1:0", "")
	both := w.file("both.yaml", strings.Replace(w.text(file), "bridges:\n", "bridges:\n  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface] }\n", 1))
	both = w.file("both.yaml", strings.Replace(w.text(both), "import:", "mapping: { from: none }, import:", 1))
	r := do(t, "preflight", "-f", both)
	r.want(t, exitOK, "source zk\n", "target zk\n", "registry zk\n", "source mesh\n", "target mesh\n", "asking mesh, zk\n")
	var all []finding
	if err := json.Unmarshal([]byte(do(t, "preflight", "-o", "json", "-f", both).out), &all); err != nil {
		t.Fatal(err)
	}
	reachable := make(map[string]int)
	for _, f := range all {
		if f.Check == "reachable" {
			reachable[string(f.Role)+" "+f.Peer]++
		}
	}
	if len(reachable) != 3 || reachable["source zk"] != 1 || reachable["target zk"] != 1 || reachable["source mesh"] != 1 {
		t.Errorf("%v", reachable)
	}
}

func TestPreflightPrintsTheWholeAddressForIstiod(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":15031": "xds://HOST:15031, where HOST", "0.0.0.0:15031": "xds://HOST:15031, where HOST", "[::]:15031": "xds://HOST:15031, where HOST",
		"127.0.0.1:15031": "xds://127.0.0.1:15031", "bridge.shop:15031": "xds://bridge.shop:15031", "[::1]:15031": "xds://[::1]:15031",
	} {
		if got := sourceAddress(listen); !strings.Contains(got, want) || !strings.Contains(want, "HOST") && !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
