package faults_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// hostile puts into a ZooKeeper what nobody should, and looks at what istiod
// gets, and at the log.
func hostile(t *testing.T, i *faults.Imports, znodes *harness.Znodes) {
	t.Helper()
	provider := func(iface, address, rest string) {
		t.Helper()
		znodes.Create(t, faults.ProvidersPath(iface)+"/"+url.QueryEscape("tri://"+address+"/"+iface+"?interface="+iface+"&side=provider"+rest), "")
	}
	for _, name := range []string{
		"..%2F..%2Fetc", "api.%00Nul", "api.%0d%0aForged: line", "api.%1b[31mred", "api.\u202egnp.exe", "api.%F0%9F%98%80", "api.аpi", "@@", ",", ";", "-rf *",
		"kubernetes.default.svc.cluster.local", "*.com", strings.Repeat("x", 4096),
	} {
		provider(name, "127.0.0.1:15001", "")
	}
	znodes.Create(t, faults.ProvidersPath("api.Garbage")+"/not%20a%20url%zz", "")
	znodes.Create(t, faults.ProvidersPath("api.Garbage")+"/tri%3A%2F%2F%5B%3A%3A", "")
	provider("api.Garbage", "127.0.0.1:15002", "")

	provider("api.Huge", "127.0.0.1:15003", "&comment="+strings.Repeat("n", 64<<10))
	var many strings.Builder
	for k := range 10_000 {
		fmt.Fprintf(&many, "&k%d=v", k)
	}
	provider("api.Huge", "127.0.0.1:15004", many.String())
	provider("api.Huge", "127.0.0.1:15005", "")

	for _, address := range []string{"0.0.0.0:1", "169.254.169.254:80", "[::1]:80", "224.0.0.1:80", "127.0.0.1:0", "127.0.0.1:70000", "[fe80::1]:80", "255.255.255.255:80"} {
		provider("api.Nowhere", address, "")
	}
	provider("api.Nowhere", "127.0.0.1:15006", "")

	provider("api.Twice", "127.0.0.1:15007", "&weight=1")
	provider("api.Twice", "127.0.0.1:15007", "&weight=2")
	provider("api.Again", "127.0.0.1:15007", "")

	only := func(iface string, ports ...int) {
		t.Helper()
		harness.WatchEndpoints(t, i.Istiod.GRPC, faults.ImportedCluster("zk", iface)).AwaitPush(t, faults.HealTime, faults.Addresses(ports...)...)
	}
	t.Run("hostile names cost their own service alone, and none of them is a host of the mesh", func(t *testing.T) {
		only("api.Garbage", 15002)
		i.Change(t)
		i.Agree(t)
		for _, cluster := range harness.Clusters(t, i.Istiod.GRPC, "router") {
			host := cluster[strings.LastIndexByte(cluster, '|')+1:]
			if strings.HasPrefix(cluster, "outbound|") && !strings.HasSuffix(host, ".zk.bridge.internal") {
				t.Errorf("a host of the mesh: %q", cluster)
			}
		}
	})
	t.Run("what others chose is no control character in the log", func(t *testing.T) {
		for line := range strings.SplitSeq(i.Bridge.Log(), "\n") {
			if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' || r == '\u202e' }) {
				t.Errorf("%q", line)
			}
			if strings.HasPrefix(line, "Forged") {
				t.Errorf("a forged line: %q", line)
			}
		}
	})
	t.Run("64 kB pass, 10,000 parameters cost their own provider alone", func(*testing.T) { only("api.Huge", 15003, 15005) })
	t.Run("addresses that mean nothing or too much are left out", func(*testing.T) { only("api.Nowhere", 15006) })
	t.Run("one address twice is there once, and in two services in both", func(*testing.T) {
		only("api.Twice", 15007)
		only("api.Again", 15007)
	})
}
